"""Expert parallelism: tokens to their experts and back, with balanced routing.

Two all-to-alls a routed layer and pass over ep (arXiv 2006.16668, section 3), gathers and scattered
sums over etp, and over tp a share of the tokens for each rank where all hold the same ones. Which
experts tokens choose is known when the run is on; here all take turns (the engine counts rows
beside that, 8 bytes an expert, which balanced routing need not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.layout import layers_of, local_tokens, widths_of
from meshwright.model.architecture import Experts
from meshwright.plan.degrees import degrees_of
from meshwright.plan.plan import Recompute, RecomputeModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.cost.traffic.layout import Chunk
    from meshwright.plan.job import Job

SOURCE = "train/parallel/experts/forward.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One collective of a routed layer: calls forward and backward, bytes of each.

    `closes` marks what nothing in the layer's backward pass reads, so that recompute leaves it out.
    """

    axis: str
    part: str
    collective: str
    call_bytes: float
    forward: int = 0
    backward: int = 0
    closes: bool = False


def expert(job: Job, chunk: Chunk, *, ep_rank: int = 0) -> Iterator[Piece]:
    """What the routed layers of a stage exchange over ep, etp and tp in a step."""
    count = chunk.passes.count("F")
    again = int(_repeats(job))
    for block, layers in layers_of(job.model, chunk):
        ff = block.feed_forward
        if not isinstance(ff, Experts):
            continue
        for move in moves(job, ff, ep_rank=ep_rank):
            times = 1 + (0 if move.closes else again)
            yield Piece(
                axis=move.axis,
                collective=move.collective,
                part=move.part,
                calls=count * layers * (times * move.forward + move.backward),
                call_bytes=move.call_bytes,
                formula="micro-batches * layers * calls forward and back * rows * hidden * bytes",
                source=SOURCE,
            )


def _repeats(job: Job) -> bool:
    """Whether recompute runs the routed layer's forward pass again."""
    mode, modules = Recompute(int(job.plan.recompute)), int(job.plan.recompute_modules)
    if mode is Recompute.SELECTIVE:
        again = RecomputeModule.MOE | RecomputeModule.ALTERNATE_MATMULS
        return bool(RecomputeModule(modules) & again)
    return mode is Recompute.FULL


def moves(job: Job, ff: Experts, *, ep_rank: int) -> Iterator[Move]:
    """The exchanges of one routed layer and micro-batch."""
    degrees, width = degrees_of(job.plan), widths_of(job.plan).compute
    row = job.model.hidden_size * width
    tokens = local_tokens(job)
    own = -(-tokens // degrees.tp)
    if degrees.tp > 1 and not job.plan.sequence_parallel:
        yield from _shared(ff, own * degrees.tp, row=row, width=width)
    sent, received = _rows(own * ff.top_k, ff.num_experts, degrees.ep, ep_rank)
    if degrees.ep > 1:
        for part, rows in (("dispatch", sent), ("combine", received)):
            back = received if part == "dispatch" else sent
            size, back_size = rows * row, back * row
            yield Move(axis="ep", part=part, collective="all_to_all", call_bytes=size, forward=1)
            yield Move(
                axis="ep",
                part=f"{part}_gradients",
                collective="all_to_all",
                call_bytes=back_size,
                backward=1,
            )
    if degrees.etp > 1:
        whole = degrees.etp * received * row
        for collective, forward_part, back_part in (
            ("all_gather", "rows", "output_gradients"),
            ("reduce_scatter", "outputs", "row_gradients"),
        ):
            yield Move(
                axis="etp",
                part=forward_part,
                collective=collective,
                call_bytes=whole,
                forward=1,
            )
            yield Move(
                axis="etp", part=back_part, collective=collective, call_bytes=whole, backward=1
            )


def _rows(total: int, experts: int, ep: int, rank: int) -> tuple[int, int]:
    """(rows that a rank sends in all, rows that it receives) when experts take turns."""
    counts = [(total + experts - 1 - e) // experts for e in range(experts)]
    local = experts // ep
    return total, ep * sum(counts[rank * local : (rank + 1) * local])


def _shared(ff: Experts, tokens: int, *, row: int, width: int) -> Iterator[Move]:
    """Outputs of the ranks' shares are joined; gradients of tokens and weights likewise."""
    yield Move(
        axis="tp",
        part="experts.joined",
        collective="all_gather",
        call_bytes=tokens * row,
        forward=1,
        closes=not ff.shared_intermediate_size,
    )
    for part, size in (
        ("experts.tokens", tokens * row),
        ("experts.weights", tokens * ff.top_k * width),
    ):
        yield Move(axis="tp", part=part, collective="all_gather", call_bytes=size, backward=1)
