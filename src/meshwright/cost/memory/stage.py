"""Memory of one pipeline rank: states, activations in flight, transients, moment by moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.fsdp2_moments import PASSING, fsdp2_moments, units, whole_gradients
from meshwright.cost.memory.handed import Handed, handed
from meshwright.cost.memory.stack import GIB
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Recompute, Schedule
from meshwright.plan.stages import is_v_shaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cost.memory.layer import LayerBytes
    from meshwright.cost.memory.stack import MemoryStack
    from meshwright.cost.memory.states import Rates
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers


STEP_PARAMETERS = 1e9  # of a ZeRO-3 shard updated at once: DeepSpeed's default sub_group_size
VOCABULARY_DELAY = 1.5  # micro-batches a chunk: 1 or 2 barriers, arXiv 2411.05288, section 4.4
NOTHING_HANDED = Handed(buffers=0.0, kept=0.0, waiting=0.0)
VOCABULARY_BUFFERS = 25  # hidden-state tensors that its passes hold: inputs, gradients in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on one pipeline rank; scalars or columns.

    The first group is resident; `activations` is what all micro-batches in flight keep. Moments are
    totals: `load` before the first step, `forward` at the end of the warm-up's forward passes,
    `loss` at the fullest moment of loss and head, `backward` as the backward pass starts,
    `accumulated` as it ends, `step` in the optimizer step.
    """

    weights: Any
    gradients: Any
    optimizer: Any
    fp8_copies: Any
    workspace: Any
    activations: Any
    in_flight: Any
    gathered_more: Any
    logits: Any
    gathered_layer: Any
    gathered_model: Any
    gathered_head: Any
    gather_buffer: Any
    reduce_buffer: Any
    reduce_last: Any
    grad_copies: Any
    buckets: Any
    weight_gradients: Any
    sequence_buffers: Any
    pipeline_buffers: Any
    waiting_weights: Any
    head_backward: Any
    recomputed: Any
    activation_gradients: Any
    optimizer_temporaries: Any
    hosted: Any
    load: Any
    forward: Any
    loss: Any
    backward: Any
    accumulated: Any
    step: Any

    @property
    def peak(self) -> Any:
        """The fullest moment."""
        later = np.maximum(np.maximum(self.backward, self.accumulated), self.step)
        return np.maximum(np.maximum(self.forward, self.loss), later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters on a rank before data-parallel sharding, as (dense, expert) pairs."""

    all: tuple[Any, Any]
    trained: tuple[Any, Any]
    blocks: Any  # of the blocks alone, dense and expert together

    @property
    def frozen(self) -> tuple[Any, Any]:
        """Those that do not train, dense and expert."""
        return self.all[0] - self.trained[0], self.all[1] - self.trained[1]

    def weighed(self, rate: tuple[Any, Any]) -> Any:
        """Bytes of the trained parameters at a rate per parameter."""
        return self.trained[0] * rate[0] + self.trained[1] * rate[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes per micro-batch on a rank: what blocks and head keep, and what is made again."""

    blocks: Any
    head: Any
    waiting_loss: Any
    loss_peak: Any
    made_again: Any


def stage_memory_of(
    job: Job,
    layers: LayerBytes,
    rank: Any,
    *,
    stage: StageLayers,
    rates: Rates,
    stack: MemoryStack,
) -> StageMemory:
    """Memory of pipeline rank `rank` (a number or a column of ranks), which holds `stage`."""
    parameters = rank_parameters(job, layers, stage)
    between = handed(job, layers, stage, rank) if stack.pipeline_buffers else NOTHING_HANDED
    kept = kept_bytes(job, layers, stage, beside=between.kept)
    states = _states(job, parameters, rates, stack)
    if stack.whole_embedding_gradient:
        whole = stage.embedding * layers.ends.whole_gradient * job.plan.grad_bytes
        own = np.asarray(job.plan.zero_stage) < 3
        states["gradients"] = states["gradients"] + np.where(own, whole, 0.0)
    flight = _in_flight(job, rank)
    transients = _transients(job, layers, stage, parameters, rates=rates, stack=stack)
    transients |= {"pipeline_buffers": between.buffers, "waiting_weights": between.waiting}
    transients["beside"] = transients["beside"] + between.buffers
    on_device = 1.0 - np.asarray(job.plan.offload_activations)
    activations = flight * kept.blocks * on_device
    passes = _moments
    if stack.shards_masters:
        passes = fsdp2_moments
        ends = (stage.head * layers.ends.head, stage.embedding * layers.ends.embedding)
        states |= whole_gradients(
            job,
            states,
            parameters.weighed(rates.waiting),
            first_reduced=greatest(ends) * rates.gradient[0],
        )
        transients |= units(job, layers, stage, parameters, between=between)
    moments = passes(job, states, kept, transients, flight=flight, activations=activations)
    offloaded = flight * kept.blocks - activations
    hosted = parameters.weighed(rates.hosted) + offloaded
    hosted = hosted + parameters.weighed(rates.hosted_weight)
    hosted = hosted + _pair(*parameters.frozen, rates.hosted_frozen)
    for name in (*PASSING, "resident_gradients", "beside"):
        states.pop(name, None), transients.pop(name, None)
    return StageMemory(
        **states,
        **transients,
        **moments,
        activations=activations + kept.head,
        in_flight=flight,
        gathered_more=_gathered_more(layers, stage, flight, stack),
        logits=kept.loss_peak,
        recomputed=kept.made_again,
        hosted=hosted,
    )


def rank_parameters(job: Job, layers: LayerBytes, stage: StageLayers) -> Parameters:
    """Parameters of the rank's blocks and ends."""
    plan, ends = job.plan, layers.ends
    first, last = stage.embedding * 1.0, stage.head * 1.0
    tied = last * (1 - first) * ends.tied
    outside = first * ends.embedding + last * ends.head + tied + stage.mtp * ends.mtp
    if np.any(plan.vocab_over_pipeline):
        spread = (ends.embedding + ends.head + ends.tied * (np.asarray(plan.pp) > 1)) / plan.pp
        outside = np.where(plan.vocab_over_pipeline, spread, outside)
    dense = _total([b.dense for b in layers.blocks], stage.counts)
    expert = _total([b.expert for b in layers.blocks], stage.counts)
    if not np.any(plan.lora_rank):
        every = (dense + outside, expert)
        return Parameters(all=every, trained=every, blocks=dense + expert)
    full = np.asarray(plan.lora_rank) == 0
    trained = (
        _total([b.trained_dense for b in layers.blocks], stage.counts)
        + np.where(full, outside, 0.0),
        _total([b.trained_expert for b in layers.blocks], stage.counts),
    )
    return Parameters(all=(dense + outside, expert), trained=trained, blocks=dense + expert)


def kept_bytes(job: Job, layers: LayerBytes, stage: StageLayers, *, beside: Any = 0.0) -> Kept:
    """What one micro-batch keeps on the rank, recompute applied, and `beside` with the blocks."""
    plan, ends = job.plan, layers.ends
    blocks, made_again = _recomputed(job, layers, stage)
    head = stage.head * ends.head_kept
    peak, waiting = stage.head * ends.loss_peak, stage.head * ends.loss_kept
    if layers.ends.mtp is not None and job.model.mtp:
        peak = peak + stage.mtp * ends.loss_kept
        head = head + stage.mtp * ends.head_kept * 2
    if np.any(plan.vocab_over_pipeline):
        spread = np.asarray(plan.vocab_over_pipeline)
        peak = np.where(spread, ends.loss_peak / plan.pp, peak)
        waiting = np.where(spread, ends.loss_kept / plan.pp, waiting)
        wide = VOCABULARY_BUFFERS * ends.hand_over
        head = np.where(spread, ends.head_kept + wide, head)
        blocks = blocks + np.where(spread, ends.hand_over, 0.0)
    return Kept(
        blocks=blocks + stage.embedding * ends.embedding_kept + beside,
        head=head,
        waiting_loss=waiting,
        loss_peak=peak,
        made_again=made_again,
    )


def _recomputed(job: Job, layers: LayerBytes, stage: StageLayers) -> tuple[Any, Any]:
    """(bytes that the rank's blocks keep, bytes that one backward pass makes again at once).

    Full recompute keeps the input of `recompute_layers` blocks a rank (0 = all) and everything of
    the rest; the uniform method keeps one input in `recompute_layers` blocks and makes that many
    blocks again at once.
    """
    plan = job.plan
    kept = _total([b.kept for b in layers.blocks], stage.counts)
    made_again = greatest([b.made_again for b in layers.blocks])
    mode = np.asarray(plan.recompute)
    full = mode == int(Recompute.FULL)
    if not np.any(full):
        return kept, made_again
    checkpoints = _total([b.checkpoint for b in layers.blocks], stage.counts)
    depth = np.maximum(stage.layers, 1)
    asked = np.asarray(plan.recompute_layers)
    covered = np.where(asked > 0, np.minimum(asked, depth), depth)
    uniform = np.asarray(plan.recompute_uniform) & (asked > 0)
    by_block = kept + (checkpoints - kept) * (covered / depth)
    at_once = np.where(uniform, covered, 1)
    blocks = np.where(full, np.where(uniform, checkpoints / at_once, by_block), kept)
    again = greatest([b.whole - b.checkpoint for b in layers.blocks]) * at_once
    return blocks, np.where(full, again, made_again)


def _states(job: Job, p: Parameters, rates: Rates, stack: MemoryStack) -> dict[str, Any]:
    """Resident bytes: weights, gradients, optimizer, 8-bit copies, workspace."""
    weights = p.weighed(rates.weight) + _pair(*p.frozen, rates.frozen)
    gradients = p.weighed(rates.gradient)
    # GPipe's forward passes are all over when its first gradient is made
    ahead = (np.asarray(job.plan.schedule) == int(Schedule.GPIPE)) & (np.asarray(job.plan.pp) > 1)
    accumulates = (num_microbatches(job) > 1) & ~ahead
    resident = gradients if stack.persistent_grads else np.where(accumulates, gradients, 0.0)
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": p.weighed(rates.optimizer),
        "fp8_copies": p.blocks * rates.fp8_copy,
        "workspace": stack.workspace_gib * GIB,
        "resident_gradients": resident,
    }


