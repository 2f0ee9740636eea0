"""What goes with which ZeRO stage in DeepSpeed.

Sections 4.2 and 6.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import runs_deepspeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_ZERO_CONFIG = "DeepSpeed deepspeed/runtime/zero/config.py DeepSpeedZeroConfig (0.19.8)"
_CONFIG = "DeepSpeed deepspeed/runtime/config.py DeepSpeedConfig (0.19.8)"
_ENGINE = "DeepSpeed deepspeed/runtime/engine.py DeepSpeedEngine (0.19.8)"


_FUSED_EXPERTS = ("gpt_oss", "llama4", "dbrx")  # families with one tensor for all experts


def _stage(k: Knobs) -> int:
    """The ZeRO stage; 0 where DeepSpeed does not drive the run."""
    return int(k.get("zero_stage") or 0) if runs_deepspeed(k) else -1


@demand(
    "DAT201",
    "ZeRO-2/3 with pipeline parallelism (DeepSpeed)",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/pipe/engine.py PipelineEngine.__init__ (0.19.8)",
    consequence="AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
)
def pipeline_takes_stage_one(k: Knobs) -> bool:
    """The pipeline engine keeps gradients of several micro-batches until the flush.

    ZeRO-2 gives away what a rank does not own after every backward pass, so the two exclude each
    other; stage 1 keeps its saving.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=2, pp=2)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=1, pp=2)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, pp=1)
    """
    return _stage(k) >= 2 and (k.get("pp") or 1) > 1


@pipeline_takes_stage_one.message
def _(k: Knobs) -> str:
    return f"zero_optimization.stage {k.zero_stage} with pp {k.pp}"


pipeline_takes_stage_one.fix(set_to(zero_stage=1))


@demand(
    "DAT216",
    "no_sync with partitioned gradients",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source=f"{_ENGINE}.no_sync",
    consequence="AssertionError: no_sync context manager is incompatible with gradient "
    "partitioning logic of ZeRO stage 2",
)
def partitioned_gradients_are_reduced(k: Knobs) -> bool:
    """From stage 2 on every backward pass hands gradients to their owners.

    Code that defers the reduction with no_sync stops; let the engine count accumulation steps.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=2, uses_no_sync=True)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=1, uses_no_sync=True)
    """
    return _stage(k) >= 2 and bool(k.get("uses_no_sync", False))


@partitioned_gradients_are_reduced.message
def _(k: Knobs) -> str:
    return f"no_sync under zero_optimization.stage {k.zero_stage}"


partitioned_gradients_are_reduced.fix(set_to(zero_stage=1))


@demand(
    "DAT227",
    "SUM gradient reduction with ZeRO-3",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=f"{_CONFIG}._do_error_check",
    consequence="ValueError: gradient_allreduce_op='sum' is not supported with ZeRO stage 3",
)
def stage_three_averages(k: Knobs) -> bool:
    """Stage 3 averages gradients while it scatters them; a plain sum has no path there.

    Fails: deepspeed 0.19: {"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}
    Passes: deepspeed 0.19: {"gradient_allreduce_op": "mean", "zero_optimization": {"stage": 3}}
    """
    return _stage(k) == 3 and str(k.get("gradient_allreduce_op", "mean")).lower() == "sum"


@stage_three_averages.message
def _(k: Knobs) -> str:
    return f"gradient_allreduce_op = {k.gradient_allreduce_op} at stage {k.zero_stage}"


stage_three_averages.fix(set_to(gradient_allreduce_op="mean"))


@demand(
    "DAT228",
    "compute_grad_norm=false outside ZeRO-1/2",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=_ZERO_CONFIG,
    consequence="ValidationError: compute_grad_norm=false is supported only with ZeRO stage 1 or 2",
)
def norm_is_computed(k: Knobs) -> bool:
    """Leaving the gradient norm out is written for stages 1 and 2 alone.

    Fails: deepspeed 0.19: {"zero_optimization": {"stage": 3, "compute_grad_norm": false}}
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 2, "compute_grad_norm": false}}
    """
    return _stage(k) in (0, 3) and k.get("compute_grad_norm", True) is False


@norm_is_computed.message
def _(k: Knobs) -> str:
    return f"compute_grad_norm = False at stage {k.get('zero_stage', 0)}"


norm_is_computed.fix(set_to(compute_grad_norm=None))


@demand(
    "DAT229",
    "BF16 master weights without ZeRO",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=f"{_CONFIG}._do_error_check",
    consequence="AssertionError: Bf16_master_weights_and_grads is only supported with ZeRO Stage "
    "1, 2, or 3.",
)
def short_masters_are_sharded(k: Knobs) -> bool:
    """Master weights, gradients and moments of 16 bits belong to the ZeRO optimizers.

    Fails: deepspeed 0.19: {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}
    Passes: deepspeed 0.19: {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
        "zero_optimization": {"stage": 2}}
    """
    return _stage(k) == 0 and bool(_narrow(k))


def _narrow(k: Knobs) -> list[str]:
    """The keys that keep masters, gradients or moments in 16 bits."""
    keys = {
        "bf16_master_weights": "bf16_master_weights_and_grads",
        "fp16_master_weights": "fp16_master_weights_and_grads",
        "bf16_optimizer_states": "bf16_optimizer_states",
    }
    return [key for variable, key in keys.items() if k.get(variable, False)]


@short_masters_are_sharded.message
def _(k: Knobs) -> str:
    return f"{', '.join(_narrow(k))} = True at stage {k.get('zero_stage', 0)}"


short_masters_are_sharded.fix(set_to(zero_stage=1))


@demand(
    "DAT270",
    "BF16 optimizer states over wider masters",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=f"{_CONFIG}._do_error_check",
    consequence="AssertionError: bf16_optimizer_states requires bf16_master_weights_and_grads to "
    "be enabled.",
    says="bf16_optimizer_states = True with bf16_master_weights_and_grads = False",
    suggest={"bf16_master_weights": True},
)
def states_are_no_narrower_than_masters(k: Knobs) -> bool:
    """Moments in BF16 are kept where the weights that they update are in BF16 too.

    Fails: deepspeed 0.19: {"bf16": {"enabled": true, "bf16_optimizer_states": true},
        "zero_optimization": {"stage": 2}}
    Passes: deepspeed 0.19: {"bf16": {"enabled": true, "bf16_optimizer_states": true,
        "bf16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2}}
    """
    return bool(k.bf16_optimizer_states) and not k.get("bf16_master_weights", False)


@demand(
    "DAT233",
    "Optimizer not on the ZeRO allow-list",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source=f"{_ENGINE}._do_optimizer_sanity_check",
    consequence='AssertionError: You are using an untested ZeRO Optimizer. Please add <"zero_allow'
    '_untested_optimizer": true>',
)
def optimizer_is_known_to_zero(k: Knobs) -> bool:
    """ZeRO splits optimizer states by element, which not every optimizer survives.

    Adam, AdamW, Lion, Adagrad and their fused kin are known; others must be let in explicitly.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=2, optimizer_zero_tested=False)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=2, optimizer_zero_tested=False,
        zero_allow_untested_optimizer=True)
    """
    if _stage(k) < 1 or k.get("optimizer_zero_tested", True):
        return False
    return not k.get("zero_allow_untested_optimizer", False)


@optimizer_is_known_to_zero.message
def _(k: Knobs) -> str:
    name = k.get("ds_optimizer", "the optimizer")
    return f"{name} at stage {k.zero_stage} with zero_allow_untested_optimizer = False"


optimizer_is_known_to_zero.fix(set_to(zero_allow_untested_optimizer=True))


@demand(
    "DAT234",
    "Native MoE layers with ZeRO-3",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source=f"{_ENGINE}._validate_zero3_moe_compatibility",
    consequence="AssertionError: Native DeepSpeed MoE is not supported with ZeRO Stage 3. Use "
    "AutoEP or choose ZeRO stage 1 or 2",
)
def native_experts_stop_at_two(k: Knobs) -> bool:
    """DeepSpeed's own MoE layer reduces experts over another group than ZeRO-3 gathers over.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=3, num_experts=8, native_moe=True)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=2, num_experts=8, native_moe=True)
    """
    return _stage(k) == 3 and (k.get("num_experts") or 0) > 0 and bool(k.get("native_moe", False))


@native_experts_stop_at_two.message
def _(k: Knobs) -> str:
    return f"{k.num_experts} experts of DeepSpeed's MoE layer at stage {k.zero_stage}"


native_experts_stop_at_two.fix(set_to(zero_stage=2))


@demand(
    "DAT294",
    "Experts without tokens under ZeRO-3",
    severity=Severity.WARNING,
    section="4.2",
    scope="deepspeed; transformers; accelerate",
    source="DeepSpeed issues 5066 and 7461; deepspeed/utils/z3_leaf_module.py (0.14), "
    "deepspeed/runtime/zero/leaf_module_config.py (0.19.8)",
    consequence="the run hangs in a collective after some steps: an expert that has no tokens on a "
    "rank is neither gathered nor reduced there, while the other ranks wait for it",
    confidence="read",
    says="a model of {num_experts} experts at ZeRO stage 3, whose experts are gathered one by one: "
    "set the MoE block as a leaf module",
)
def every_rank_gathers_every_expert(k: Knobs) -> bool:
    """ZeRO-3 gathers a module when it runs, on all ranks at once; experts run where tokens are.

    A leaf module is gathered as a whole, whichever of its parts run. DeepSpeed from 0.18 on knows
    the blocks of Mixtral, Qwen2-MoE and Qwen3-MoE by itself, and transformers 5 keeps the experts
    of a layer in one tensor. LLaMA-Factory sets leaf modules, and is not judged.

    Fails: knobs(framework="deepspeed 0.16", zero_stage=3, num_experts=8)
    Passes: knobs(framework="deepspeed 0.16", zero_stage=2, num_experts=8)
    Passes: knobs(framework="deepspeed 0.16", zero_stage=3, num_experts=8,
        leaf_modules="MixtralSparseMoeBlock")
    """
    if not runs_deepspeed(k) or _stage(k) != 3 or k.get("native_moe", False):
        return False
    if k.framework == "llama-factory" or _keeps_experts_together(k):
        return False
    return (k.get("num_experts") or 0) > 1 and not k.get("leaf_modules") and (k.get("ep") or 1) == 1


def _keeps_experts_together(k: Knobs) -> bool:
    """Whether the model, or the trainer's stated version, holds a layer's experts in one tensor."""
    if k.get("model_family") in _FUSED_EXPERTS:
        return True
    major = k.version.split(".")[0]
    return k.framework == "hf-trainer" and major.isdigit() and int(major) >= 5


@demand(
    "DAT250",
    "managed_gradient_accumulation=false with pipeline or overlap",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=f"{_ENGINE}._do_sanity_check",
    consequence="AssertionError: managed_gradient_accumulation=false is not supported with "
    "pipeline parallelism; overlap_comm only with gradient partitioning",
    confidence="read",
)
def accumulation_is_managed(k: Knobs) -> bool:
    """The pipeline engine counts micro-batches itself, and an overlapped reduction starts early.

    Fails: knobs(framework="deepspeed 0.19", managed_gradient_accumulation=False, pp=2)
    Fails: deepspeed 0.19: {"managed_gradient_accumulation": false,
        "zero_optimization": {"stage": 1, "overlap_comm": true}}
    Passes: deepspeed 0.19: {"managed_gradient_accumulation": false,
        "zero_optimization": {"stage": 2, "overlap_comm": true}}
    """
    if _stage(k) < 0 or k.get("managed_gradient_accumulation", True) is not False:
        return False
    early = bool(k.get("overlap_comm", False)) and _stage(k) not in (2, 3)
    return (k.get("pp") or 1) > 1 or early


@accumulation_is_managed.message
def _(k: Knobs) -> str:
    return (
        f"managed_gradient_accumulation = False with pp {k.get('pp') or 1}, overlap_comm "
        f"{k.get('overlap_comm', False)}, stage {k.get('zero_stage', 0)}"
    )


accumulation_is_managed.fix(set_to(managed_gradient_accumulation=None))


@demand(
    "DAT251",
    "Pre-scaling or pre-divide factor with reduce-scatter (ZeRO-3)",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/zero/stage3.py DeepSpeedZeroOptimizer_Stage3 (0.19.8)",
    consequence="AssertionError: gradient_predivide_factor != 1.0 and prescale_gradients are not "
    "yet supported with ZeRO-3 with reduce scatter enabled",
    confidence="read",
)
def scatter_divides_once(k: Knobs) -> bool:
    """Stage 3 divides inside its reduce-scatter; a second place to divide is not wired up.

    Fails: deepspeed 0.19: {"prescale_gradients": true, "zero_optimization": {"stage": 3}}
    Passes: deepspeed 0.19: {"prescale_gradients": true,
        "zero_optimization": {"stage": 3, "reduce_scatter": false}}
    """
    if _stage(k) != 3 or not k.get("reduce_scatter", True):
        return False
    return (
        bool(k.get("prescale_gradients", False)) or k.get("gradient_predivide_factor", 1.0) != 1.0
    )


@scatter_divides_once.message
def _(k: Knobs) -> str:
    return (
        f"prescale_gradients = {k.get('prescale_gradients', False)}, gradient_predivide_factor = "
        f"{k.get('gradient_predivide_factor', 1.0)} at stage 3 with reduce_scatter"
    )


scatter_divides_once.fix(set_to(prescale_gradients=None, gradient_predivide_factor=None))


@demand(
    "CMP206",
    "Partial optimizer offload below ZeRO-3",
    severity=Severity.ERROR,
    section="6.2",
    scope="deepspeed",
    source=_ZERO_CONFIG,
    consequence="ValidationError: Partial offloading only supported for ZeRO Stage 3.",
)
def partial_offload_is_stage_three(k: Knobs) -> bool:
    """Only stage 3 keeps sub-groups of which some can stay on the device.

    Fails: deepspeed 0.19: {"zero_optimization": {"stage": 2,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}
    """
    return _stage(k) in (0, 1, 2) and k.get("offload_optimizer_ratio", 1.0) < 1.0


@partial_offload_is_stage_three.message
def _(k: Knobs) -> str:
    return f"offload_optimizer.ratio {k.offload_optimizer_ratio} at stage {k.get('zero_stage', 0)}"


partial_offload_is_stage_three.fix(set_to(offload_optimizer_ratio=1.0))


@demand(
    "CMP208",
    "Client optimizer with ZeRO-Offload",
    severity=Severity.ERROR,
    section="6.2",
    scope="deepspeed",
    source=f"{_ENGINE}._configure_optimizer",
    consequence="ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer "
    "which in most cases will yield poor performance",
    confidence="read",
)
def offloaded_step_runs_on_the_host(k: Knobs) -> bool:
    """With its states on the host the step runs there, so DeepSpeed wants its own CPU Adam.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=3, optimizer_offload=True,
        client_optimizer=True)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, optimizer_offload=True,
        client_optimizer=True, optimizer_is_cpu_adam=True)
    """
    client = k.get("client_optimizer", False) and not k.get("optimizer_is_cpu_adam", False)
    forced = k.get("zero_force_ds_cpu_optimizer", True)
    return _stage(k) >= 1 and bool(k.get("optimizer_offload", False) and client and forced)


@offloaded_step_runs_on_the_host.message
def _(k: Knobs) -> str:
    return (
        f"optimizer of the program with offload at stage {k.zero_stage} and "
        "zero_force_ds_cpu_optimizer = True"
    )


@offloaded_step_runs_on_the_host.fix
def _(_k: Knobs) -> Mapping[str, Any]:
    return {"zero_force_ds_cpu_optimizer": False}
