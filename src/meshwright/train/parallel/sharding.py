"""Data parallelism: FSDP2 over the mesh's "fsdp" dim, replicated over dp_replicate.

ZeRO in FSDP2's terms. Stage 3 gathers parameters for every use (`reshard_after_forward`), or keeps
them from forward to backward. Stages 1 and 2 gather once a step and keep them; stage 2 scatters the
gradients of every micro-batch, stage 1 those of the step. Stage 0 shards over nothing: every
replica is one of dp_replicate. Gradients come out as means over the ranks that saw other tokens;
the engine's loss is scaled up by as much, so that they are sums.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from meshwright.cost.schedules import definition_of
from meshwright.train.parallel.expert import expert_modules

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from meshwright.plan.plan import Plan
    from meshwright.train.mesh import Mesh
    from meshwright.train.numbers import Numbers
    from meshwright.train.stage import Stage


def is_wrapped(mesh: Mesh, plan: Plan, *, numbers: Numbers, moe: bool) -> bool:
    """Whether FSDP2 is needed: several replicas, layers in another format, weights on the host."""
    replicas = mesh.size("efsdp") * mesh.size("dp_replicate") if moe else 1
    several = max(mesh.size("batch"), replicas) > 1
    cast = numbers.compute is not numbers.parameters
    return several or cast or bool(plan.offload_params)


def apply(stage: Stage, mesh: Mesh, plan: Plan, *, numbers: Numbers) -> None:
    """Shards a stage: experts, embedding, every layer, then what is left (final norm and head)."""
    experts = expert_modules(stage)
    if not is_wrapped(mesh, plan, numbers=numbers, moe=bool(experts)):
        return
    _allow_views()
    host = _host(plan, mesh)
    common = {**_options(numbers), "offload_policy": host}
    keep = is_kept(plan)
    # routing weights come in fp32, and stay so
    own = {**_options(numbers, casts=False), "offload_policy": host}
    for module in experts:
        fully_shard(module, mesh=_mesh(mesh, "efsdp"), reshard_after_forward=not keep, **own)
    dense = _mesh(mesh, "fsdp")
    embedding = getattr(stage.lm.model, "embed_tokens", None)
    tied = bool(stage.lm.config.tie_word_embeddings) and stage.place.is_last
    if embedding is not None and not tied:  # a tied one is used again by the head
        fully_shard(embedding, mesh=dense, reshard_after_forward=not keep, **common)
    for layer in stage.layers:
        fully_shard(layer, mesh=dense, reshard_after_forward=not keep, **common)
    fully_shard(stage, mesh=dense, reshard_after_forward=False, **common)


def is_kept(plan: Plan) -> bool:
    """Whether gathered parameters stay from forward to backward.

    They do under schedules that split the backward pass, whatever the plan says: torch looks up a
    stage's weight gradients by the parameters of the moment, and finds none of those that have
    been sharded again (torch 2.13, torch/distributed/pipelining/stage.py, `backward_one_chunk`).
    """
    definition = definition_of(int(plan.schedule), vpp=int(plan.vpp))
    splits = int(plan.pp) > 1 and definition.splits_backward
    return int(plan.zero_stage) < 3 or not plan.reshard_after_forward or splits


def _allow_views() -> None:
    """Silences FSDP2's warning of outputs that are views: no model here writes into them."""
    about = "FSDP2-wrapped module .* returned a view tensor"
    warnings.filterwarnings("ignore", message=about, category=UserWarning)


def _mesh(mesh: Mesh, shard: str) -> DeviceMesh:
    """The mesh to shard over, two-dimensional where it is replicated too."""
    if mesh.size("dp_replicate") == 1:
        return mesh.dim(shard)
    source = mesh.dense if shard == "fsdp" else mesh.expert
    return source["dp_replicate", shard]


def _host(plan: Plan, mesh: Mesh) -> OffloadPolicy:
    """Whether parameters, gradients and optimizer states stay on the host between uses."""
    if not plan.offload_params:
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")


def _options(numbers: Numbers, *, casts: bool = True) -> dict[str, Any]:
    """Number formats; `casts` says whether what comes in is cast too."""
    policy = MixedPrecisionPolicy(
        param_dtype=numbers.compute if numbers.mixed else None,
        reduce_dtype=numbers.reduce if numbers.mixed else None,
        cast_forward_inputs=numbers.mixed and casts,
    )
    return {"mp_policy": policy}


def before_microbatch(stage: nn.Module, plan: Plan, *, is_last: bool) -> None:
    """Sets what a backward pass outside a pipeline does with gradients and gathered parameters."""
    if not isinstance(stage, FSDPModule):
        return
    stage.set_requires_gradient_sync(is_last or int(plan.zero_stage) >= 2)
    stage.set_is_last_backward(is_last or int(plan.zero_stage) >= 2)  # frees what was reduced
    stage.set_reshard_after_backward(is_last or int(plan.zero_stage) >= 3)


def expert_gradient_scale(mesh: Mesh) -> float:
    """What turns FSDP2's mean over an expert's replicas into the mean over all other tokens.

    Every replica saw tokens of its own (`parallel.expert`), be they cut over batch or over tp.
    """
    return mesh.size("efsdp") * mesh.size("dp_replicate") / mesh.size("batch")
