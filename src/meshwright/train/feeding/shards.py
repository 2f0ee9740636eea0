"""Shards of `meshwright data`, alone or blended: the loader's own assembly, without its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.data.loader.assembly import Assembly, Form
from meshwright.data.loader.loading import make
from meshwright.data.loader.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.loader.batch import Batch
    from meshwright.data.loader.place import Place

_TOKEN_COST = 12  # times hidden_size, see `loader.assembly.Form`


class Shards:
    """Rows of one split of a folder or a blend.toml."""

    def __init__(
        self,
        path: str,
        place: Place,
        *,
        split: str,
        seed: int,
        shuffle: bool,
        document_masks: bool,
        cp_slices: str,
        hidden_size: int,
    ) -> None:
        form = Form(
            document_masks=document_masks,
            cp_slices=cp_slices,
            token_cost=float(_TOKEN_COST * hidden_size),
        )
        stream = open_stream(path, split=split, seed=seed, shuffle=shuffle)
        self._assembly = Assembly(stream, place, form)

    @property
    def seq_len(self) -> int:
        """Tokens of a row."""
        return self._assembly.stream.seq_len

    @property
    def rows(self) -> int | None:
        """Rows of all folders together."""
        return sum(epochs.size for epochs in self._assembly.stream.epochs)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Seed, split, weights, and the digests of the folders."""
        return self._assembly.stream.identity

    def epochs_after(self, samples: int) -> tuple[float, ...]:
        """By folder."""
        return self._assembly.stream.epochs_after(samples)

    def make(self, first_sample: int, *, end: int | None = None) -> Batch:
        """This rank's part of a global batch."""
        return make(self._assembly, first_sample, end=end)
