"""One rank of a plan runs its training step in this process, and its memory and traffic are read.

The step is the one that training runs: `assemble`, the engine, clipping, the optimizer. Two steps
are run and the second is read, when the optimizer's states and FSDP's buffers exist.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from meshwright.base.noun import dataclass
from meshwright.plan.degrees import degrees_of
from meshwright.train import optimizer as optimizers
from meshwright.train.adapters.fake import fake_tensors, fake_world
from meshwright.train.adapters.gathered import gathered_parameters
from meshwright.train.assemble import assemble
from meshwright.train.clip import clip, squares
from meshwright.train.engine import Engine
from meshwright.train.measure.marks import BACKWARD, FORWARD, UPDATE, Marks
from meshwright.train.measure.storage import Category, StorageTracker
from meshwright.train.measure.traffic import Flow, Lane, TrafficTracker
from meshwright.train.mesh import Mesh
from meshwright.train.model.share import part_of
from meshwright.train.settings import Recipe
from meshwright.train.step import agreed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from meshwright.train.assemble import Blueprint
    from meshwright.train.measure.marks import Stretch
    from meshwright.train.stage import Place

LABEL = 1  # any token id


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one rank's step took.

    `held` is the most bytes of each category at once: of gradients, what waits for a reduction or
    what the update reads.
    `peaks` and `parts` have, for every stretch of the step, its peak and what lay in memory then.
    """

    held: Mapping[Category, float]
    peaks: Mapping[Stretch, float]
    parts: Mapping[Stretch, Mapping[Category, float]]
    flows: Mapping[Lane, Flow]
    cpu_s: float = 0.0

    @property
    def fullest(self) -> Stretch:
        """The stretch with the highest peak."""
        return max(self.peaks, key=lambda stretch: self.peaks[stretch])

    @property
    def peak_bytes(self) -> float:
        """The most bytes that are alive at once."""
        return self.peaks[self.fullest]


def read_rank(
    blueprint: Blueprint,
    *,
    rank: int,
    microbatches: int,
    places: Sequence[Place] | None = None,
    recipe: Recipe | None = None,
) -> Reading:
    """Memory and traffic of global rank `rank` of the blueprint's plan, on fake tensors.

    `places` says which layers its stages hold, where that is not what the plan says.
    """
    start_s = time.process_time()
    world_size = degrees_of(blueprint.plan).world_size
    with fake_world(world_size=world_size, rank=rank):
        mesh = Mesh(blueprint.plan, device_type="cpu")
        mesh.batch, mesh.expert, mesh.sequence, mesh.stage  # noqa: B018 - made of real tensors
        with fake_tensors():
            engine = _engine(blueprint, mesh, places)
            reading = read_steps(engine, microbatches=microbatches, recipe=recipe or Recipe())
    spent_s = time.process_time() - start_s
    return Reading(
        held=reading.held,
        peaks=reading.peaks,
        parts=reading.parts,
        flows=reading.flows,
        cpu_s=spent_s,
    )


def _engine(blueprint: Blueprint, mesh: Mesh, places: Sequence[Place] | None) -> Engine:
    """The engine of this rank, its parameters without values."""
    device = torch.device(mesh.device_type)
    stages = assemble(blueprint, mesh, places=places)
    for stage in stages:
        _give_memory(stage, device)
    return Engine(stages, mesh, blueprint, device=device)


def _give_memory(stage: nn.Module, device: torch.device) -> None:
    """Takes parameters and buffers off the meta device, without values.

    FSDP2 has to know of it, so that its modules are asked. Where it is not there, fake tensors
    cannot change places, which `to_empty` would have them do: they are replaced, one that is in
    two modules by one.
    """
    if isinstance(stage, FSDPModule):
        stage.to_empty(device=device)
        return
    new: dict[int, Any] = {}
    for module in stage.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None and id(tensor) not in new:
                    new[id(tensor)] = _empty(tensor, device)
                held[name] = None if tensor is None else new[id(tensor)]


