"""Structure partitioning (5.1): the expert mesh and the shape of the router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import world_size
from meshwright.rules.accepted import accepted_near
from meshwright.rules.model.dimensions import (
    any_remainder,
    expert_counts,
    expert_widths,
    listed,
    routers,
)
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.model.architecture import Experts
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
_PARALLEL_STATE = "Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)"
_MEGATRON_CONFIG = "Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)"


@rule(
    "MOD109",
    "Expert width not divisible by etp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/utils.py divide (0.19.2)",
    reads=("etp",),
    confidence="run",
)
def expert_width_divides_by_etp(job: Job) -> Mask:
    """Tensor parallelism inside experts splits their inner width.

    Fails: plan(model="qwen3-30b-a3b", etp=5)
    Passes: plan(model="qwen3-30b-a3b", etp=4)
    """
    return any_remainder(expert_widths(job.model), job.plan.etp)


@expert_width_divides_by_etp.message
def _(job: Job) -> str:
    widths = listed(expert_widths(job.model))
    return f"the expert width {widths} does not divide by etp = {job.plan.etp}"


@expert_width_divides_by_etp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    widths, etp = expert_widths(job.model), int(job.plan.etp)
    fits = accepted_near(etp, lambda v: all(w % v == 0 for w in widths), limit=min(widths))
    return {"etp": fits}


@rule(
    "MOD140",
    "Experts not divisible by ep",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2); DeepSpeed "
    "deepspeed/moe/layer.py MoE (0.19.8); transformers distributed/expert_parallel.py (5.23.0)",
    reads=("ep",),
    confidence="run",
)
def experts_divide_by_ep(job: Job) -> Mask:
    """Every expert-parallel rank holds the same number of whole experts.

    Fails: plan(model="qwen3-30b-a3b", ep=48)
    Passes: plan(model="qwen3-30b-a3b", ep=32)
    """
    return any_remainder(expert_counts(job.model), job.plan.ep)


@experts_divide_by_ep.message
def _(job: Job) -> str:
    return f"{listed(expert_counts(job.model))} experts do not divide by ep = {job.plan.ep}"


@experts_divide_by_ep.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"ep": _legal_ep(job)}


def _legal_ep(job: Job) -> tuple[int, ...]:
    """The nearest ep that divide the experts and fold over tp*cp*dp beside etp."""
    counts = expert_counts(job.model) or (1,)
    block = int(job.plan.tp * job.plan.cp * job.plan.dp)

    def accepts(ep: int) -> bool:
        return all(n % ep == 0 for n in counts) and block % (ep * int(job.plan.etp)) == 0

    return accepted_near(int(job.plan.ep), accepts, limit=max(counts))


@rule(
    "MOD141",
    "Expert parallelism without experts",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=("ep", "etp"),
    confidence="run",
    tolerated_by="torchtitan",
)
def expert_axes_need_experts(job: Job) -> Mask:
    """A dense model has nothing to put on the expert mesh; some stacks refuse, others ignore it.

    Fails: plan(model="llama-3-8b", ep=8)
    Passes: plan(model="mixtral-8x7b", ep=8)
    """
    return ((job.plan.ep > 1) | (job.plan.etp > 1)) & (not job.model.is_moe)


@expert_axes_need_experts.message
def _(job: Job) -> str:
    return f"ep = {job.plan.ep}, etp = {job.plan.etp} for a model without experts"


@expert_axes_need_experts.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {name: (1,) for name in ("ep", "etp") if getattr(job.plan, name) > 1}


@rule(
    "MOD142",
    "Expert mesh does not tile the GPUs of a stage",
    severity=Severity.ERROR,
    section=SECTION,
    source=_PARALLEL_STATE,
    reads=("tp", "cp", "dp", "ep", "etp"),
    confidence="run",
)
def expert_mesh_tiles_stage(job: Job) -> Mask:
    """Experts fold over the tp*cp*dp ranks of a pipeline stage, so ep*etp must divide these.

    ep may exceed dp. Published mappings often mean etp = 1 and do not say so.

    Fails: plan(model="qwen3-30b-a3b", tp=4, pp=8, ep=8, etp=4)
    Passes: plan(model="qwen3-30b-a3b", tp=4, pp=8, ep=8, etp=1)
    """
    plan = job.plan
    return job.model.is_moe & (plan.tp * plan.cp * plan.dp % (plan.ep * plan.etp) != 0)


@expert_mesh_tiles_stage.message
def _(job: Job) -> str:
    plan = job.plan
    return (
        f"ep*etp = {plan.ep}*{plan.etp} does not divide "
        f"tp*cp*dp = {plan.tp}*{plan.cp}*{plan.dp} = {plan.tp * plan.cp * plan.dp}"
    )


@expert_mesh_tiles_stage.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"ep": _legal_ep(job)}


@rule(
    "MOD144",
    "Expert parallelism counted as a factor of the GPUs",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM docs/user-guide/parallelism-guide.md against core/parallel_state.py "
    "(d98e8a64)",
    reads=("tp", "pp", "cp", "dp", "ep"),
    confidence="run",
)
def ep_is_no_factor_of_world(job: Job) -> Mask:
    """The product of all axes and ep fills the GPUs, but ep is not an axis beside the others.

    Experts fold over the ranks of tp*cp*dp, so dp is understated by a factor ep. Some guides print
    the formula with ep in it.

    Fails: plan(model="mixtral-8x7b", tp=2, ep=8, dp=4)
    Passes: plan(model="mixtral-8x7b", tp=2, ep=8, dp=32)
    """
    plan = job.plan
    world, gpus = world_size(plan), job.cluster.num_gpus
    return (plan.ep > 1) & (world != gpus) & (world * plan.ep == gpus)


@ep_is_no_factor_of_world.message
def _(job: Job) -> str:
    plan = job.plan
    return f"tp*pp*cp*dp = {world_size(plan)}, times ep = {plan.ep} the {job.cluster.num_gpus} GPUs"


@ep_is_no_factor_of_world.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"dp": (int(job.plan.dp * job.plan.ep),)}


@rule(
    "MOD147",
    "Experts straddle replicas of the sharding group",
    severity=Severity.ERROR,
    section=SECTION,
    source="torchtitan torchtitan/distributed/parallel_dims.py ParallelDims.build_mesh (0.3.0)",
    reads=("tp", "cp", "dp", "ep", "etp", "dp_replicate"),
    confidence="run",
)
def experts_within_replica(job: Job) -> Mask:
    """With replicated sharding groups (HSDP), every replica holds all experts.

    ep*etp must divide the ranks of one replica, tp*cp*dp / dp_replicate.

    Fails: plan(model="qwen3-30b-a3b", dp_replicate=4, ep=32)
    Passes: plan(model="qwen3-30b-a3b", dp_replicate=4, ep=16)
    """
    plan = job.plan
    replica = plan.tp * plan.cp * plan.dp // np.maximum(plan.dp_replicate, 1)
    return job.model.is_moe & (plan.dp_replicate > 1) & (replica % (plan.ep * plan.etp) != 0)


@experts_within_replica.message
def _(job: Job) -> str:
    plan = job.plan
    replica = plan.tp * plan.cp * plan.dp // plan.dp_replicate
    return f"ep*etp = {plan.ep * plan.etp} does not divide the {replica} ranks of a replica"


experts_within_replica.fix(always(dp_replicate=(1,)))


@rule(
    "MOD154",
    "Experts with tp but no sequence parallelism",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/moe/moe_layer.py MoELayer.forward (0.19.2)",
    reads=("tp", "sequence_parallel"),
    confidence="run",
)
def experts_want_sequence_parallel(job: Job) -> Mask:
    """Without sequence parallelism all tp ranks hold the same tokens and dispatch each of them.

    Routing, transfers and expert work are then done tp times over, or the stack refuses (Megatron).

    Fails: plan(model="mixtral-8x7b", tp=4, sequence_parallel=False)
    Passes: plan(model="mixtral-8x7b", tp=4, sequence_parallel=True)
    """
    plan = job.plan
    return job.model.is_moe & (plan.tp > 1) & np.logical_not(plan.sequence_parallel)


@experts_want_sequence_parallel.message
def _(job: Job) -> str:
    return f"each token is dispatched by all tp = {job.plan.tp} ranks"


experts_want_sequence_parallel.fix(always(sequence_parallel=(True,)))


@rule(
    "MOD157",
    "Experts split by tensor instead of expert parallelism",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/moe/README.md best practices (d98e8a64) "
    "guideline 4",
    reads=("ep", "etp"),
    confidence="doc",
    needs=("model",),
)
def whole_experts_first(job: Job) -> Mask:
    """While experts are left to spread, etp only makes their products thin and adds reductions.

    Fails: plan(model="mixtral-8x7b", ep=4, etp=2)
    Passes: plan(model="mixtral-8x7b", ep=8, etp=1)
    """
    counts = expert_counts(job.model)
    if not counts:
        return False
    return (job.plan.etp > 1) & (min(counts) % (job.plan.ep * job.plan.etp) == 0)


@whole_experts_first.message
def _(job: Job) -> str:
    counts = listed(expert_counts(job.model))
    return f"etp = {job.plan.etp} although {counts} experts spread over ep*etp ranks"


@whole_experts_first.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"ep": (int(job.plan.ep * job.plan.etp),), "etp": (1,)}


@rule(
    "MOD189",
    "Router groups or choices do not fit the experts",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2); torchtitan "
    "models/common/moe.py (0.3.0)",
    confidence="run",
)
def router_choices_fit(job: Job) -> Mask:
    """A router chooses top_k experts, from topk_group of n_group equal groups where it has groups.

    Groups must be equal, no more may be chosen than there are, and the chosen groups must hold
    top_k experts.

    Fails: plan(model="qwen3-30b-a3b", n_group=6, topk_group=2)
    Fails: plan(model="mixtral-8x7b", top_k=9)
    Passes: plan(model="qwen3-30b-a3b", n_group=8, topk_group=4)
    """
    return any(_misfit(experts) for experts in routers(job.model))


def _misfit(experts: Experts) -> bool:
    """True when the choices of one router cannot be made."""
    e = experts
    if e.top_k > e.num_experts:
        return True
    if not e.topk_group:
        return e.n_group > 0 and e.num_experts % e.n_group != 0
    if not e.n_group or e.num_experts % e.n_group or e.topk_group > e.n_group:
        return True
    return e.top_k > e.topk_group * e.num_experts // e.n_group


@router_choices_fit.message
def _(job: Job) -> str:
    e = next(experts for experts in routers(job.model) if _misfit(experts))
    groups = f", {e.topk_group} of {e.n_group} groups" if e.n_group or e.topk_group else ""
    return f"{e.top_k} of {e.num_experts} experts{groups}"


@rule(
    "MOD190",
    "Top-1 routing with softmax over the chosen expert",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    confidence="run",
)
def router_learns(job: Job) -> Mask:
    """Softmax over a single chosen expert is 1 whatever the scores, so the router never learns.

    Fails: plan(model="mixtral-8x7b", top_k=1, scoring_func="softmax_top_k")
    Passes: plan(model="mixtral-8x7b", top_k=1, scoring_func="softmax")
    """
    return any(e.top_k == 1 and e.scoring_func == "softmax_top_k" for e in routers(job.model))


@router_learns.message
def _(job: Job) -> str:
    scores: Any = {e.scoring_func for e in routers(job.model)}
    return f"top_k = 1 with scoring_func = {', '.join(sorted(scores))}"


router_learns.fix(always(scoring_func=("softmax", "sigmoid")))
