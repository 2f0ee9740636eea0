"""Activation recomputation: which modules of a layer are run again in the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from meshwright.plan.plan import Recompute, RecomputeModule
from meshwright.train.parallel import offload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from meshwright.plan.plan import Plan
    from meshwright.train.stage import Stage

_NORMS = ("norm", "layernorm")
_KEPT = ("scaled_dot_product", "reduce_scatter_tensor", "attention")  # dear ones: kept


def apply(stage: Stage, plan: Plan) -> None:
    """Wraps layers, or modules of layers, as the plan's recompute fields say.

    What a layer saves for its backward pass is kept on the host where the plan says so.
    """
    kind = Recompute(int(plan.recompute))
    layers = stage.lm.model.layers
    for number, index in enumerate(range(stage.place.first_layer, stage.place.last_layer)):
        if kind == Recompute.FULL and _is_covered(number, plan):
            layers[index] = checkpoint_wrapper(layers[index], preserve_rng_state=False)
        elif kind == Recompute.SELECTIVE:
            _wrap_modules(layers, index, RecomputeModule(int(plan.recompute_modules)))
    offload.apply(stage.layers, share=float(plan.offload_activations))


def _is_covered(number: int, plan: Plan) -> bool:
    """Whether the stage's layer `number` is recomputed: all, or the first few ("block")."""
    if plan.recompute_uniform:  # "uniform" groups cover every layer; each is one of its own here
        return True
    return int(plan.recompute_layers) == 0 or number < int(plan.recompute_layers)


def _wrap_modules(layers: nn.ModuleList, index: int, modules: RecomputeModule) -> None:
    if RecomputeModule.ALTERNATE_MATMULS in modules:
        layers[index] = checkpoint_wrapper(
            layers[index], context_fn=_every_second_product, preserve_rng_state=False
        )
        return
    for parent, name in list(_covered(layers[index], modules)):
        wrapped = checkpoint_wrapper(getattr(parent, name), preserve_rng_state=False)
        setattr(parent, name, wrapped)


def _covered(layer: nn.Module, modules: RecomputeModule) -> Iterator[tuple[nn.Module, str]]:
    """(parent, name) of every module of a layer that is recomputed on its own."""
    mlp = getattr(layer, "mlp", None)
    routed = mlp is not None and hasattr(mlp, "experts")
    if mlp is not None and (RecomputeModule.MOE if routed else RecomputeModule.MLP) in modules:
        yield layer, "mlp"
    elif routed and RecomputeModule.SHARED_EXPERTS in modules:
        for name in ("shared_experts", "shared_expert"):
            if hasattr(mlp, name):
                yield mlp, name
    if RecomputeModule.CORE_ATTENTION in modules:
        layer.self_attn.recomputed = True  # the attention function reads it
    if RecomputeModule.NORM in modules:
        yield from ((layer, n) for n, _ in layer.named_children() if n.endswith(_NORMS))


def _every_second_product() -> Any:
    """Contexts that keep attention, reduced sums and every second matrix product.

    The policy of torchtitan 0.3.0 (torchtitan/distributed/activation_checkpoint.py).
    """
    seen = {True: 0, False: 0}

    def policy(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            seen[context.is_recompute] += 1
            keep = seen[context.is_recompute] % 2 == 1
        else:
            keep = any(word in str(op) for word in _KEPT)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
