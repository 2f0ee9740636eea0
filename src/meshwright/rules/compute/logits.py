"""CMP2xx, third part: the logits, which long sequences and large vocabularies make the largest.

Section 6.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.rules.predicted import gib
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

LARGE_SHARE = 0.25  # of the device, for the logits and their copies alone
MOST_CHUNKS = 64


def _ranks(job: Job) -> Any:
    """Ranks that share the logits of a token."""
    return np.where(job.plan.vocab_parallel & job.plan.loss_parallel, job.plan.tp, 1)


def _tokens(job: Job) -> Any:
    """Tokens of a micro-batch on one rank."""
    return job.plan.micro_batch_size * job.workload.seq_len / job.plan.cp


def _alive_bytes(job: Job) -> Any:
    """Bytes of logits and their copies alive at the fullest moment of the loss."""
    from meshwright.cost.memory.ends import loss_bytes
    from meshwright.cost.memory.stack import memory_stack

    logits = _tokens(job) * np.ceil(job.model.vocab_size / _ranks(job))
    return loss_bytes(job, logits, memory_stack(job.stack))[0]


@rule(
    "CMP224",
    "Logits take a large share of the memory",
    severity=Severity.WARNING,
    section="6.2",
    source="bytes of a logit in the loss, docs/accuracy.md; Cut Cross-Entropy (arXiv 2411.09009) "
    "section 1",
    reads=(
        *("micro_batch_size", "cp", "tp", "vocab_parallel", "loss_parallel"),
        *("loss_chunks", "fused_loss"),
    ),
    confidence="arithmetic",
    needs=("model", "seq_len", "gpu"),
    said_by=("CMP121", "CMP303"),
    points=("seq_len", "micro_batch_size", "vocab_size", "fused_loss", "loss_chunks"),
)
def logits_are_small(job: Job) -> Mask:
    """The loss holds tokens * vocabulary logits, in 16 bits, again in fp32, and their gradient.

    At long sequences and large vocabularies they outgrow all else, and no recompute or sharding of
    states helps: a run that fits at half the length fails on the longest sample. Compute the loss
    in slices or fused with the head, or split tokens or vocabulary over ranks.

    Fails: plan(seq_len=32768, tp=1)
    Passes: plan(seq_len=32768, tp=1, loss_chunks=8)
    Passes: plan(seq_len=4096, tp=1)
    """
    return _alive_bytes(job) > LARGE_SHARE * job.cluster.gpu.memory_bytes


@logits_are_small.message
def _(job: Job) -> str:
    tokens = float(_tokens(job))
    rows = float(np.ceil(job.model.vocab_size / _ranks(job)))
    room = job.cluster.gpu.memory_bytes
    alive = float(_alive_bytes(job))
    return (
        f"logits of {tokens:.0f} tokens x vocabulary {rows:.0f} take {gib(4 * tokens * rows)} in "
        f"fp32 and, with their copies, {gib(alive)} in the loss: {alive / room:.0%} of the "
        f"device's memory"
    )


@logits_are_small.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    chunks = 2
    while chunks < MOST_CHUNKS:
        other = job.with_plan(job.plan.replace(loss_chunks=np.int64(chunks)))
        if not bool(logits_are_small.condition(other)):
            return {"loss_chunks": (chunks,), "fused_loss": (True,)}
        chunks *= 2
    return {}
