"""Words, lines and paragraphs of a batch as columns: what filters and deduplication count."""
