"""Makes the modules of this folder importable from the folders below it."""
