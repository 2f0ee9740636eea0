"""Where documents come from and went to, as documents.parquet tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.needs import need
from meshwright.data.shards.aside import SetAside, set_aside
from meshwright.data.shards.damage import damaged
from meshwright.data.shards.names import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_HINT = "type FILE:LINE as documents.parquet has them, see `meshwright data stats`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A row of documents.parquet; None where it says nothing."""

    input: str
    line: int
    id: str
    bytes: int
    language: str
    reason: str
    measured: float | None
    test_text: str | None
    duplicate_of_input: str | None
    duplicate_of_line: int | None
    similarity: float | None
    shard: str | None
    document: int | None
    tokens: int | None
    copies: int

    @property
    def place(self) -> str:
        """file:line."""
        return f"{self.input}:{self.line}"


def origins(folder: Path, shard: str, documents: Sequence[int]) -> dict[int, Origin]:
    """Where some documents of a shard were read; repeats of one placed elsewhere are left out."""
    arrow = need("pyarrow.compute", "reading documents.parquet")
    numbers = sorted(set(documents))
    wanted = need("pyarrow", "reading documents.parquet").array(numbers, type="int32")

    def here(batch: Any) -> Any:
        is_shard = arrow.equal(batch.column("shard"), shard)
        return arrow.and_(is_shard, arrow.is_in(batch.column("document"), value_set=wanted))

    found: dict[int, Origin] = {}
    for origin in _matching(folder, here, columns=["shard", "document"]):
        if origin.document is not None:
            found[origin.document] = origin
        if len(found) == len(numbers):
            break
    return found


def find(folder: Path, place: str) -> Origin | SetAside:
    """What became of the document or line at file:line; the end of the file's path is enough.

    MeshwrightError when none was read there.
    """
    arrow = need("pyarrow.compute", "reading documents.parquet")
    file, _, line = place.rpartition(":")
    if not file or not (line.isascii() and line.isdigit() and len(line) < 19):
        raise MeshwrightError(f"{place!r} is not FILE:LINE", hint=_HINT)

    def here(batch: Any) -> Any:
        ends = arrow.ends_with(batch.column("input"), pattern=file)
        return arrow.and_(ends, arrow.equal(batch.column("line"), int(line)))

    for origin in _matching(folder, here, columns=["input", "line"]):
        if origin.input == file or origin.input.endswith(f"/{file}"):
            return origin
    aside = set_aside(folder, file, int(line))
    if aside is not None:
        return aside
    raise MeshwrightError(f"no document was read at {place!r}", hint=_HINT)


def _matching(
    folder: Path, chosen: Callable[[Any], Any], *, columns: list[str]
) -> Iterator[Origin]:
    """The rows that `chosen` marks; only row groups with such a row are read whole."""
    parquet = need("pyarrow.parquet", "reading documents.parquet")
    arrow = need("pyarrow", "reading documents.parquet")
    path = folder / DOCUMENTS
    try:
        with parquet.ParquetFile(path) as table:
            for group in range(table.num_row_groups):
                mask = chosen(table.read_row_group(group, columns=columns))
                if need("pyarrow.compute", "reading documents.parquet").any(mask).as_py():
                    for row in table.read_row_group(group).filter(mask).to_pylist():
                        yield Origin(**row)
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"cannot be read: {error}") from None
