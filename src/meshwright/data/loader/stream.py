"""The endless stream of samples that all ranks share, whatever their number.

Sample n is a row of one source: the blend says of which and how many of it came before, the epochs
of the source say which row that is. A global batch is the next `global_batch_size` samples, so the
number of samples consumed is all there is to know about how far a run has come.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.interleave import counts_of, interleaved, tree_of
from meshwright.data.loader import arguments
from meshwright.data.loader.epochs import WINDOW, Epochs, rows_at
from meshwright.data.mix import open_blend
from meshwright.data.shards.folder import open_folder
from meshwright.data.shards.names import SPLITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.interleave import Fork
    from meshwright.data.shards.folder import Folder

ORDER = 1  # changes whenever the same seed comes to mean another order
NAMES = {  # what must be equal for a state to fit, and what it is called
    "order": "version of the order",
    "seed": "seed",
    "split": "split",
    "shuffle": "shuffle",
    "window": "window of shards",
    "parts": "weights of the blend",
    "sources": "data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Samples of one folder, or of several blended by weight."""

    folders: tuple[Folder, ...]
    parts: tuple[int, ...]  # the weights as whole numbers
    tree: Fork | int
    epochs: tuple[Epochs, ...]  # the order of each folder's rows
    split: str

    @property
    def seq_len(self) -> int:
        """Tokens of a row."""
        return self.folders[0].seq_len

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that decides which sample has which number, as plain values."""
        return {
            "order": ORDER,
            "seed": self.epochs[0].seed,
            "split": self.split,
            "shuffle": self.epochs[0].shuffle,
            "window": WINDOW,
            "parts": list(self.parts),
            "sources": [folder.manifest.digest for folder in self.folders],
        }

    def rows(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each sample, numbered through the folders."""
        sources, numbers = interleaved(samples, self.tree)
        rows = np.empty_like(samples)
        first = 0
        for source, epochs in enumerate(self.epochs):
            chosen = sources == source
            rows[chosen] = rows_at(numbers[chosen], epochs) + first
            first += epochs.size
        return rows

    def epochs_after(self, samples: int) -> tuple[float, ...]:
        """How often each source has been gone through after so many samples."""
        counts = counts_of(samples, self.tree)
        return tuple(counts[i] / epochs.size for i, epochs in enumerate(self.epochs))


def open_stream(
    path: Path | str, *, split: str = "train", seed: int = 0, shuffle: bool = True
) -> Stream:
    """The stream of a folder of shards or of a blend.toml; InvalidInput when it is neither."""
    path, split = arguments.path("data", path), arguments.choice("split", split, SPLITS)
    seed = arguments.whole("seed", seed, least=0, most=arguments.LARGEST_SEED)
    shuffle = arguments.flag("shuffle", shuffle)
    if Path(path).suffix == ".toml":
        folders, parts = open_blend(Path(path), split)
    else:
        folders, parts = (open_folder(path, split),), (1,)
    for folder in folders:
        _check_rows(folder, split)
    epochs = tuple(
        Epochs(
            rows=tuple(record.rows for record in folder.records),
            seed=seed,
            source=number,
            shuffle=shuffle,
        )
        for number, folder in enumerate(folders)
    )
    return Stream(folders=folders, parts=parts, tree=tree_of(parts), epochs=epochs, split=split)


def _check_rows(folder: Folder, split: str) -> None:
    if not len(folder):
        held = ", ".join(s for s in SPLITS if folder.manifest.of_split(s)) or "none"
        raise MeshwrightError(
            f"{str(folder.path)!r} has no rows of split {split!r}",
            hint=f"splits with rows: {held}; `validation` in the build's settings holds some out",
        )
