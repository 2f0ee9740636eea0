"""What a scan unit holds once it is done: columns of its documents, and the text that passed."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.documents import Documents, bounds_of
from meshwright.data.needs import need
from meshwright.data.stages.lines import before, in_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.data.documents import Mask
    from meshwright.data.stages.layout import Job
    from meshwright.data.work.store import Store

TEXT = "text.zst"  # one zstd frame for each row of `blocks`


class Scanned:
    """One finished scan unit; columns are read when they are asked for.

    `documents` has the rows of `layout.DOCUMENT`, every document read; `survivors` those of
    `layout.SURVIVOR`, the ones that passed every filter, in the same order.
    """

    def __init__(self, store: Store, number: int) -> None:
        self.store = store
        self.number = number

    @cached_property
    def documents(self) -> NDArray[Any]:
        """Every document of the unit, as `layout.DOCUMENT`; lines as in the whole file."""
        return in_file(self._column("documents"), before(self.store, self.number))

    @cached_property
    def survivors(self) -> NDArray[Any]:
        """The documents that passed, as `layout.SURVIVOR`."""
        return self._column("survivors")

    @cached_property
    def bands(self) -> NDArray[np.uint64]:
        """Band keys of the survivors [survivors, bands]; no bands without near dedup."""
        return self._column("bands")

    @cached_property
    def blocks(self) -> NDArray[Any]:
        """Where the text lies, as `layout.BLOCK`."""
        return self._column("blocks")

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The name that the input gives each document, "" for none; `()` when none has any."""
        if not (self.store.folder("scan", self.number) / "id_bounds.npy").exists():
            return ()
        encoded, bounds = self._column("ids").tobytes(), self._column("id_bounds").tolist()
        return tuple(encoded[start:stop].decode() for start, stop in pairwise(bounds))

    def texts(self, survivors: Sequence[int] | NDArray[np.integer]) -> Documents:
        """The cleaned text of some survivors, by their place in `survivors`, in that order.

        Each block that holds any of them is decompressed once.
        """
        chosen = np.asarray(survivors, dtype=np.int64)
        found: dict[int, NDArray[np.uint8]] = {}
        for block in np.unique(self.survivors["block"][chosen]).tolist():
            here = chosen[self.survivors["block"][chosen] == block]
            text = self._block(block)
            for number in here.tolist():
                row = self.survivors[number]
                found[number] = text[row["start"] : row["stop"]]
        return self._batch([found[number] for number in chosen.tolist()], chosen)

    def batches(self, keep: Mask | None = None) -> Iterator[tuple[NDArray[np.int64], Documents]]:
        """The survivors that `keep` marks (all of them by default), block by block, in order.

        Yields their places in `survivors` and their cleaned text.
        """
        block_of = np.asarray(self.survivors["block"])
        for block in range(len(self.blocks)):
            first, last = np.searchsorted(block_of, [block, block + 1]).tolist()
            numbers = np.arange(first, last, dtype=np.int64)
            chosen = numbers if keep is None else numbers[keep[first:last]]
            if not len(chosen):
                continue
            text, rows = self._block(block), self.survivors[chosen]
            parts = [
                text[start:stop]
                for start, stop in zip(rows["start"].tolist(), rows["stop"].tolist(), strict=True)
            ]
            yield chosen, self._batch(parts, chosen)

    def _batch(self, parts: list[NDArray[np.uint8]], chosen: NDArray[np.int64]) -> Documents:
        """Texts as a batch that says where they come from."""
        rows = self.survivors["row"][chosen]
        read = self.documents[rows]
        return Documents(
            text=np.concatenate(parts) if parts else np.zeros(0, np.uint8),
            bounds=bounds_of(np.array([len(part) for part in parts], dtype=np.int64)),
            input=read["input"],
            line=read["line"],
            ids=tuple(self.ids[row] for row in rows.tolist()) if self.ids else (),
        )

    def _block(self, number: int) -> NDArray[np.uint8]:
        """The decompressed text of one block."""
        place = self.blocks[number]
        with (self.store.folder("scan", self.number) / TEXT).open("rb") as file:
            file.seek(int(place["offset"]))
            stored = file.read(int(place["stored"]))
        zstandard = need("zstandard", "reading scanned text")
        text = zstandard.ZstdDecompressor().decompress(stored, max_output_size=int(place["bytes"]))
        return np.frombuffer(text, dtype=np.uint8)

    def _column(self, name: str) -> NDArray[Any]:
        return self.store.column("scan", self.number, name)


def scanned(job: Job, number: int) -> Scanned:
    """The finished scan unit of that number."""
    return Scanned(job.store, number)
