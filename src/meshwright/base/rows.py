"""Tables that ship with the package, as CSV files beside its modules."""

from __future__ import annotations

import csv

from meshwright.base.shipped import shipped


def rows_of(package: str, file: str) -> list[dict[str, str]]:
    """The rows of a package's table by column; every value is text, "" where there is none."""
    text = shipped(package).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
