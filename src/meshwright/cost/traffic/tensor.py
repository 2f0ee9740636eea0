"""Tensor, sequence and vocabulary parallelism: exchanges around products, sums of gradients.

Each exchange of the forward pass has its mirror in the backward pass: an all-gather a
reduce-scatter, an all-reduce none or one at the other end of the block (arXiv 1909.08053,
section 3; arXiv 2205.05198, section 4.2). Recomputation makes the forward exchanges again but for
the last of a layer, which nothing in its backward pass reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.layout import layers_of, local_tokens, widths_of
from meshwright.cost.traffic.shapes import FUSED, SLICED, SUMMED
from meshwright.cost.traffic.sharding import accumulates, is_wrapped, reductions, units
from meshwright.plan.plan import Recompute, RecomputeModule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.cost.traffic.layout import Chunk
    from meshwright.model.architecture import Block
    from meshwright.plan.job import Job

SOURCE = "train/parallel/tensor.py and styles.py: torch's DTensor styles"
GATHER, SCATTER, SUM, SWAP = "all_gather", "reduce_scatter", "all_reduce", "all_to_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange of a pass: its name, collective, bytes, and how often recompute repeats it."""

    part: str
    collective: str
    size: float
    again: bool = False


def tensor(job: Job, chunk: Chunk) -> Iterator[Piece]:
    """What a stage's ranks exchange over tp in a step."""
    if int(job.plan.tp) == 1:
        return
    count = chunk.passes.count("F")
    for block, layers in layers_of(job.model, chunk):
        covered = layers if int(job.plan.recompute) else 0
        for exchange in [*_attention(job, block), *_feed_forward(job, block)]:
            times = layers + (covered if exchange.again else 0)
            yield _piece(exchange, count * times)
    for exchange in _ends(job, chunk):
        yield _piece(exchange, count)
    yield from _gradients(job, chunk)


def _piece(exchange: Exchange, calls: float) -> Piece:
    return Piece(
        axis="tp",
        collective=exchange.collective,
        part=exchange.part,
        calls=calls,
        call_bytes=exchange.size,
        formula="micro-batches * layers * bytes of the whole activation, twice where recomputed",
        source=SOURCE,
    )


def hidden_bytes(job: Job) -> float:
    """Hidden states of a micro-batch on this rank's slice of the rows, whole over tp."""
    return local_tokens(job) * job.model.hidden_size * widths_of(job.plan).compute


def entry(job: Job, part: str, size: float) -> list[Exchange]:
    """Before a product that is cut by outputs: gathered forward; the gradient summed back."""
    if not job.plan.sequence_parallel:
        return [Exchange(part=part, collective=SUM, size=size)]
    return [
        Exchange(part=part, collective=GATHER, size=size, again=_repeats(job, GATHER)),
        Exchange(part=part, collective=SCATTER, size=size),
    ]


def exit_of(job: Job, part: str, size: float, *, last: bool) -> list[Exchange]:
    """After a product that is cut by inputs: summed forward, gathered back where it is sliced."""
    kind = SCATTER if job.plan.sequence_parallel else SUM
    again = not last and _repeats(job, kind)
    forward = Exchange(part=part, collective=kind, size=size, again=again)
    if not job.plan.sequence_parallel:
        return [forward]
    return [forward, Exchange(part=part, collective=GATHER, size=size)]


def _repeats(job: Job, kind: str) -> bool:
    """Whether recompute makes a collective again: torchtitan's policy keeps scattered sums."""
    mode = Recompute(int(job.plan.recompute))
    if mode is Recompute.SELECTIVE:
        every = RecomputeModule.ALTERNATE_MATMULS in RecomputeModule(
            int(job.plan.recompute_modules)
        )
        return every and kind != SCATTER
    return mode is Recompute.FULL


def _attention(job: Job, block: Block) -> list[Exchange]:
    """Of one attention layer."""
    a, size = block.attention, hidden_bytes(job)
    element = local_tokens(job) * widths_of(job.plan).compute
    found = _latent(job, block, element) if a.is_latent else entry(job, "attention.input", size)
    if job.model.family in FUSED:
        queries = (a.num_attention_heads + a.num_key_value_heads) * a.head_dim
        width = (queries + a.num_key_value_heads * a.v_head_dim) // int(job.plan.tp)
        found += _swapped(job, "attention.qkv", element * width)
    return [*found, *exit_of(job, "attention.output", size, last=False)]


