"""What Megatron's router refuses: groups of experts, and a softmax over one expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD189",
    "Groups of experts that the router cannot choose from (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.11",
    source=sources.CONFIG,
    consequence='ValueError: "When using group limited routing, moe_router_num_groups must be '
    'specified."; AssertionError: "num_moe_experts (16) should be divisible by '
    'moe_router_num_groups (5)."',
    says="moe_router_group_topk {moe_router_group_topk} of moe_router_num_groups "
    "{moe_router_num_groups}, {num_experts} experts",
)
def groups_hold_the_experts(k: Knobs) -> bool:
    """A router that chooses groups first needs their number, equal groups, and enough of them.

    Fails: megatron-lm 0.19: --num-experts 16 --moe-router-group-topk 2
    Fails: megatron-lm 0.19: --num-experts 16 --moe-router-group-topk 2 --moe-router-num-groups 5
    Passes: megatron-lm 0.19: --num-experts 16 --moe-router-group-topk 2 --moe-router-num-groups 4
    """
    if not k.get("moe_router_group_topk") or not k.num_experts:
        return False
    groups = k.get("moe_router_num_groups") or 0
    return groups < 1 or k.num_experts % groups != 0 or k.moe_router_group_topk > groups


@demand(
    "MOD100",
    "Softmax over the one expert that is chosen",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.8",
    source=sources.CONFIG,
    consequence='ValueError: "Please use --moe-router-pre-softmax when topk is 1."',
    says="num_experts_per_tok {num_experts_per_tok} with moe_router_pre_softmax "
    "{moe_router_pre_softmax}",
    suggest={"moe_router_pre_softmax": True},
)
def one_expert_has_no_gradient(k: Knobs) -> bool:
    """After the choice a softmax over one score is 1 whatever the score, and the router learns nil.

    Fails: megatron-lm 0.19: --num-experts 8 --moe-router-topk 1 --hidden-size 1024
    Passes: megatron-lm 0.19: --num-experts 8 --moe-router-topk 1 --moe-router-pre-softmax
    Passes: megatron-lm 0.19: --num-experts 8 --moe-router-topk 1
        --moe-router-score-function sigmoid
    """
    if not sources.is_moe(k) or k.num_experts_per_tok != 1 or k.get("moe_router_pre_softmax"):
        return False
    kinds = k.get("load_balancing") or ()
    sinkhorn = kinds == "sinkhorn" or list(kinds) == ["sinkhorn"]
    scored = k.get("router_score_function", "softmax") == "softmax"
    return scored and not sinkhorn and k.is_stated("num_experts_per_tok")
