"""Other people's configurations, read into values that rules and costs understand, and written.

One package per framework: `fields.csv` is its table of fields, `__init__.py` defines `FRAMEWORK`.
The table drives reading, positions, defaults by version, the dictionary of names, the docs and the
round-trip test; what a table cannot say (two fields that together mean one thing) is in
`interpret`, and its inverse in `express`.
"""
