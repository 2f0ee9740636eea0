"""A plan on its ranks, step by step beside the reference that the parent computed."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.noun import dataclass
from meshwright.model.config import model_from_config
from meshwright.plan.plan import Optimizer
from meshwright.train.assemble import Blueprint, cut
from meshwright.train.building import build as build_engine
from meshwright.train.building import slices_for
from meshwright.train.clip import clip, gradient_norm
from meshwright.train.model.share import boxes_of, part_of
from meshwright.train.numbers import uniform
from meshwright.train.optimizer import build
from meshwright.train.settings import Recipe, Run
from meshwright.train.step import summed
from meshwright.train.verify.islands import wide
from meshwright.train.verify.reference import DTYPE
from meshwright.train.verify.updating import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.plan.plan import Plan
    from meshwright.train.engine import Engine
    from meshwright.train.verify.reference import Batch, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far a rank is from the reference, relative to the largest element of each tensor.

    `losses` and `norms` by step; `gradients` of the first step and `parameters` after the last by
    name; `missing` lists parameters that got no gradient though they should.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: dict[str, float]
    parameters: dict[str, float]
    missing: tuple[str, ...]


def compare(
    config: Any, plan: Plan, data: list[Batch], expected: Reference, *, seed: int, clip_norm: float
) -> Deviation:
    """Runs the plan on this rank; every rank of the plan must call it alike."""
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # slow gathers are told
    if int(plan.optimizer) == Optimizer.ADAM_8BIT:  # no rounding of states can be exact
        plan = plan.replace(optimizer=int(Optimizer.ADAM))
    engine = engine_of(config, plan, seq_len=data[0].tokens.shape[1], seed=seed)
    recipe = Recipe(learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, momentum=MOMENTUM)
    optimizers = build(engine, recipe)
    losses: list[float] = []
    norms: list[float] = []
    gradients: dict[str, float] = {}
    missing: list[str] = []
    with wide():
        for step, batch in enumerate(data):
            share = engine.forward_backward(micro_batches(engine, batch), tokens=batch.counted)
            losses.append(_apart(float(summed(engine, share)), expected.losses[step]))
            if step == 0:
                gradients, missing = _gradients(engine, expected)
            norm = float(gradient_norm(engine))
            norms.append(_apart(norm, expected.norms[step]))
            clip(engine, norm, limit=clip_norm)
            optimizers.step()
            optimizers.zero_grad()
    return Deviation(
        losses=tuple(losses),
        norms=tuple(norms),
        gradients=gradients,
        parameters=_parameters(engine, expected),
        missing=tuple(missing),
    )


def engine_of(config: Any, plan: Plan, *, seq_len: int, seed: int) -> Engine:
    """The engine of a plan in float64 on this CPU rank, as a run builds it."""
    blueprint = Blueprint(
        config=config,
        model=model_from_config(config.to_dict()),
        plan=plan,
        numbers=uniform(DTYPE),
        seq_len=seq_len,
        cp_slices=slices_for(plan),
        experts="eager",
    )
    run = Run(steps=1, out="", seed=seed)
    return build_engine(blueprint, run, device=torch.device("cpu"))


def micro_batches(engine: Engine, batch: Batch) -> list[dict[str, Tensor]]:
    """This rank's micro-batches of a global batch: its rows, its slice of each."""
    mesh, size = engine.mesh, int(engine.plan.micro_batch_size)
    length = batch.tokens.shape[1]
    places = cut(torch.arange(length), cp=mesh.size("cp"), how=engine.blueprint.cp_slices)
    mine = places[mesh.rank("cp")]
    tokens = batch.tokens.chunk(mesh.dp_size)[mesh.dp_rank][:, mine]
    labels = batch.labels.chunk(mesh.dp_size)[mesh.dp_rank][:, mine]
    return [
        {"tokens": t, "labels": y, "position_ids": mine.expand(len(t), -1)}
        for t, y in zip(tokens.split(size), labels.split(size), strict=True)
    ]


def _gradients(engine: Engine, expected: Reference) -> tuple[dict[str, float], list[str]]:
    found, missing = {}, []
    for name, parameter in engine.named_parameters():
        if parameter.grad is None:
            if name in expected.gradients and parameter.requires_grad:
                missing.append(name)
            continue
        found[name] = _distance(parameter.grad, expected.gradients[name])
    return found, missing


def _parameters(engine: Engine, expected: Reference) -> dict[str, float]:
    return {
        name: _distance(parameter.detach(), expected.parameters[name])
        for name, parameter in engine.named_parameters()
    }


def _distance(mine: Any, theirs: Tensor) -> float:
    """Largest difference of this rank's part over the largest element of the whole.

    Part by part, for torch 2.13 cannot put every layout together (DTensor.full_tensor fails where
    fused experts are cut over efsdp, ep and etp at once). Infinite for another shape.
    """
    if mine.shape != theirs.shape:
        return float("inf")
    part = part_of(mine)
    boxes = [(box.of(part) - theirs[box.whole]).abs().max() for box in boxes_of(mine)]
    if not boxes:
        return 0.0
    return _apart(0.0, float(torch.stack(boxes).max()), scale=float(theirs.abs().max()))


def _apart(mine: float, theirs: float, *, scale: float | None = None) -> float:
    """The difference relative to `scale`, which is the second one if it is not given."""
    difference = abs(mine - theirs)
    size = abs(theirs) if scale is None else scale
    if math.isnan(difference):
        return float("inf")
    return difference / size if size > 0 else (0.0 if difference == 0 else float("inf"))
