"""The pack plan beside a shard: X.rows.npy and X.pieces.npy, read and held to what they must be."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.data.documents import bounds_of
from meshwright.data.shards.damage import damaged
from meshwright.data.stages.layout import PIECE, ROW

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.shards.indexed import Indexed

_LONGEST_HEADER = 1024
_SHAPE = pattern(rb"'shape': \((\d{1,12}),\), \}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rows as `layout.ROW`, pieces as `layout.PIECE`, mapped into memory."""

    rows: NDArray[Any]
    pieces: NDArray[Any]


def open_plan(prefix: Path, indexed: Indexed, *, seq_len: int, check: bool = True) -> Plan:
    """The plan of a shard; InvalidInput with a finding when it is damaged or does not fit it.

    Without `check` only the headers are looked at, for files that were looked into before.
    """
    rows_path, pieces_path = (
        prefix.with_name(prefix.name + end) for end in (".rows.npy", ".pieces.npy")
    )
    plan = Plan(rows=read_column(rows_path, ROW), pieces=read_column(pieces_path, PIECE))
    wrong = _wrong_rows(plan, seq_len) if check else ""
    if wrong:
        raise damaged(rows_path, wrong)
    wrong = _wrong_pieces(plan.pieces, indexed.lengths) if check else ""
    if wrong:
        raise damaged(pieces_path, wrong)
    return plan


def read_column(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A .npy file with one column of that type, mapped into memory; InvalidInput otherwise.

    Its header must be the one that NumPy writes for that column.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise damaged(path, "is no file")
        with path.open("rb") as file:
            head = file.read(_LONGEST_HEADER)
            size = file.seek(0, 2)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from None
    match = _SHAPE.search(head)
    count = int(match[1]) if match else -1
    start = 10 + int.from_bytes(head[8:10], "little")
    if count < 0 or head[:start] != header_of(dtype, count):
        raise damaged(path, "does not begin as its kind does")
    if size != start + count * dtype.itemsize:
        told = f"{count:,} rows of {dtype.itemsize} bytes"
        raise damaged(path, f"has {size:,} bytes where its header and {told} take another number")
    if count == 0:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=(count,))


def header_of(dtype: np.dtype[Any], count: int) -> bytes:
    """How a .npy file with one column begins."""
    npy: Any = np.lib.format  # typed in some versions of NumPy alone
    described = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (count,),
    }
    file = BytesIO()
    npy.write_array_header_1_0(file, described)
    return file.getvalue()


def _wrong_rows(plan: Plan, seq_len: int) -> str:
    """What is wrong with the rows of a plan; "" when nothing is."""
    rows, pieces = plan.rows, plan.pieces
    firsts = bounds_of(rows["pieces"])
    if (rows["pieces"] < 1).any() or (rows["first"] != firsts[:-1]).any():
        return "rows do not divide the pieces from the first to the last"
    if firsts[-1] != len(pieces):
        return f"rows hold {firsts[-1]:,} pieces where the plan has {len(pieces):,}"
    lengths = pieces["length"].astype(np.int64)
    tokens = np.diff(bounds_of(lengths)[firsts])
    if (tokens > seq_len).any():
        return f"row {int(np.argmax(tokens > seq_len)):,} is longer than {seq_len:,} tokens"
    if (rows["tokens"] != tokens).any():
        return f"row {int(np.argmax(rows['tokens'] != tokens)):,} miscounts its tokens"
    cost = np.diff(bounds_of(lengths * lengths)[firsts])
    if (rows["cost"] != cost).any():
        return f"row {int(np.argmax(rows['cost'] != cost)):,} misstates its cost"
    return ""


def _wrong_pieces(pieces: NDArray[Any], lengths: NDArray[np.int32]) -> str:
    """What is wrong with the pieces of a plan over sequences of these lengths."""
    sequence, length = pieces["sequence"], pieces["length"]
    outside = (sequence < 0) | (sequence >= len(lengths)) | (pieces["start"] < 0) | (length < 1)
    outside |= (pieces["document"] < 0) | (pieces["offset"] < 0) | (pieces["next"] < -1)
    if not outside.any():
        outside = pieces["start"].astype(np.int64) + length > lengths[sequence]
    if outside.any():
        return f"piece {int(np.argmax(outside)):,} lies outside the sequences"
    return ""
