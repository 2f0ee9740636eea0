"""Memory of one plan from start to checkpoint: every moment, stage by stage, device and host.

The cost model's peak is that of a step in the middle of a run. Runs die at other moments too: while
the model is built (every rank may hold it whole), in the first optimizer step (Adam's moments are
created there, not before) and while a whole state dict is gathered for a checkpoint. How a program
builds and saves is a `Lifecycle`; without one, the habits of the job's software stack are taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.meanings import operands_by_rank
from meshwright.cost.memory.stack import memory_stack
from meshwright.cost.memory.states import frozen_bytes, optimizer_state_bytes
from meshwright.cost.memory.total import HOST_BYTES_PER_RANK, memory
from meshwright.model.count import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.cost.memory.total import Memory
    from meshwright.plan.job import Job

NAMES = (
    *("load", "first_forward", "first_backward", "optimizer_step"),
    *("forward", "backward", "checkpoint"),
)
BUILDS = ("sharded", "device", "host", "first_rank")
MOMENT_BYTES = 8.0  # two fp32 moments a parameter, in a full state dict of the optimizer
_BESIDE = (
    "weights.fp8_copies",
    "workspace",
    "buffers.gradient_copies",
    "buffers.buckets",
    "buffers.weight_gradients",
    "buffers.sequence",
    "buffers.pipeline",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How a program builds the model and saves it.

    `build`: "sharded" (on the meta device or under `zero.Init`: no rank ever holds more than its
    part), "device" (each rank builds its tensor- and pipeline-parallel part whole on the GPU),
    "host" (every rank loads the whole model into host memory first), "first_rank" (one rank of a
    node does, the others build on meta). `moves_whole`: after a build on the host the unsharded
    part is moved to the GPU before it is sharded. `build_bytes` is the width of a weight meanwhile.
    `save`: "sharded", "full" (gathered one parameter at a time to the host of rank 0) or
    "full_on_device" (gathered whole on each GPU). `save_bytes` is the width of a saved weight,
    `saves_optimizer` adds the moments. `lazy_states`: Adam's moments appear in the first step.
    """

    build: str = "device"
    build_bytes: float = 2.0
    moves_whole: bool = False
    save: str = "sharded"
    save_bytes: float = 4.0
    saves_optimizer: bool = True
    save_async: bool = False
    lazy_states: bool = True
    source: str = ""


_LIFECYCLES = {
    "default": Lifecycle(
        source="Megatron-LM core_v0.16 megatron/training/training.py get_model: each rank builds "
        "its tensor- and pipeline-parallel part on the GPU; dist_checkpointing saves shards"
    ),
    "fsdp": Lifecycle(
        build="first_rank",
        build_bytes=4.0,
        save="full",
        saves_optimizer=False,
        source="accelerate 1.14 accelerator.py prepare_model, fsdp_cpu_ram_efficient_loading "
        "(default true): rank 0 loads, the others build on meta; torch 2.13 "
        "distributed/fsdp/_state_dict_utils.py gathers full state dicts",
    ),
    "torchtitan": Lifecycle(
        build="sharded",
        source="torchtitan 0.2 train.py: model on meta, to_empty after sharding; DCP saves shards",
    ),
    "deepspeed": Lifecycle(
        build="host",
        moves_whole=True,
        save="sharded",
        source="deepspeed 0.17 runtime/engine.py _configure_distributed_model: a model not built "
        "under zero.Init is moved to the GPU whole; stage3.py creates moments in the first step",
    ),
    "nanotron": Lifecycle(
        source="huggingface/nanotron@e24d2483 trainer.py: each rank builds its part on the GPU"
    ),
}


def lifecycle_of(stack: str) -> Lifecycle:
    """The habits of a software stack, by the longest prefix of its name, else Megatron's."""
    prefixes = [name for name in _LIFECYCLES if stack.startswith(name)]
    return _LIFECYCLES[max(prefixes, key=len)] if prefixes else _LIFECYCLES["default"]


def lifecycle(job: Job) -> Lifecycle:
    """How the job builds and saves: as its loading settings state, else by habit of its stack."""
    loading, habits = job.workload.loading, lifecycle_of(job.stack)
    changes: dict[str, str | bool] = {}
    if loading.model_build in BUILDS:
        changes["build"] = loading.model_build
    if loading.checkpoint_gathered is not None:
        changes["save"] = "full" if loading.checkpoint_gathered else "sharded"
    if loading.checkpoint_async is not None:
        changes["save_async"] = loading.checkpoint_async
    found = replace(habits, **changes)  # type: ignore[arg-type]
    return found if not np.any(job.plan.base_weight_bits) else _packed(found, job)


