"""DAT3xx: tokens on disk that fit the plan which trains on them.

Section 4.3 of the guidelines. Nothing here fires unless the data is stated, as
`meshwright data plan --data FOLDER` does from a folder's manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask


@rule(
    "DAT347",
    "Rows of another length than the plan's",
    severity=Severity.ERROR,
    section="4.3",
    source="definition: a packed row is one sequence of the batch; Megatron-LM "
    "megatron/core/datasets/gpt_dataset.py (0.19.2) cuts by its own length",
    confidence="arithmetic",
    needs=("seq_len",),
)
def rows_are_sequences(job: Job) -> Mask:
    """Rows are packed for one sequence length; read at another, documents are cut where they fall.

    A shorter length cuts the rows, a longer one joins unrelated ones; either way the packing is
    lost, and loaders that take a row for a sequence refuse.

    Fails: plan(seq_len=4096, packed_seq_len=8192)
    Passes: plan(seq_len=8192, packed_seq_len=8192)
    """
    rows = job.workload.loading.packed_seq_len
    return rows is not None and rows != job.workload.seq_len


@rows_are_sequences.message
def _(job: Job) -> str:
    rows = job.workload.loading.packed_seq_len or 0
    return f"rows of {rows:,} tokens, but the plan trains on {job.workload.seq_len:,}"


@rows_are_sequences.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"packed_seq_len": (job.workload.seq_len,), "seq_len": (_rows(job),)}


def _rows(job: Job) -> int:
    return job.workload.loading.packed_seq_len or 0


@rule(
    "DAT348",
    "Ids beyond the embedding",
    severity=Severity.ERROR,
    section="4.3",
    source="definition; torch.nn.Embedding raises IndexError, on CUDA a device-side assert (2.13)",
    confidence="run",
)
def ids_have_embeddings(job: Job) -> Mask:
    """A token id at or above the size of the embedding stops training with an index error.

    On a GPU it is a device-side assertion that names neither the id nor the document.

    Fails: plan(vocab_size=50257, token_ids=100256)
    Passes: plan(vocab_size=50257, token_ids=50257)
    """
    ids = job.workload.loading.token_ids
    return ids is not None and ids > job.model.vocab_size > 0


@ids_have_embeddings.message
def _(job: Job) -> str:
    ids = job.workload.loading.token_ids or 0
    return f"{ids:,} ids in the data's vocabulary, but {job.model.vocab_size:,} embeddings"


@ids_have_embeddings.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"token_ids": (job.model.vocab_size,)}
