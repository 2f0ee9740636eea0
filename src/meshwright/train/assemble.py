"""From a configuration and a plan to the stages of this rank, cut, sharded and given their values.

The order matters: tensor and expert parallelism cut parameters while the model is on the meta
device, recomputation wraps layers, FSDP2 shards what is left, and only then is memory taken, for
this rank's share alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.noun import dataclass
from meshwright.train.adapters import float8, lora
from meshwright.train.adapters.attention import choose
from meshwright.train.attention.context.making import context_of
from meshwright.train.model.configuration import model_of
from meshwright.train.parallel import compiling, expert, pipeline, recompute, sharding, tensor
from meshwright.train.stage import Slices, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from meshwright.model.architecture import Model
    from meshwright.plan.plan import Plan
    from meshwright.train.mesh import Mesh
    from meshwright.train.numbers import Numbers
    from meshwright.train.stage import Place


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """What is built: `config` is transformers' configuration, `model` our reading of the same.

    `experts` is transformers' implementation of the experts ("eager", "grouped_mm"); `routing`
    is "learned", or "balanced" where data-dependent shapes cannot be had (fake tensors).
    """

    config: Any
    model: Model
    plan: Plan
    numbers: Numbers
    seq_len: int
    cp_slices: str = "zigzag"
    experts: str = "grouped_mm"
    routing: str = "learned"
    compile: bool = False


def assemble(
    blueprint: Blueprint, mesh: Mesh, *, places: Sequence[Place] | None = None
) -> list[Stage]:
    """The stages of this rank on the meta device, cut by every axis; their values come next.

    `places` holds other layers than the plan says, as a measurement of a shallower model does.
    """
    slices = slices_of(blueprint, mesh)
    plan = blueprint.plan
    if places is None:
        places = pipeline.places_of(blueprint.model, plan, pp_rank=mesh.rank("pp"))
    return [_stage(blueprint, mesh, place, slices) for place in places]


def bare_model(blueprint: Blueprint) -> nn.Module:
    """The whole transformers model on the meta device, with our attention."""
    config = blueprint.config
    choose(config)
    if blueprint.model.is_moe:
        config._experts_implementation = blueprint.experts
    config.use_cache = False
    with torch.device("meta"):
        lm = model_of(config, dtype=blueprint.numbers.parameters)
        lora.apply(lm, blueprint.plan)
    for parameter in lm.parameters():  # routers of deepseek_v3 and glm4_moe are float32 regardless
        parameter.data = parameter.data.to(blueprint.numbers.parameters)
    return lm.train()


def _stage(blueprint: Blueprint, mesh: Mesh, place: Place, slices: Slices) -> Stage:
    plan = blueprint.plan
    stage = Stage(bare_model(blueprint), place, slices=slices, loss_chunks=int(plan.loss_chunks))
    if blueprint.numbers.fp8:
        float8.apply(stage, device_type=mesh.device_type)
    if mesh.size("tp") > 1:
        tensor.apply(
            stage,
            mesh.dim("tp"),
            sequence_parallel=bool(plan.sequence_parallel),
            vocab_parallel=bool(plan.vocab_parallel),
            loss_parallel=bool(plan.loss_parallel and plan.vocab_parallel),
        )
    if blueprint.model.is_moe:
        expert.apply(stage, mesh, routing=blueprint.routing)
    if blueprint.compile:  # inside of what is recomputed: around it nothing would be compiled
        compiling.apply(stage, device_type=mesh.device_type)
    recompute.apply(stage, plan)
    sharding.apply(stage, mesh, plan, numbers=blueprint.numbers)
    return stage


def slices_of(blueprint: Blueprint, mesh: Mesh) -> Slices:
    """Which positions of every row this rank holds."""
    how = blueprint.cp_slices
    every = cut(torch.arange(blueprint.seq_len), cp=mesh.size("cp"), how=how)
    mine = every[mesh.rank("cp")].contiguous().to(mesh.device_type)
    context = context_of(mesh, blueprint.plan, seq_len=blueprint.seq_len, slices=how)
    return Slices(positions=mine, context=context)


def cut(values: Tensor, *, cp: int, how: str) -> Tensor:
    """[cp, s/cp] slices of values [s]: "contiguous", or head and tail as the loader's "zigzag"."""
    if how == "contiguous" or cp == 1:
        return values.reshape(cp, -1)
    chunks = values.reshape(2 * cp, -1)
    return torch.stack([torch.cat([chunks[r], chunks[2 * cp - 1 - r]]) for r in range(cp)])