def _empty(tensor: Any, device: torch.device) -> Any:
    """A tensor like this one on a device; of a DTensor, like this rank's part."""
    empty: Any = torch.empty_like(part_of(tensor), device=device)
    if isinstance(tensor, DTensor):
        empty = DTensor.from_local(
            empty,
            tensor.device_mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def read_steps(engine: Engine, *, microbatches: int, recipe: Recipe) -> Reading:
    """Two steps of an engine, on whatever tensors it has; the second is read."""
    updates = optimizers.build(engine, recipe)
    _update_together(updates)
    storage = StorageTracker()
    for stage in engine.stages:
        storage.see_all([*stage.parameters(), *stage.buffers()], Category.WEIGHTS)
    marks = Marks(storage, TrafficTracker())
    with storage:
        alone = engine.mesh.size("pp") == 1  # a pipeline's buffers are made for its micro-batches
        _step(engine, updates, 1 if alone else microbatches, marks=marks, recipe=recipe)
        _name_resident(engine, updates, storage)
        traffic = TrafficTracker(lambda call, arguments: marks.communicated(call, arguments))
        marks = Marks(storage, traffic)
        since = len(storage.events)
        storage.cut()
        marks.watch(engine.stages)
        with traffic:
            gradients = _step(engine, updates, microbatches, marks=marks, recipe=recipe)
        marks.release()
    held = {c: float(storage.most(c, since=since)) for c in Category}
    held[Category.GRADIENTS] = max(held[Category.GRADIENTS], float(gradients))
    held[Category.ACTIVATIONS] = float(marks.kept)
    order = {stretch: peak.event for stretch, peak in marks.peaks.items()}
    parts = storage.compositions(order.values())
    return Reading(
        held=held,
        peaks={stretch: float(peak.bytes) for stretch, peak in marks.peaks.items()},
        parts={stretch: parts[event] for stretch, event in order.items()},
        flows=dict(traffic.flows),
    )


def _update_together(updates: Any) -> None:
    """Has the optimizer update many parameters in one operation, as torch does on a GPU alone.

    It refuses to where some are DTensors and some are not.
    """
    for part in updates.parts:
        for group in part.param_groups:
            if "foreach" in group and len({type(p) for p in group["params"]}) == 1:
                group["foreach"] = True


def _step(engine: Engine, updates: Any, microbatches: int, *, marks: Marks, recipe: Recipe) -> int:
    """A training step whose numbers nobody reads, as `step.train_step`; bytes of gradients."""
    marks.traffic.phase = FORWARD
    batches = [_batch(engine) for _ in range(microbatches)]
    loss = engine.forward_backward(batches, tokens=1.0)
    marks.traffic.phase = UPDATE
    marks.mark(BACKWARD, "last")
    gradients = [p.grad for _, p in engine.named_parameters() if p.grad is not None]
    marks.storage.see_all(gradients, Category.GRADIENTS)
    taken = marks.storage.alive(Category.GRADIENTS)
    del gradients
    agreed(engine, loss, labels=torch.zeros(()), square=squares(engine))
    clip(engine, 2 * recipe.clip_norm, limit=recipe.clip_norm)
    updates.step()
    updates.zero_grad()
    marks.mark(UPDATE, "step")
    return taken


def _batch(engine: Engine) -> dict[str, Tensor]:
    """A micro-batch of this rank's slice."""
    length = engine.stages[0].slices.positions.numel()
    shape = (int(engine.plan.micro_batch_size), length)
    return {"tokens": torch.full(shape, LABEL), "labels": torch.full(shape, LABEL)}


def _name_resident(engine: Engine, updates: Any, storage: StorageTracker) -> None:
    """Optimizer states and FSDP's buffers, which the first step has made."""
    for part in updates.parts:
        for state in part.state.values():
            storage.see_all(state.values(), Category.OPTIMIZER)
    for stage in engine.stages:
        storage.see_all(gathered_parameters(stage), Category.COMMUNICATION)
