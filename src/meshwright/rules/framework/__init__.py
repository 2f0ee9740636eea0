"""What only one framework and version demands, one module per framework and section."""
