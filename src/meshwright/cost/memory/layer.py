"""Bytes that depend on a block and on tp, cp, ep, etp, micro-batch, recompute and precision alone.

A search has a few hundred such combinations among millions of plans: `layer_bytes` is computed
once for each and handed out with `take`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.activations import (
    alternate_matmuls_bytes,
    checkpoint_bytes,
    kv_heads,
    output_bytes,
    recomputed_operators,
    saved_operators,
)
from meshwright.cost.memory.ends import EndBytes, end_bytes
from meshwright.cost.memory.shape import Shape, shape_of
from meshwright.cost.memory.stack import MemoryStack, memory_stack
from meshwright.model.architecture import Experts, Mlp
from meshwright.model.count import block_parameters
from meshwright.plan.distinct import distinct, pick
from meshwright.plan.plan import Recompute, RecomputeModule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.model.architecture import Block
    from meshwright.plan.job import Job

Columns = TypeVar("Columns")

LAYER_FIELDS = (
    "tp",
    "cp",
    "context_parallel",
    "ep",
    "etp",
    "micro_batch_size",
    "sequence_parallel",
    "vocab_parallel",
    "loss_parallel",
    "loss_chunks",
    "fused_loss",
    "recompute",
    "recompute_modules",
    "distribute_saved",
    "precision",
    "flash_attention",
    "compile",
    "lora_rank",
    "lora_all_linear",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBytes:
    """One block of one kind; bytes per micro-batch, parameters on the rank before dp sharding.

    `kept` is what it keeps for the backward pass (selective recompute applied), `checkpoint` its
    input alone, `whole` what it keeps without recompute, `made_again` what the backward pass makes
    again of a selectively recomputed block, `gradients` the activation gradients alive at once.
    `dense` and `expert` count parameters, `trained_*` those that receive gradients, `shapes` those
    of one matrix of each shape. `gathered_more` is what the upper bound adds to `kept`, `outputs`
    the size of the products' and norms' outputs, whose gradients a waiting weight gradient reads.
    """

    kept: Any
    checkpoint: Any
    whole: Any
    made_again: Any
    gradients: Any
    dense: Any
    expert: Any
    trained_dense: Any
    trained_expert: Any
    shapes: Any
    gathered_more: Any
    outputs: Any = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """`BlockBytes` of each of `model.kinds`, and of what lies outside the blocks.

    `operators[k]` splits what kind k keeps by operator; `take` leaves it behind.
    """

    blocks: tuple[BlockBytes, ...]
    ends: EndBytes
    operators: tuple[dict[str, Any], ...] = ()

    def take(self, index: NDArray[np.int64]) -> LayerBytes:
        """The rows at `index`; scalars stay scalar."""
        return LayerBytes(
            blocks=tuple(_taken(block, index) for block in self.blocks),
            ends=_taken(self.ends, index),
        )


def _taken(value: Columns, index: NDArray[np.int64]) -> Columns:
    """A dataclass of columns at the rows of `index`."""
    named = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
    return type(value)(**{n: v[index] if np.ndim(v) else v for n, v in named.items()})


def layer_bytes(job: Job, stack: MemoryStack | None = None) -> LayerBytes:
    """Bytes per block for every row of the job's plan as it stands."""
    stack = stack or memory_stack(job.stack)
    shape = shape_of(job, stack)
    pairs = [_block(job, block, shape, stack) for block in job.model.kinds]
    return LayerBytes(
        blocks=tuple(block for block, _ in pairs),
        ends=end_bytes(job, shape, stack),
        operators=tuple(operators for _, operators in pairs),
    )


def shared_layer_bytes(job: Job, stack: MemoryStack | None = None) -> LayerBytes:
    """`layer_bytes`, computed once for each distinct combination of `LAYER_FIELDS`."""
    columns = [np.asarray(getattr(job.plan, name)) for name in LAYER_FIELDS]
    if all(c.ndim == 0 for c in columns):
        return layer_bytes(job, stack)
    first, inverse = distinct(*columns)
    shape = np.broadcast_shapes(*(c.shape for c in columns))
    few = {name: pick(c, first, shape) for name, c in zip(LAYER_FIELDS, columns, strict=True)}
    return layer_bytes(job.with_plan(job.plan.replace(**few)), stack).take(inverse)


