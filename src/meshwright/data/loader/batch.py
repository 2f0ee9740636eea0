"""What a rank gets for a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from meshwright.data.loader.deal import Imbalance

IGNORED = -100  # the label of a token that nothing follows: torch's cross_entropy skips it
PADDING = -1  # document id of padding


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows of one micro-batch; what a rank does not need is None.

    The second dim of `tokens`, `labels`, `position_ids` and `document_ids` is the rank's slice of
    the sequence: [micro_batch_size, seq_len / cp_size]. `cu_seqlens` is over whole rows, end to end
    as micro_batch_size * seq_len tokens: where each piece of a document begins, padding at the end
    of a row being a piece too, so that no piece crosses rows.

    `position_ids` count from 0 in every piece under document masks, also where a piece continues a
    document (what came before cannot be seen), else through the row. `labels` are IGNORED where
    nothing follows in the document, and in padding.
    """

    samples: NDArray[np.int64]  # [micro_batch_size], places in the stream; -1 fills the last batch
    rows: NDArray[np.int64]  # [micro_batch_size], numbered through the sources; -1 likewise
    tokens: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    position_ids: NDArray[Any] | None = None
    document_ids: NDArray[np.int32] | None = None  # in the row, from 0; PADDING
    cu_seqlens: NDArray[np.int32] | None = None  # [pieces + 1]
    max_seqlen: int = 0  # tokens of the longest piece

    @property
    def loss_mask(self) -> NDArray[np.bool_] | None:
        """True where a token counts for the loss."""
        return None if self.labels is None else self.labels != IGNORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A step of one rank: samples first_sample up to last_sample of the stream, of all ranks."""

    first_sample: int
    last_sample: int
    micro_batches: tuple[MicroBatch, ...]
    imbalance: Imbalance | None  # None where rows are dealt as they come
