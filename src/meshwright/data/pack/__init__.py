"""How documents share rows of a fixed length: concatenated, packed by best fit, or one to a row."""
