"""Moments of a step of a stack whose sharded parameters are the master weights (`fsdp2`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.memory.fsdp2 import habits_of, waiting_bytes
from meshwright.plan.job import num_microbatches, shard_group
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import chunks_per_rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.cost.memory.handed import Handed
    from meshwright.cost.memory.layer import LayerBytes
    from meshwright.cost.memory.stage import Kept, Parameters
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers

PASSING = ("update_gradients", "head_gradient", "unit_gradients", "stays", "waits")


def whole_gradients(
    job: Job, states: Mapping[str, Any], whole: Any, *, first_reduced: Any
) -> dict[str, Any]:
    """Gradients at their most, those that a later micro-batch finds, those that the update reads.

    `whole` are the bytes that wait for a later reduction, 0 where none do, and `first_reduced`
    those of the first reduced unit's shard, which is there before its whole gradient goes (a
    pipeline begins with the embedding or the head; torch's `foreach_reduce` holds on to the last
    gradient of a unit where it is scattered).
    """
    own = states["gradients"]
    scattered = (whole > 0) & (np.asarray(job.plan.pp) > 1)
    scattered = scattered & (np.asarray(job.plan.zero_stage) > 0) & (shard_group(job.plan) > 1)
    both = np.where(scattered, whole + first_reduced, whole)
    first = (np.asarray(job.plan.schedule) == int(Schedule.GPIPE)) & (np.asarray(job.plan.pp) > 1)
    later = (np.asarray(num_microbatches(job)) > 1) & ~first
    most = np.maximum(own, whole)
    return {
        "gradients": np.maximum(most, both),
        "resident_gradients": np.where(later, most, 0.0),
        "update_gradients": own,
    }


def units(
    job: Job,
    layers: LayerBytes,
    stage: StageLayers,
    parameters: Parameters,
    *,
    between: Handed,
) -> dict[str, Any]:
    """Bytes of FSDP2's units: what is gathered, and gradients before they are reduced or added.

    Norm and head are the root unit, which is reduced at the end of the backward pass. A weight
    gradient that is made apart lies in the products' format until the next input gradient adds it.
    """
    habits, plan, ends = habits_of(job), job.plan, layers.ends
    full = np.where(np.asarray(plan.lora_rank) == 0, 1.0, 0.0)
    head, embedding = stage.head * (ends.head + ends.tied), stage.embedding * ends.embedding
    compute = np.where(habits.wrapped, habits.compute, 0.0)
    rest = (parameters.all[0] - head + parameters.all[1]) * compute
    mixed = waiting_bytes(habits) > habits.compute
    trained = (parameters.trained[0] - head - embedding + parameters.trained[1]) * compute
    apart = np.where(mixed, trained * between.split_share, 0.0)
    blocks = [(b.trained_dense + b.trained_expert) * compute for b in layers.blocks]
    alone, piped = np.asarray(num_microbatches(job)) == 1, np.asarray(plan.pp) > 1
    unreduced = np.where(habits.wrapped, habits.compute, np.where(alone, habits.kept, 0.0))
    layer = _greatest([(b.dense + b.expert) * compute for b in layers.blocks])
    return {
        "stays": np.where(habits.keeps, rest, 0.0),
        "waits": np.maximum(between.waiting, between.waiting - between.waiting_one + apart),
        "gathered_model": np.where(habits.keeps | piped, rest, 0.0),
        "gathered_layer": np.where(habits.keeps, 0.0, 2 * layer),
        "head_gradient": head * unreduced * full,
        "unit_gradients": np.maximum(_greatest(blocks), embedding * compute * full),
    }


def _greatest(values: list[Any]) -> Any:
    """Largest of several values, elementwise."""
    largest = values[0]
    for value in values[1:]:
        largest = np.maximum(largest, value)
    return largest


def fsdp2_moments(
    job: Job,
    states: Mapping[str, Any],
    kept: Kept,
    transients: Mapping[str, Any],
    *,
    flight: Any,
    activations: Any,
) -> dict[str, Any]:
    """Totals at the moments of a step that can be the fullest, as `stage._moments`."""
    habits = habits_of(job)
    piped = np.asarray(job.plan.pp) > 1
    before = states["weights"] + states["optimizer"] + states["fp8_copies"] + states["workspace"]
    before = before + transients["beside"]
    head_flight = np.where(np.asarray(job.plan.schedule) == int(Schedule.GPIPE), flight, 1.0)
    head = kept.head * head_flight + kept.waiting_loss * (head_flight - 1)
    held, waits = activations + head, transients["waits"]
    stays = transients["stays"]
    layer = transients["gathered_layer"]
    resident = before + states["resident_gradients"]
    again = piped | (np.asarray(num_microbatches(job)) > 1)
    root = transients["gathered_head"]  # stays from its first pass to the end of the backward pass
    root_gradient = transients["head_gradient"]
    buffer = np.where(habits.keeps, _unless_waiting(transients, states, piped), 0.0)
    buffer = np.where(habits.keeps, buffer, transients["gather_buffer"])
    computing = kept.made_again + transients["activation_gradients"]
    reducing = np.where(piped, 0.0, transients["reduce_buffer"])
    return {
        "load": before,
        "forward": resident + stays + layer + np.where(again, root, 0.0) + held + buffer + waits,
        "loss": (resident + stays + root + waits)
        + held
        + np.maximum(kept.loss_peak, transients["head_backward"]),
        "backward": (resident + stays + layer + root + root_gradient + waits)
        + (held - kept.head)
        + np.maximum(computing, reducing),
        "accumulated": before
        + states["gradients"]
        + root
        + root_gradient
        + _backward_ends(transients, habits.keeps, piped=piped, again=again, computing=computing)
        + activations * _left(job, flight),
        "step": before + states["update_gradients"] + transients["optimizer_temporaries"],
    }


def _unless_waiting(transients: Mapping[str, Any], states: Mapping[str, Any], piped: Any) -> Any:
    """The gather buffer of the first pass, which gradients outgrow in the next ones."""
    left = np.maximum(transients["gather_buffer"] - states["resident_gradients"], 0.0)
    return np.where(piped, 0.0, left)


def _left(job: Job, flight: Any) -> Any:
    """The share of activations that is left as the first backward pass of a chunk ends."""
    chunks = np.maximum(chunks_per_rank(job.plan), 1)
    return np.maximum(1 - 1 / np.maximum(flight * chunks, 1e-9), 0.0)


def _backward_ends(
    transients: Mapping[str, Any], keeps: Any, *, piped: Any, again: Any, computing: Any
) -> Any:
    """Gathered parameters and buffers as a backward pass ends.

    In a pipeline all are gathered by then, while the last block's gradients are computed.
    """
    whole, own = transients["gathered_model"], transients["unit_gradients"]
    held = np.where(keeps & again, whole + own, 0.0)
    ends = whole + np.where(keeps, own, np.maximum(own, computing))
    return np.where(piped, ends, np.maximum(transients["reduce_last"], held))
