"""Repair of text before it is judged: Unicode, personal data, language."""