def _block(
    job: Job, block: Block, shape: Shape, stack: MemoryStack
) -> tuple[BlockBytes, dict[str, Any]]:
    """Bytes of one kind of block, and what it keeps by operator."""
    h = job.model.hidden_size
    saved = saved_operators(block, h, shape=shape, stack=stack)
    again = recomputed_operators(saved, shape)
    kept = {name: value - again.get(name, 0.0) for name, value in saved.items()}
    whole = sum(saved.values())
    alternate = shape.covers(RecomputeModule.ALTERNATE_MATMULS)
    few = np.where(alternate, alternate_matmuls_bytes(block, h, shape), sum(kept.values()))
    dense, expert, trained_dense, trained_expert = _parameters(job, block)
    return BlockBytes(
        kept=few,
        checkpoint=checkpoint_bytes(h, shape),
        whole=whole,
        made_again=whole - few,
        gradients=_gradients(block, h, shape),
        dense=dense,
        expert=expert,
        trained_dense=trained_dense,
        trained_expert=trained_expert,
        shapes=_shapes(job, block),
        gathered_more=_gathered_more(saved, shape, stack),
        outputs=output_bytes(block, h, shape) if stack.pipeline_buffers else 0.0,
    ), _by_operator(job, kept, few, shape)


def _by_operator(job: Job, kept: dict[str, Any], few: Any, shape: Shape) -> dict[str, Any]:
    """What a block keeps by operator; one entry where a policy is not told by operator."""
    plain = np.ndim(job.plan.recompute) == 0 and int(job.plan.recompute) != int(Recompute.FULL)
    if plain and not np.any(shape.covers(RecomputeModule.ALTERNATE_MATMULS)):
        return kept
    return {"saved": few}


def _gradients(block: Block, hidden_size: int, shape: Shape) -> Any:
    """Activation gradients alive at once in a block's backward pass.

    The widest place: the feed-forward network's inner gradients beside the residual's, or other
    ranks' keys and values with their gradients.
    """
    ff, a = block.feed_forward, block.attention
    own = shape.tokens / shape.sequence_cut
    if isinstance(ff, Mlp):
        inner = shape.tokens * ff.intermediate_size / shape.tp * (3 if ff.gated else 2)
    else:
        inner = own * ff.top_k * ff.intermediate_size * (3 if ff.gated else 2)
        inner = inner + own * ff.top_k * hidden_size
    foreign = 2 * shape.foreign_tokens * kv_heads(a, shape.tp) * (a.head_dim + a.v_head_dim)
    return shape.element * (np.maximum(inner, foreign) + own * hidden_size)


def _parameters(job: Job, block: Block) -> tuple[Any, Any, Any, Any]:
    """Dense and expert parameters on a rank, and the trained ones among them."""
    p, plan = block_parameters(block, job.model.hidden_size), job.plan
    dense = p.sharded / np.asarray(plan.tp) + p.replicated
    per_rank = (p.experts_sharded / np.asarray(plan.etp) + p.experts_replicated) / plan.ep
    adapters = _adapters(job, block)
    full = np.asarray(plan.lora_rank) == 0
    return (
        dense + np.where(full, 0.0, adapters),
        per_rank,
        np.where(full, dense, adapters),
        np.where(full, per_rank, 0.0),
    )


def _adapters(job: Job, block: Block) -> Any:
    """LoRA parameters of a block on a rank: rank * (in + out) of every adapted matrix.

    One side of each adapter is split over tp as its matrix is; experts carry none.
    """
    from meshwright.model.architecture import block_matmuls

    plan = job.plan
    total: Any = 0.0
    for matmul in block_matmuls(block, job.model.hidden_size):
        if matmul.group in {"router", "expert"}:
            continue
        wanted = np.where(plan.lora_all_linear, 1.0, float(matmul.group == "attention"))
        cut_in = plan.tp if matmul.shard == "row" else 1
        cut_out = plan.tp if matmul.shard == "column" else 1
        width = matmul.in_features / np.asarray(cut_in) + matmul.out_features / np.asarray(cut_out)
        total = total + wanted * plan.lora_rank * width
    return total


def _shapes(job: Job, block: Block) -> Any:
    """Parameters on a rank of one matrix of each shape: all dense ones and a single expert's."""
    p, plan = block_parameters(block, job.model.hidden_size), job.plan
    ff = block.feed_forward
    one = p.experts_sharded / ff.num_experts if isinstance(ff, Experts) else 0
    return p.sharded / np.asarray(plan.tp) + p.attention_replicated + one / np.asarray(plan.etp)


def _gathered_more(saved: dict[str, Any], shape: Shape, stack: MemoryStack) -> Any:
    """Bytes by which the upper bound's share of gathered inputs exceeds the estimate's."""
    share = max(stack.upper_gathered_inputs - stack.gathered_inputs, 0.0)
    if not share:
        return 0.0
    inputs = saved["attention.input"] + saved.get("mlp.input", 0.0)
    return share * inputs * shape.gathered_cut * (1 - 1 / shape.sequence_cut)