def _packed(habits: Lifecycle, job: Job) -> Lifecycle:
    """A quantized base is packed tensor by tensor as it is read, and saved as it is packed."""
    width = float(np.max(frozen_bytes(job)))
    return replace(habits, build_bytes=width, save_bytes=width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Bytes at one moment: allocated on the device by pipeline stage, and on each host.

    `terms` has one mapping a stage, part to bytes, which sum to that stage's `device_bytes`;
    `host_terms` the same for the host (of the node that has rank 0).
    """

    name: str
    device_bytes: tuple[float, ...]
    terms: tuple[Mapping[str, float], ...]
    host_bytes: float
    host_terms: Mapping[str, float]

    @property
    def stage(self) -> int:
        """The fullest stage."""
        return max(range(len(self.device_bytes)), key=self.device_bytes.__getitem__)

    @property
    def fullest_bytes(self) -> float:
        """Bytes of the fullest stage."""
        return self.device_bytes[self.stage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """All moments in order of time, with what lies outside the framework's allocator.

    `steady_bytes` is the peak of a step in the middle of the run, the cost model's `peak_bytes`;
    `outside_bytes` the context and communicators; `reserve_share` the allocator's fragmentation.
    """

    moments: tuple[Moment, ...]
    steady_bytes: float
    outside_bytes: float
    reserve_share: float

    def named(self, name: str) -> Moment:
        """One moment by name."""
        return next(m for m in self.moments if m.name == name)

    @property
    def fullest_host(self) -> Moment:
        """The moment at which a host holds most."""
        return max(self.moments, key=lambda m: m.host_bytes)


def moments(job: Job, habits: Lifecycle | None = None) -> Moments:
    """The moments of one plan (scalars).

    Bytes on the device are what the allocator hands out, as in `memory`; the largest of the passes
    and the step is `memory(job).peak_bytes`.
    """
    stack, habits = memory_stack(job.stack), habits or lifecycle(job)
    whole = memory(job, stack)
    count = int(job.plan.pp)
    ranks = [_parts(whole, rank) for rank in range(count)]
    for parts in ranks:
        parts["read"] = _read_by_update(parts) if stack.shards_masters else parts["gradients"]
    share = 1.0 if stack.shards_masters else _moment_share(job)
    operands = operands_by_rank(job)
    device = [
        _on_device(parts, operands[rank]["parameters"], share, habits)
        for rank, parts in enumerate(ranks)
    ]
    host = _on_host(job, ranks, habits)
    found = tuple(
        Moment(
            name=name,
            device_bytes=tuple(sum(stage[name].values()) for stage in device),
            terms=tuple(_shown(stage[name]) for stage in device),
            host_bytes=sum(host[name].values()),
            host_terms=_shown(host[name]),
        )
        for name in NAMES
    )
    return Moments(
        moments=found,
        steady_bytes=float(whole.peak_bytes),
        outside_bytes=float(whole.device_bytes - whole.reserved_bytes),
        reserve_share=stack.fragmentation,
    )


def _parts(whole: Memory, rank: int) -> dict[str, float]:
    """The cost model's terms of one rank, by part."""
    prefix = f"memory.stage{rank}."
    return {
        name.removeprefix(prefix): float(value)
        for name, value in whole.terms.items()
        if name.startswith(prefix)
    }


def _read_by_update(parts: Mapping[str, float]) -> float:
    """Bytes of the gradients that the update reads, where they were whole and are sharded then."""
    return parts["moment.step"] - parts["moment.load"] - parts["transient.optimizer"]


def _on_device(
    parts: Mapping[str, float], held: float, moment_share: float, habits: Lifecycle
) -> dict[str, dict[str, float]]:
    """Terms of one stage at every moment.

    `held` are its parameters before sharding, `moment_share` that of the moments in the optimizer's
    bytes.
    """
    moments_bytes = parts["optimizer"] * moment_share
    states = {
        "weights": parts["weights"],
        "master weights": parts["optimizer"] - moments_bytes,
        "optimizer moments": moments_bytes,
        "buffers": sum(parts[name] for name in _BESIDE),
    }
    forward, backward = _forward(parts, states), _backward(parts, states)
    not_yet = {"optimizer moments": 0.0} if habits.lazy_states else {}
    return {
        "load": _built(parts, states, held, habits),
        "first_forward": forward | not_yet,
        "first_backward": backward | not_yet,
        "forward": forward,
        "backward": backward,
        "optimizer_step": {
            **states,
            "gradients": parts["read"],
            "step temporaries": parts["transient.optimizer"],
        },
        "checkpoint": _saved(parts, states, held, habits),
    }


def _moment_share(job: Job) -> float:
    """Moments over all optimizer bytes of a parameter."""
    total = float(optimizer_state_bytes(job))
    return (total - (4.0 if job.plan.master_weights else 0.0)) / total if total else 0.0


def _built(
    parts: Mapping[str, float], states: Mapping[str, float], held: float, habits: Lifecycle
) -> dict[str, float]:
    """While the model is built: weights as they stay, and a whole copy where one is made."""
    early = {n: v for n, v in states.items() if n != "buffers"}
    if habits.lazy_states:
        early["optimizer moments"] = 0.0
    on_device = habits.build == "device" or (habits.moves_whole and habits.build != "sharded")
    whole = max(held * habits.build_bytes - parts["weights"], 0.0) if on_device else 0.0
    return {**early, "whole model before sharding": whole}


def _forward(parts: Mapping[str, float], states: Mapping[str, float]) -> dict[str, float]:
    """At the fuller of the end of the forward passes and the loss."""
    loss = parts["moment.loss"] > parts["moment.forward"]
    total = max(parts["moment.loss"], parts["moment.forward"])
    peak = max(parts["logits"], parts["transient.head_backward"]) if loss else 0.0
    gathered = parts["transient.gathered_model"] + (
        parts["transient.gathered_head"]
        if loss
        else parts["transient.gathered_layer"] + parts["buffers.gather"]
    )
    named = {**states, "logits and loss": peak, "gathered weights": gathered}
    return _completed(named, parts, total)


def _backward(parts: Mapping[str, float], states: Mapping[str, float]) -> dict[str, float]:
    """At the fuller of the start and the end of the backward passes."""
    starts = parts["moment.backward"] >= parts["moment.accumulated"]
    total = max(parts["moment.backward"], parts["moment.accumulated"])
    computing = parts["transient.recomputed"] + parts["transient.gradients"]
    if starts:
        named = {
            **states,
            "gathered weights": parts["transient.gathered_layer"]
            + parts["transient.gathered_model"],
            "recomputed and activation gradients": max(computing, parts["buffers.reduce"]),
        }
        return _completed(named, parts, total)
    named = {**states, "gradient reduction": parts["buffers.reduce_last"]}
    return _completed(named, parts, total)


def _completed(
    named: dict[str, float], parts: Mapping[str, float], total: float
) -> dict[str, float]:
    """What is left of a moment's total: the gradients that exist by then, and activations."""
    left = max(total - sum(named.values()), 0.0)
    gradients = min(parts["gradients"], max(left - _least_activations(parts), 0.0))
    return {**named, "gradients": gradients, "activations": left - gradients}


def _least_activations(parts: Mapping[str, float]) -> float:
    """Activations of all micro-batches in flight but one, which every moment of a pass has."""
    flight = max(parts["activations.in_flight"], 1e-9)
    return parts["activations"] * max(1 - 1 / flight, 0.0)


def _saved(
    parts: Mapping[str, float], states: Mapping[str, float], held: float, habits: Lifecycle
) -> dict[str, float]:
    """While a checkpoint is saved: the states between two steps, and what is gathered for it."""
    gathered = 0.0
    if habits.save == "full_on_device":
        gathered = held * habits.save_bytes
    elif habits.save == "full":
        largest = max(parts["transient.gathered_layer"], parts["transient.gathered_head"])
        gathered = largest * habits.save_bytes / 2.0  # gathered in 16 bits by the passes
    return {**states, "gradients": parts["read"], "gathered state dict": gathered}


def _on_host(
    job: Job, ranks: list[dict[str, float]], habits: Lifecycle
) -> dict[str, dict[str, float]]:
    """Terms of the node of rank 0 at every moment."""
    per_node = job.cluster.gpus_per_node
    processes = HOST_BYTES_PER_RANK * per_node
    offloaded = max(parts["host"] for parts in ranks) * per_node
    whole = float(parameters(job.model).total)
    copies = {"host": per_node, "first_rank": 1}.get(habits.build, 0)
    step = {"processes": processes, "offloaded states": offloaded}
    staged = 0.0
    if habits.save == "full":
        moments_bytes = MOMENT_BYTES if habits.saves_optimizer else 0.0
        staged = whole * (habits.save_bytes + moments_bytes)
    elif habits.save_async:
        states = max(parts["weights"] + parts["optimizer"] for parts in ranks)
        staged = states * per_node
    loaded = copies * whole * habits.build_bytes
    return {
        **dict.fromkeys(NAMES, step),
        "load": {"processes": processes, "copies of the model": loaded},
        "checkpoint": {**step, "checkpoint on its way": staged},
    }


def _shown(terms: Mapping[str, float]) -> dict[str, float]:
    """Terms that are there, largest first."""
    present = {name: value for name, value in terms.items() if value}
    return dict(sorted(present.items(), key=lambda item: -item[1]))
