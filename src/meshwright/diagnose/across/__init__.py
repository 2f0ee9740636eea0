"""Ranks beside each other: waits apart from transfers, clocks, stragglers, links, axes."""
