"""Reading text: jsonl, parquet and plain text, as they are or compressed, from disk or by URL."""
