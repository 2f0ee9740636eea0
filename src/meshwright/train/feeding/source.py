"""What a source of samples is to the feeder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.loader.batch import Batch


class Source(Protocol):
    """Samples by number, endless; of each global batch it makes this rank's part.

    `rows` is the number of samples of one epoch, None where there is no such thing. `identity` is
    all that decides which sample has which number, as plain values. `epochs_after` says how often
    each part of the data has been gone through after so many samples.
    """

    @property
    def rows(self) -> int | None: ...  # noqa: D102

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    def epochs_after(self, samples: int) -> tuple[float, ...]: ...  # noqa: D102

    def make(self, first_sample: int, *, end: int | None = None) -> Batch:
        """The batch of samples from `first_sample` on; rows from sample `end` on are blank."""
        ...
