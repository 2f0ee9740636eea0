"""A diagnosis for people and programs: page, JSON with its schema, HTML, and traces to zoom in."""
