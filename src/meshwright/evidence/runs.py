"""Reading a file of published runs: csv, plain or compressed with gzip or xz."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import zlib
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.evidence.row import (
    ABOUT,
    INTEGERS,
    MEASURED,
    SETTINGS,
    Measurement,
    Row,
    Run,
    is_blank,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NEEDED = ("id", "source", "seq_len", "gpu", "num_gpus", "global_batch")
_MEMORY = {
    "mem_alloc_gib": "allocated_gib",
    "mem_reserved_gib": "reserved_gib",
    "mem_other_gib": "other_gib",
}


@dataclass(frozen=True, slots=True)
class Runs:
    """The rows of a runs file in order, and what was wrong with single cells."""

    rows: tuple[Run, ...]
    findings: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Run]:
        """The rows in order."""
        return iter(self.rows)


def read_runs(path: str | Path) -> Runs:
    """The runs in a csv, csv.gz or csv.xz file with the columns of the reference data.

    Columns may come in any order, unknown ones are ignored and optional ones may be absent. A cell
    that does not read as its column should is a finding with its line and column; its row is kept.
    Raises InvalidInput when the file cannot be read at all, or lacks a needed column.
    """
    return runs_of_text(_decompressed(Path(path)), name=str(path))


def packaged_runs() -> Runs:
    """The reference runs that travel with the package."""
    resource = files("meshwright.evidence").joinpath("data/published-runs.csv.xz")
    with as_file(resource) as path:
        return read_runs(path)


def runs_of_text(text: str, *, name: str = "<text>") -> Runs:
    """The runs in csv text; `name` stands for the file in findings."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="", restkey="")
    missing = [c for c in _NEEDED if c not in (reader.fieldnames or ())]
    if missing:
        raise InvalidInput([_no_column(name, missing)])
    columns = {c: i + 1 for i, c in enumerate(reader.fieldnames or ())}
    runs: list[Run] = []
    findings: list[Finding] = []
    try:
        for cells in reader:
            findings += _cell_findings(cells, columns, file=name, line=reader.line_num)
            runs.append(_run(cells, reader.line_num))
    except csv.Error as error:
        place = Finding(message=f"not csv: {error}", file=name, line=reader.line_num)
        raise InvalidInput([place]) from error
    return Runs(tuple(runs), tuple(findings))


def _decompressed(path: Path) -> str:
    """The text of a file, whatever its compression."""
    try:
        raw = path.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        elif raw.startswith(b"\xfd7zXZ"):
            raw = lzma.decompress(raw)
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput([Finding(message=f"cannot read: {reason}", file=str(path))]) from error
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text at byte {error.start}"
        raise InvalidInput([Finding(message=message, file=str(path))]) from error


def _no_column(name: str, missing: list[str]) -> Finding:
    """Finding: the header lacks columns."""
    return Finding(
        message=f"no column {', '.join(missing)}",
        file=name,
        line=1,
        hint="the first line must name the columns, as in the packaged published-runs.csv.xz",
    )


def _cell_findings(
    cells: Mapping[str, str], columns: Mapping[str, int], *, file: str, line: int
) -> list[Finding]:
    """Findings for the cells of one line that are not the numbers they should be."""
    numeric = (*INTEGERS, *MEASURED)
    wrong = {
        column: raw
        for column in numeric
        if not is_blank(raw := cells.get(column) or "") and not _reads(column, raw)
    }
    return [
        Finding(
            message=f"{column} is {raw!r}, not a {'whole ' if column in INTEGERS else ''}number",
            file=file,
            line=line,
            column=columns[column],
            key=column,
            value=raw,
            hint="leave the cell empty where the value is not known",
        )
        for column, raw in wrong.items()
    ]


def _reads(column: str, raw: str) -> bool:
    """True when a cell is the number that its column wants."""
    return (whole_number(raw) if column in INTEGERS else _number(raw)) is not None


def _number(raw: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(raw.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _measured(raw: str) -> float | None:
    """A figure that can be compared: finite and positive."""
    value = _number(raw)
    return value if value is not None and value > 0 else None


def _run(cells: Mapping[str, str], line: int) -> Run:
    """One line of the file."""
    about = {c: (cells.get(c) or "").strip() for c in ABOUT}
    numbers = {c: _measured(cells.get(c) or "") for c in MEASURED}
    return Run(
        id=about["id"],
        source=about["source"],
        source_ref=about["source_ref"],
        completeness=about["completeness"],
        check=about["check"],
        flops_convention=about["flops_convention"],
        line=line,
        row=Row({c: cells.get(c) or "" for c in SETTINGS}),
        measured=Measurement(**{_MEMORY.get(c, c): v for c, v in numbers.items()}),
    )