def _latent(job: Job, block: Block, element: float) -> list[Exchange]:
    """Latents are gathered in the place of the wider hidden states."""
    a = block.attention
    down = (a.kv_lora_rank or 0) + a.qk_rope_head_dim
    widths = [("attention.kv_latent", down)]
    if a.q_lora_rank:
        widths.append(("attention.q_latent", a.q_lora_rank))
    if not job.plan.sequence_parallel:
        return entry(job, "attention.input", hidden_bytes(job))
    found = [] if a.q_lora_rank else entry(job, "attention.input", hidden_bytes(job))
    return found + [e for part, width in widths for e in entry(job, part, element * width)]


def _swapped(job: Job, part: str, size: float) -> list[Exchange]:
    """Outputs of a fused product change places, and their gradients back."""
    forward = Exchange(part=part, collective=SWAP, size=size, again=_repeats(job, SWAP))
    return [forward, Exchange(part=part, collective=SWAP, size=size)]


def _feed_forward(job: Job, block: Block) -> list[Exchange]:
    """Of one feed-forward layer: dense, or the shared experts of a routed one."""
    ff, size = block.feed_forward, hidden_bytes(job)
    if block.is_moe:
        if not getattr(ff, "shared_intermediate_size", 0):
            return []
        inside = entry(job, "shared.input", size)
        return inside + exit_of(job, "shared.output", size, last=True)
    found = entry(job, "mlp.input", size)
    if job.model.family in FUSED:
        element = local_tokens(job) * widths_of(job.plan).compute
        width = 2 * ff.intermediate_size // int(job.plan.tp)
        found += _swapped(job, "mlp.gate_up", element * width)
    return [*found, *exit_of(job, "mlp.output", size, last=True)]


def _ends(job: Job, chunk: Chunk) -> list[Exchange]:
    """Of embedding, head and loss; none is recomputed with the layers."""
    plan, size = job.plan, hidden_bytes(job)
    found: list[Exchange] = []
    if chunk.is_first and plan.vocab_parallel:
        found += [_once(e) for e in exit_of(job, "embedding", size, last=True)]
    if not chunk.is_last:
        return found
    if plan.vocab_parallel:
        found += [_once(e) for e in entry(job, "head.input", size)]
        return found + _loss(job)
    if plan.sequence_parallel:
        found.append(Exchange(part="loss", collective=SUM, size=4.0))
    return found


def _once(exchange: Exchange) -> Exchange:
    return Exchange(part=exchange.part, collective=exchange.collective, size=exchange.size)


def _loss(job: Job) -> list[Exchange]:
    """Of a cut vocabulary: two numbers a token, or the whole logits."""
    tokens, width = local_tokens(job), widths_of(job.plan).compute
    if not job.plan.loss_parallel:
        size = tokens * job.model.vocab_size * width
        return [Exchange(part="logits", collective=GATHER, size=size)]
    return [
        Exchange(part="loss.largest", collective=SUM, size=4.0 * tokens),
        Exchange(part="loss.sums", collective=SUM, size=8.0 * tokens),
    ]


def _gradients(job: Job, chunk: Chunk) -> Iterator[Piece]:
    """Gradients of whole weights of which every rank has one summand.

    FSDP2 sums each by itself before every reduction; without it all are summed together once.
    """
    widths = widths_of(job.plan)
    kinds = {SUMMED, SLICED} if job.plan.sequence_parallel else {SUMMED}
    found = [(u.count, w) for u in units(job, chunk) for w in u.weights if w.cut in kinds]
    width = widths.reduce if accumulates(job, chunk.passes) else widths.compute
    for count, weight in found if is_wrapped(job, chunk) else []:
        yield Piece(
            axis="tp",
            collective=SUM,
            part=f"gradients.{weight.name}",
            calls=count * reductions(job, chunk.passes),
            call_bytes=weight.rows * weight.columns * width,
            formula="layers * reductions a step * elements * bytes of a gradient",
            source=SOURCE,
        )


def summed_together(job: Job, chunks: Sequence[Chunk]) -> Iterator[Piece]:
    """The gradients that every rank has one summand of, where FSDP2 does not see to them."""
    kinds = {SUMMED, SLICED} if job.plan.sequence_parallel else {SUMMED}
    elements = sum(
        unit.count * weight.rows * weight.columns
        for chunk in chunks
        if not is_wrapped(job, chunk)
        for unit in units(job, chunk)
        for weight in unit.weights
        if weight.cut in kinds
    )
    if int(job.plan.tp) > 1 and elements:
        yield Piece(
            axis="tp",
            collective=SUM,
            part="gradients",
            calls=1,
            call_bytes=elements * widths_of(job.plan).kept,
            formula="elements of norms, routers and projections to latents, once a step",
            source=SOURCE,
            operands={"elements": float(elements)},
        )
