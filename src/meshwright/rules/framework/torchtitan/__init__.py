"""What torchtitan demands, by release: 0.1 and 0.2 read TOML, 0.3 Python configurations."""