def _transients(
    job: Job,
    layers: LayerBytes,
    stage: StageLayers,
    p: Parameters,
    *,
    rates: Rates,
    stack: MemoryStack,
) -> dict[str, Any]:
    """Buffers that live for part of a step: gathered weights, reductions, gradients."""
    plan, ends = job.plan, layers.ends
    gathered = greatest([_pair(b.dense, b.expert, rates.gathered) for b in layers.blocks])
    trained = [(b.trained_dense, b.trained_expert) for b in layers.blocks]
    reduced = greatest([_pair(*pair, rates.reduced) for pair in trained])
    full = np.where(np.asarray(plan.lora_rank) == 0, 1.0, 0.0)  # ends and matrices train
    head = stage.head * (ends.head + ends.tied)
    embedding = stage.embedding * ends.embedding
    keeps = np.where(plan.reshard_after_forward, 0.0, 1.0)
    blocks = _pair(p.all[0] - head - embedding, p.all[1], rates.gathered) * keeps
    whole = stage.embedding * ends.whole_gradient * rates.gathered[0]
    prefetched = gathered * stack.prefetch_layers
    layer = (gathered + prefetched) * (1 - keeps)
    head_gathered, head_reduced = head * rates.gathered[0], head * rates.reduced[0] * full
    return {
        "gathered_layer": layer,
        "gathered_model": blocks,
        "gathered_head": head_gathered,
        "gather_buffer": np.maximum(gathered, 2 * head_gathered - layer),
        "reduce_buffer": np.maximum(reduced, head_reduced - prefetched * (1 - keeps)),
        "reduce_last": np.maximum(
            gathered + prefetched + reduced, embedding * rates.reduced[0] * full + whole
        ),
        **_beside(job, layers, p, rates=rates, stack=stack),
        "head_backward": stage.head * ends.logit_gradients
        + head * stack.weight_gradient_bytes * full,
        "activation_gradients": greatest([b.gradients for b in layers.blocks]),
        "optimizer_temporaries": p.weighed(rates.moment) * stack.optimizer_temp_copies
        + _step_gradients(job, p, rates, stack),
    }


