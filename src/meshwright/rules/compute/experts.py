"""Load balancing (6.3) of tokens over experts, and what it means for graph capture (6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import Precision
from meshwright.plan.words import word
from meshwright.rules.model.dimensions import any_size, expert_counts, listed, routers
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "6.3"
FEW_TOKENS = 256  # rows of one or two tiles of a grouped product
MANY_EXPERTS = 32
FINE_GRAINED = 4  # experts a token from which it visits many nodes
_MOE_GUIDE = "Megatron-LM megatron/core/transformer/moe/README.md best practices (d98e8a64)"


@rule(
    "CMP304",
    "No load-balancing mechanism",
    severity=Severity.WARNING,
    section=SECTION,
    source="Switch Transformer (arXiv 2101.03961); DeepSeek-V3 (arXiv 2412.19437) section 2.1.2",
    confidence="paper",
)
def routing_is_balanced(job: Job) -> Mask:
    """Without a balancing loss or a bias update routing collapses onto few experts.

    Judged where the mechanism is stated.

    Fails: plan(model="mixtral-8x7b", expert_balancing="none")
    Passes: plan(model="mixtral-8x7b", expert_balancing="aux_loss")
    Passes: plan(model="mixtral-8x7b", expert_balancing="none", correction_bias=True)
    """
    stated_none = job.workload.runtime.expert_balancing == "none"
    return stated_none and any(not e.correction_bias for e in routers(job.model))


@routing_is_balanced.message
def _(job: Job) -> str:
    return f"{listed(expert_counts(job.model))} experts with expert_balancing = none"


routing_is_balanced.fix(always(expert_balancing=("aux_loss", "bias")))


@rule(
    "CMP307",
    "Capacity factor below one",
    severity=Severity.WARNING,
    section=SECTION,
    source="Switch Transformer (arXiv 2101.03961) section 2.2",
    confidence="paper",
)
def capacity_holds_all_tokens(job: Job) -> Mask:
    """Experts then drop tokens even when routing is perfectly balanced.

    Fails: plan(model="mixtral-8x7b", expert_capacity_factor=0.8)
    Passes: plan(model="mixtral-8x7b", expert_capacity_factor=1.25)
    Passes: plan(model="mixtral-8x7b", expert_capacity_factor=-1.0)
    """
    factor = job.workload.runtime.expert_capacity_factor
    return job.model.is_moe and factor is not None and 0 <= factor < 1


@capacity_holds_all_tokens.message
def _(job: Job) -> str:
    factor = job.workload.runtime.expert_capacity_factor or 0.0
    return f"a capacity factor of {factor:g} drops {1 - factor:.0%} of the tokens or more"


capacity_holds_all_tokens.fix(always(expert_capacity_factor=(1.0, 1.25)))


@rule(
    "CMP131",
    "Graph capture of dropless experts",
    severity=Severity.WARNING,
    section="6.1",
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2); torchtitan "
    "torchtitan/trainer.py _validate_cuda_graphs (0.3.0)",
    reads=("cuda_graph",),
    confidence="read",
)
def captured_shapes_are_fixed(job: Job) -> Mask:
    """A captured graph has fixed shapes, and without a capacity tokens per expert change each step.

    Only attention and router can then be captured; some stacks refuse to capture anything.

    Fails: plan(model="mixtral-8x7b", cuda_graph=True, expert_capacity_factor=-1.0)
    Passes: plan(model="mixtral-8x7b", cuda_graph=True, expert_capacity_factor=1.25)
    """
    factor = job.workload.runtime.expert_capacity_factor
    dropless = job.model.is_moe and factor is not None and factor < 0
    return dropless & np.asarray(job.plan.cuda_graph)


captured_shapes_are_fixed.message(lambda _: "cuda_graph = True and experts without a capacity")
captured_shapes_are_fixed.fix(always(cuda_graph=(False,)))


def tokens_per_expert(job: Job, num_experts: int) -> Any:
    """Tokens of one micro-batch that an expert receives under perfect balance.

    The etp ranks of an expert pool the tokens of the ep*etp ranks of its mesh.
    """
    plan = job.plan
    tokens = plan.micro_batch_size * job.workload.seq_len / (np.asarray(plan.cp) * plan.tp)
    top_k = min(e.top_k for e in routers(job.model) if e.num_experts == num_experts)
    return tokens * plan.ep * plan.etp * top_k / num_experts


@rule(
    "CMP309",
    "Too few tokens per expert",
    severity=Severity.WARNING,
    section=SECTION,
    source="grouped matrix products in tiles of 128 to 256 rows; MoE Parallel Folding "
    "(arXiv 2504.14960)",
    reads=("micro_batch_size", "cp", "tp", "ep", "etp"),
    confidence="heuristic",
    needs=("model", "seq_len", "num_gpus"),
    points=("micro_batch_size", "seq_len", "ep", "etp"),
)
def experts_have_tokens(job: Job) -> Mask:
    """An expert's product then has one or two tiles of rows, and the arithmetic units wait.

    More tokens come from larger micro-batches and from larger ep.

    Fails: plan(model="qwen3-30b-a3b", tp=4, cp=4, ep=2)
    Passes: plan(model="qwen3-30b-a3b", tp=1, cp=1, ep=8)
    """
    return any_size(expert_counts(job.model), lambda n: tokens_per_expert(job, n) < FEW_TOKENS)


@experts_have_tokens.message
def _(job: Job) -> str:
    tokens = min(float(tokens_per_expert(job, n)) for n in expert_counts(job.model))
    return f"{tokens:g} tokens an expert and micro-batch, fewer than {FEW_TOKENS}"


@experts_have_tokens.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    tokens = min(float(tokens_per_expert(job, n)) for n in expert_counts(job.model))
    if not tokens > 0:
        return {}
    times = 1 << max(int(np.ceil(np.log2(FEW_TOKENS / tokens))), 0)
    return {"micro_batch_size": (int(job.plan.micro_batch_size) * times,)}


@rule(
    "CMP310",
    "Low-precision router with many experts",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)",
    confidence="read",
)
def router_is_precise(job: Job) -> Mask:
    """Scores of many experts lie close together, and rounding changes who is chosen.

    Judged where the type is stated.

    Fails: plan(model="qwen3-30b-a3b", router_dtype="bf16")
    Passes: plan(model="qwen3-30b-a3b", router_dtype="fp32")
    """
    stated = job.workload.runtime.router_dtype
    many = max(expert_counts(job.model), default=0) >= MANY_EXPERTS
    return many and stated is not None and stated not in ("fp32", "fp64")


@router_is_precise.message
def _(job: Job) -> str:
    dtype = job.workload.runtime.router_dtype
    return f"{listed(expert_counts(job.model))} experts routed in {dtype}"


router_is_precise.fix(always(router_dtype=("fp32",)))


@rule(
    "CMP322",
    "ep wider than the fast domain without group-limited routing",
    severity=Severity.INFO,
    section=SECTION,
    source="DeepSeek-V3 (arXiv 2412.19437) section 2.1.2, node-limited routing",
    reads=("ep", "etp"),
    confidence="paper",
)
def routing_is_node_limited(job: Job) -> Mask:
    """Each copy of a token may go to another node; DeepSeek-V3 lets a token visit four at most.

    Fails: plan(model="qwen3-30b-a3b", ep=32)
    Passes: plan(model="qwen3-30b-a3b", ep=32, n_group=8, topk_group=4)
    Passes: plan(model="qwen3-30b-a3b", ep=8)
    """
    free = any(e.top_k >= FINE_GRAINED and not e.topk_group for e in routers(job.model))
    return free & (job.plan.ep * job.plan.etp > job.cluster.scale_up_domain)


@routing_is_node_limited.message
def _(job: Job) -> str:
    domains = -(-int(job.plan.ep * job.plan.etp) // job.cluster.scale_up_domain)
    return f"ep = {job.plan.ep} spans {domains} domains, and a token may visit all of them"


@rule(
    "CMP323",
    "Quantized experts without padded routing",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_MOE_GUIDE} FP8; megatron/core/transformer/moe/moe_utils.py "
    "get_align_size_for_quantization (d98e8a64)",
    reads=("precision",),
    confidence="doc",
)
def quantized_routing_is_padded(job: Job) -> Mask:
    """Tokens per expert must come in multiples of 16 or 32; otherwise each input is padded by copy.

    Judged where it is stated.

    Fails: plan(model="mixtral-8x7b", precision=Precision.FP8, router_padding=False)
    Passes: plan(model="mixtral-8x7b", precision=Precision.FP8, router_padding=True)
    """
    unpadded = job.model.is_moe and job.workload.runtime.router_padding is False
    return unpadded & (job.plan.precision >= int(Precision.FP8))


@quantized_routing_is_padded.message
def _(job: Job) -> str:
    return f"{word('precision', job.plan.precision)} experts with router_padding = False"


quantized_routing_is_padded.fix(always(router_padding=(True,)))
