"""Expert parallelism: the routed experts of every MoE layer, cut over the "ep" and "etp" axes.

Experts are dealt to ep ranks in order; the width of each is cut over etp. The expert mesh lies over
the same ranks as the dense one (arXiv 2504.14960, MoE parallel folding), so ep may be larger than
dp and reach over cp and tp.

Tokens. A layer's router and experts are given the hidden states that the block gets. If all ranks
of a tensor-parallel group hold the same ones, each sends a share of them and the outputs are
gathered again, so hidden states and their gradients are whole on every tp rank on both sides, and
so is the router's gradient. If the block gets slices of the sequence instead, whoever cuts them
sets `module.holds_own_tokens = True` on the experts, and nothing is shared or gathered; the
router's gradient is then that of the slice.

Gradients. Every rank of the expert mesh works on tokens of its own. The gradient of an expert's
weight after backward is the sum over the tokens of its ep x etp group: the sum over "efsdp" and
"dp_replicate" makes it whole, with no factor. Where FSDP2 takes means over these two axes, multiply
by their sizes; tp and cp never enter, even if they are folded in. The two axes may be larger than 1
where "batch" is 1 (tp 2, ep 1): the sum is needed there too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor

from meshwright.base.errors import MeshwrightError
from meshwright.train.adapters import experts as fused
from meshwright.train.parallel.experts.forward import routed
from meshwright.train.parallel.experts.routing import Crowd

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.mesh import Mesh
    from meshwright.train.stage import Stage


def apply(stage: Stage, mesh: Mesh, *, routing: str = "learned") -> None:
    """Cuts the experts of every MoE layer of a stage and sends tokens to them.

    Weights become DTensors over ("ep", "etp"): Shard(0) on the expert dim, the expert width on
    etp; names stay. With `routing` "balanced" experts take turns whatever the router says: shapes
    are then known without data, which fake tensors need. MeshwrightError where the experts or
    their width do not divide.
    """
    mesh.expert  # noqa: B018 - made by all ranks together, also those whose layers are dense
    for module in expert_modules(stage):
        fused.check(module)
        _check_sizes(module, mesh)
        crowd = Crowd(
            num_experts=module.num_experts,
            ep=mesh.group("ep"),
            etp=mesh.group("etp"),
            tp=mesh.group("tp") if _shares_tokens(module, mesh) else None,
            balanced=routing == "balanced",
        )
        if mesh.size("ep") * mesh.size("etp") > 1:
            _cut(module, mesh)
        module.forward = partial(_forward, module, crowd)


def expert_modules(stage: nn.Module) -> list[nn.Module]:
    """The routed experts of a stage, one module a MoE layer that is here, in order.

    Their parameters are sharded over "efsdp" and replicated over "dp_replicate"; the gradient
    wanted is the plain sum over both (see above).
    """
    return [module for module in stage.modules() if fused.is_experts(module)]


def _shares_tokens(module: nn.Module, mesh: Mesh) -> bool:
    return mesh.size("tp") > 1 and not getattr(module, "holds_own_tokens", False)


def _forward(
    module: nn.Module, crowd: Crowd, hidden_states: Tensor, experts: Tensor, weights: Tensor
) -> Tensor:
    """What takes the place of transformers' forward: (tokens, chosen experts, their weights)."""
    return routed(module, crowd, hidden_states, experts=experts, weights=weights)


def _check_sizes(module: Any, mesh: Mesh) -> None:
    """MeshwrightError unless experts divide by ep and their width by etp."""
    ep, etp = mesh.size("ep"), mesh.size("etp")
    if module.num_experts % ep:
        raise MeshwrightError(
            f"{module.num_experts} experts do not divide by ep = {ep}",
            hint=f"set plan.ep to a divisor of {module.num_experts}",
        )
    width = module.down_proj.shape[1 if module.is_transposed else 2]
    if width % etp:
        raise MeshwrightError(
            f"the expert width {width} does not divide by etp = {etp}",
            hint=f"set plan.etp to a divisor of {width}",
        )


def _cut(module: Any, mesh: Mesh) -> None:
    """The parameters as DTensors over those of "ep" and "etp" that are larger than one."""
    axes = tuple(axis for axis in ("ep", "etp") if mesh.size(axis) > 1)
    widths = fused.width_placements(module)
    for name, parameter in list(module.named_parameters(recurse=False)):
        placements = [Shard(0) if axis == "ep" else widths[name] for axis in axes]
        cut = distribute_tensor(parameter.data, mesh.expert[axes], placements, src_data_rank=None)
        setattr(module, name, nn.Parameter(cut, requires_grad=parameter.requires_grad))