def _step_gradients(job: Job, p: Parameters, rates: Rates, stack: MemoryStack) -> Any:
    """Copies of gradients that the optimizer step makes on the device."""
    if not stack.step_gradient_bytes:
        return 0.0
    shard = p.weighed(rates.shard) * (1.0 - np.asarray(job.plan.offload_optimizer))
    at_once = np.where(np.asarray(job.plan.zero_stage) >= 3, STEP_PARAMETERS, np.inf)
    return np.minimum(shard, at_once) * stack.step_gradient_bytes


def _beside(
    job: Job, layers: LayerBytes, p: Parameters, *, rates: Rates, stack: MemoryStack
) -> dict[str, Any]:
    """Gradient tensors and gather buffers that a stack keeps; plain zeros where it keeps none."""
    plan = job.plan
    copies: Any = 0.0
    buckets: Any = 0.0
    shapes: Any = 0.0
    trained = p.trained[0] + p.trained[1]
    if stack.grad_copy_bytes:
        wider = np.asarray(plan.grad_bytes) > plan.param_bytes
        copies = np.where(wider, trained * stack.grad_copy_bytes, 0.0)
    if stack.shard_gradient_bytes:
        copies = copies + p.weighed(rates.shard) * stack.shard_gradient_bytes
    if stack.ddp_bucket_bytes:
        replicated = (np.asarray(plan.zero_stage) == 0) & (np.asarray(plan.dp) > 1)
        buckets = np.where(replicated, trained * stack.ddp_bucket_bytes, 0.0)
    if stack.weight_gradient_bytes:
        shapes = greatest([b.shapes for b in layers.blocks]) * stack.weight_gradient_bytes
        shapes = np.where(np.asarray(plan.lora_rank) == 0, shapes, 0.0)
    return {
        "grad_copies": copies,
        "buckets": buckets,
        "weight_gradients": shapes,
        "sequence_buffers": layers.ends.sequence_buffers,
        "beside": (copies + buckets + shapes) + layers.ends.sequence_buffers,
    }


