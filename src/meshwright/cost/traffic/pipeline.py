"""Hidden states and their gradients between stages, and the sums that the step itself makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.layout import local_tokens, widths_of
from meshwright.cost.traffic.shapes import embedding_weights
from meshwright.plan.degrees import degrees_of
from meshwright.plan.job import world_size
from meshwright.plan.stages import is_v_shaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.cost.traffic.layout import Chunk
    from meshwright.plan.job import Job

SOURCE = "train/parallel/pipeline.py on torch.distributed.pipelining; arXiv 2104.04473, section 2.2"


def handovers(job: Job, chunk: Chunk) -> Iterator[Piece]:
    """What one stage sends to and receives from stages on other ranks."""
    plan = job.plan
    cut = int(plan.tp) if plan.sequence_parallel else 1
    width = widths_of(plan).compute
    size = local_tokens(job) // cut * job.model.hidden_size * width
    pairs = (
        ("hidden_states", "send", chunk.sends_forward, "F"),
        ("hidden_states", "receive", chunk.sends_backward, "F"),
        ("gradients", "send", chunk.sends_backward, "B"),
        ("gradients", "receive", chunk.sends_forward, "B"),
    )
    for part, collective, there, kind in pairs:
        if there:
            yield Piece(
                axis="pp",
                collective=collective,
                part=part,
                calls=chunk.passes.count(kind),
                call_bytes=size,
                formula=f"micro-batches * tokens / (cp * tp with sequence parallelism) * hidden * "
                f"{width} B",
                source=SOURCE,
                operands={"tokens": float(local_tokens(job)), "cut": float(cut)},
            )


def tied(job: Job, chunk: Chunk) -> Iterator[Piece]:
    """The gradient of a tied embedding, which first and last stage swap where they lie apart."""
    plan, model = job.plan, job.model
    ends_apart = int(plan.pp) > 1 and not bool(is_v_shaped(plan.schedule))
    if not model.tie_word_embeddings or not ends_apart or chunk.is_first == chunk.is_last:
        return
    degrees, width = degrees_of(plan), widths_of(plan).kept
    (weight,) = embedding_weights(model, vocab_parallel=bool(plan.vocab_parallel))
    own = weight.on_rank(degrees.tp).padded(degrees.fsdp) // degrees.fsdp
    for collective in ("send", "receive"):
        yield Piece(
            axis="pp",
            collective=collective,
            part="tied_embedding",
            calls=1,
            call_bytes=own * width,
            formula=f"this rank's shard of the embedding * {width} B, once a step",
            source="train/engine.py; arXiv 2104.04473, section 4.1",
            operands={"elements": float(own)},
        )


def sums(job: Job) -> Iterator[Piece]:
    """What every step sums over all ranks at once: labels that count, squared norm, the loss."""
    if int(world_size(job.plan)) == 1:
        return
    yield Piece(
        axis="world",
        collective="all_reduce",
        part="sums",
        calls=1,
        call_bytes=24,
        formula="labels that count, squared norm of the gradients and loss, 8 B each, once a step",
        source="train/step.py",
    )