def _moments(
    job: Job,
    states: dict[str, Any],
    kept: Kept,
    transients: dict[str, Any],
    *,
    flight: Any,
    activations: Any,
) -> dict[str, Any]:
    """Totals at the moments of a step that can be the fullest."""
    before = states["weights"] + states["optimizer"] + states["fp8_copies"] + states["workspace"]
    before = before + transients["beside"]
    gpipe = np.asarray(job.plan.schedule) == int(Schedule.GPIPE)
    head_flight = np.where(gpipe, flight, 1.0)
    head = kept.head * head_flight + kept.waiting_loss * (head_flight - 1)
    resident = before + states["resident_gradients"] + transients["gathered_model"]
    with_layer = resident + transients["gathered_layer"]
    held = activations + head
    after_one = activations * np.maximum(1 - 1 / np.maximum(flight, 1e-9), 0.0)
    done = before + states["gradients"]
    computing = kept.made_again + transients["activation_gradients"]
    return {
        "load": before,
        "forward": with_layer + held + transients["gather_buffer"],
        "loss": (resident + transients["gathered_head"])
        + held
        + np.maximum(kept.loss_peak, transients["head_backward"]),
        "backward": with_layer
        + (held - kept.head)
        + np.maximum(computing, transients["reduce_buffer"]),
        "accumulated": (done + transients["reduce_last"]) + after_one,
        "step": done + transients["optimizer_temporaries"],
    }


def _gathered_more(layers: LayerBytes, stage: StageLayers, flight: Any, stack: MemoryStack) -> Any:
    """What the upper bound adds for gathered inputs, 0 where the stack is sure of them."""
    if stack.upper_gathered_inputs <= stack.gathered_inputs:
        return 0.0
    return flight * _total([b.gathered_more for b in layers.blocks], stage.counts)


def _in_flight(job: Job, rank: Any) -> Any:
    """Micro-batches whose activations the rank holds at once."""
    from meshwright.cost.schedules import saved_microbatches

    plan = job.plan
    held = saved_microbatches(
        plan.schedule,
        pp=plan.pp,
        vpp=plan.vpp,
        num_microbatches=num_microbatches(job),
        stage=rank,
    )
    held = np.where(np.asarray(plan.schedule) == int(Schedule.DUALPIPE), held / 2, held)
    if not np.any(plan.vocab_over_pipeline):
        return held
    chunks = np.where(is_v_shaped(plan.schedule), 2, 1)
    delayed = np.where(plan.vocab_interlaced, 0.5 * np.asarray(plan.pp), VOCABULARY_DELAY * chunks)
    return held + np.where(plan.vocab_over_pipeline, delayed, 0.0)


def _pair(dense: Any, expert: Any, rate: tuple[Any, Any]) -> Any:
    """Bytes of a layer's dense and expert parameters at a rate each."""
    return dense * rate[0] + expert * rate[1]


def _total(values: Sequence[Any], counts: Sequence[Any]) -> Any:
    """Sum of value times count over the kinds of block."""
    total = values[0] * counts[0]
    for value, count in zip(values[1:], counts[1:], strict=True):
        total = total + value * count
    return total


def greatest(values: Sequence[Any]) -> Any:
    """Largest of several values, elementwise."""
    largest = values[0]
    for value in values[1:]:
        largest = np.maximum(largest, value)
    return largest
