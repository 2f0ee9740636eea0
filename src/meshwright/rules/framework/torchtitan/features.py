"""torchtitan's options that exclude or require one another.

Sections 4.3, 5.1, 5.3, 6.1, 6.2, 6.3 and 7.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import degree

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

_CONFIGS = "torchtitan torchtitan/config/configs.py"
_POST = "torchtitan torchtitan/trainer.py Trainer.Config.__post_init__ (0.3.0)"
_DISPATCH = "torchtitan torchtitan/models/common/token_dispatcher.py"
_SPECIAL = ("deepep", "hybridep", "minimal_async")
_EVEN = ("hybridep", "minimal_async")


def _compiles_model(k: Knobs) -> bool:
    """Whether torch.compile is on and covers the model."""
    return bool(k.get("compile", False)) and "model" in (k.get("compile_components") or ["model"])


# torch.compile and recompute


@demand(
    "CMP125",
    "Memory-budget checkpointing without compile",
    severity=Severity.ERROR,
    section="6.1",
    scope="torchtitan>=0.2",
    source=_POST,
    consequence="ValueError: Memory budget activation checkpointing requires the model to be "
    "compiled: set --compile.enable",
)
def budget_needs_the_compiler(k: Knobs) -> bool:
    """The compiler's partitioner is what spends the budget.

    Fails: torchtitan 0.2: [activation_checkpoint]
        mode = "memory_budget"
        [compile]
        enable = false
    Passes: torchtitan 0.2: [activation_checkpoint]
        mode = "memory_budget"
        [compile]
        enable = true
        components = ["model", "loss"]
    """
    return k.get("ac_mode") == "memory_budget" and not _compiles_model(k)


@budget_needs_the_compiler.message
def _(k: Knobs) -> str:
    return (
        f"activation_checkpoint.mode = {k.ac_mode} with compile.enable = {k.get('compile', False)}"
    )


budget_needs_the_compiler.fix(set_to(compile=True))


@demand(
    "MOD304",
    "Async TP without compile",
    severity=Severity.ERROR,
    section="5.3",
    scope="torchtitan>=0.2",
    source=f"{_CONFIGS} CompileConfig (0.3.0)",
    consequence="ValueError: Async TP requires 'model' in --compile.components and "
    "--compile.enable",
)
def async_tp_needs_the_compiler(k: Knobs) -> bool:
    """Products and collectives are interleaved by a pass of the compiler.

    Fails: torchtitan 0.2: [parallelism]
        tensor_parallel_degree = 4
        enable_async_tensor_parallel = true
        [compile]
        enable = false
    Passes: torchtitan 0.2: [parallelism]
        tensor_parallel_degree = 4
        enable_async_tensor_parallel = true
        [compile]
        enable = true
        components = ["model"]
    """
    return bool(k.get("async_tp", False)) and not _compiles_model(k)


@async_tp_needs_the_compiler.message
def _(k: Knobs) -> str:
    return f"enable_async_tensor_parallel = True with compile.enable = {k.get('compile', False)}"


async_tp_needs_the_compiler.fix(set_to(compile=True))


# Type checking


@demand(
    "CMP180",
    "SPMD type checking where it is not supported",
    severity=Severity.ERROR,
    section="6.1",
    scope="torchtitan>=0.3",
    source=_POST,
    consequence="ValueError: SPMD typechecking is not supported with pipeline parallelism; "
    "Selective activation checkpointing (SAC) is not supported with FlexAttention while SPMD "
    "typechecking is enabled",
    suggest={"spmd_typechecking": False},
)
def types_are_checked_without_stages(k: Knobs) -> bool:
    """The checker follows neither a pipeline nor selective recompute around FlexAttention.

    Fails: knobs(framework="torchtitan 0.3", spmd_typechecking=True, pp=2)
    Fails: knobs(framework="torchtitan 0.3", spmd_typechecking=True, pp=1, ac_mode="selective",
        attention_backend="flex")
    Passes: knobs(framework="torchtitan 0.3", spmd_typechecking=True, pp=1, ac_mode="full",
        attention_backend="flex")
    """
    if not k.spmd_typechecking:
        return False
    flex = k.get("attention_backend") == "flex"
    return degree(k, "pp") > 1 or (k.get("ac_mode") == "selective" and flex)


@types_are_checked_without_stages.message
def _(k: Knobs) -> str:
    return (
        f"spmd_typechecking with pp {degree(k, 'pp')}, activation checkpointing "
        f"{k.get('ac_mode')}, attention {k.get('attention_backend')}"
    )


# CUDA graphs


@demand(
    "CMP128",
    "CUDA graphs with pipeline parallelism (torchtitan)",
    severity=Severity.ERROR,
    section="6.1",
    scope="torchtitan>=0.3",
    source=f"{_POST} _validate_cuda_graphs",
    consequence="ValueError: CUDA graphs do not support pipeline parallelism yet. Set "
    "--training.disable_cuda_graphs.",
)
def graphs_have_one_stage(k: Knobs) -> bool:
    """Release 0.3 captures CUDA graphs unless told not to, and refuses them with a pipeline.

    So every configuration with pp > 1 must say disable_cuda_graphs.

    Fails: knobs(framework="torchtitan 0.3", cuda_graph=True, pp=2)
    Passes: knobs(framework="torchtitan 0.3", cuda_graph=False, pp=2)
    """
    return bool(k.get("cuda_graph", False)) and degree(k, "pp") > 1


@graphs_have_one_stage.message
def _(k: Knobs) -> str:
    return f"CUDA graphs on with pp {k.pp}"


graphs_have_one_stage.fix(set_to(cuda_graph=False))


@demand(
    "CMP129",
    "CUDA graphs with all-to-all EP (torchtitan)",
    severity=Severity.ERROR,
    section="6.1",
    scope="torchtitan>=0.3",
    source=f"{_POST} _validate_cuda_graphs",
    consequence="ValueError: CUDA graphs support only expert parallel token dispatcher "
    "configurations without CPU synchronization",
)
def graphs_dispatch_without_the_host(k: Knobs) -> bool:
    """The default dispatcher asks the host how many tokens arrive, which a graph cannot.

    Only minimal_async, or HybridEP with a fixed capacity, work inside a graph.

    Fails: knobs(framework="torchtitan 0.3", cuda_graph=True, ep=8)
    Passes: knobs(framework="torchtitan 0.3", cuda_graph=False, ep=8)
    Passes: knobs(framework="torchtitan 0.3", cuda_graph=True, ep=8, ep_backend="minimal_async")
    """
    if not k.get("cuda_graph", False) or degree(k, "ep") == 1:
        return False
    if k.get("num_experts") == 0:  # a model without experts has no dispatcher
        return False
    backend = k.get("ep_backend") or "standard"
    fixed = backend == "hybridep" and k.get("non_blocking_capacity_factor") is not None
    return not (backend == "minimal_async" or fixed)


@graphs_dispatch_without_the_host.message
def _(k: Knobs) -> str:
    return f"CUDA graphs on with ep {k.ep} and dispatcher {k.get('ep_backend') or 'standard'}"


graphs_dispatch_without_the_host.fix(set_to(cuda_graph=False))


# Dispatchers and symmetric memory


@demand(
    "COM115",
    "Special EP backend without EP or with uneven tokens",
    severity=Severity.ERROR,
    section="7.1",
    scope="torchtitan>=0.3",
    source=f"{_DISPATCH} update_ep_token_dispatcher_config (0.3.0)",
    consequence="ValueError: the dispatcher requires expert parallelism "
    "(expert_parallel_degree > 1), and training.seq_len divisible by "
    "context_parallel_degree * tensor_parallel_degree",
)
def special_dispatch_has_ranks_and_even_tokens(k: Knobs) -> bool:
    """DeepEP, HybridEP and minimal_async dispatch between ranks, the last two in equal parts.

    Fails: knobs(framework="torchtitan 0.3", ep_backend="hybridep", ep=1, seq_len=4096)
    Fails: knobs(framework="torchtitan 0.3", ep_backend="hybridep", ep=8, seq_len=4100, tp=8)
    Passes: knobs(framework="torchtitan 0.3", ep_backend="hybridep", ep=8, seq_len=4096, tp=8)
    """
    backend = k.get("ep_backend")
    if backend not in _SPECIAL:
        return False
    ranks = degree(k, "cp") * degree(k, "tp")
    return degree(k, "ep") == 1 or bool(backend in _EVEN and k.seq_len % ranks)


@special_dispatch_has_ranks_and_even_tokens.message
def _(k: Knobs) -> str:
    return (
        f"dispatcher = {k.ep_backend} with ep {degree(k, 'ep')}, seq_len {k.get('seq_len')} over "
        f"cp {degree(k, 'cp')} * tp {degree(k, 'tp')}"
    )


special_dispatch_has_ranks_and_even_tokens.fix(set_to(ep_backend=None))


@demand(
    "CMP211",
    "Symmetric-memory FSDP on old GPUs",
    severity=Severity.ERROR,
    section="6.2",
    scope="torchtitan>=0.3",
    source=f"{_CONFIGS} ParallelismConfig (0.3.0)",
    consequence="ValueError: parallelism.enable_fsdp_symm_mem is only supported for compute "
    "capability 9.0 or newer",
)
def symmetric_memory_has_its_hardware(k: Knobs) -> bool:
    """Gathers through symmetric memory use what Hopper brought.

    Fails: knobs(framework="torchtitan 0.3", enable_fsdp_symm_mem=True, gpu_cc=80)
    Passes: knobs(framework="torchtitan 0.3", enable_fsdp_symm_mem=True, gpu_cc=90)
    """
    return bool(k.get("enable_fsdp_symm_mem", False) and k.gpu_cc < 90)


@symmetric_memory_has_its_hardware.message
def _(k: Knobs) -> str:
    return f"enable_fsdp_symm_mem = True on compute capability {k.gpu_cc / 10:.1f}"


symmetric_memory_has_its_hardware.fix(set_to(enable_fsdp_symm_mem=False))


# Context parallelism


@demand(
    "CMP315",
    "Empty string as CP balancer",
    severity=Severity.ERROR,
    section="6.3",
    scope="torchtitan>=0.3",
    source=f"{_CONFIGS} (0.3.0)",
    consequence="ValueError: context_parallel_load_balancer cannot be an empty string. Use None "
    "to disable load balancing.",
)
def balancer_has_a_name(k: Knobs) -> bool:
    """No balancing is None, not an empty name.

    Fails: knobs(framework="torchtitan 0.3", cp_load_balancer="")
    Passes: knobs(framework="torchtitan 0.3", cp_load_balancer=None)
    """
    return bool(k.get("cp_load_balancer") == "")


@balancer_has_a_name.message
def _(_k: Knobs) -> str:
    return "context_parallel_load_balancer = ''; None switches it off"


balancer_has_a_name.fix(set_to(cp_load_balancer=None))


@demand(
    "MOD183",
    "Varlen attention with torch CP",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/models/llama3/model.py (0.3.0); "
    "torchtitan/models/deepseek_v3/model/args.py (0.2.2)",
    consequence="NotImplementedError: context parallel only supports SDPA and FlexAttention",
    confidence="read",
)
def context_parallel_knows_the_kernel(k: Knobs) -> bool:
    """torch's context parallelism rewrites SDPA and FlexAttention, no other kernel.

    Fails: knobs(framework="torchtitan 0.3", cp=2, attention_backend="varlen")
    Passes: knobs(framework="torchtitan 0.3", cp=2, attention_backend="flex")
    """
    return degree(k, "cp") > 1 and k.get("attention_backend") == "varlen"


@context_parallel_knows_the_kernel.message
def _(k: Knobs) -> str:
    return f"attention = {k.attention_backend} with cp {k.cp}"


context_parallel_knows_the_kernel.fix(set_to(attention_backend="sdpa"))


# Files


@demand(
    "CMP114",
    "Schedule CSV missing",
    severity=Severity.ERROR,
    section="6.1",
    scope="torchtitan",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py _build_pipeline_schedule "
    "(0.3.0)",
    consequence="FileNotFoundError: The specified path does not exist or is not a file.",
)
def schedule_file_exists(k: Knobs) -> bool:
    """A schedule that is given as a table must be there when the pipeline is built.

    Fails: knobs(framework="torchtitan 0.3", pp_schedule_csv="zb.csv", pp_schedule_csv_exists=False)
    Passes: knobs(framework="torchtitan 0.3", pp_schedule_csv="zb.csv", pp_schedule_csv_exists=True)
    """
    return bool(k.get("pp_schedule_csv")) and not k.pp_schedule_csv_exists


@schedule_file_exists.message
def _(k: Knobs) -> str:
    return f"pipeline_parallel_schedule_csv = {k.pp_schedule_csv}: no such file"


@demand(
    "DAT331",
    "HF export of a full training state",
    severity=Severity.ERROR,
    section="4.3",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/components/checkpointer/base.py (0.3.0)",
    consequence="ValueError: last_save_in_hf requires last_save_model_only=True.",
)
def export_is_of_weights(k: Knobs) -> bool:
    """The format of the hub has no place for optimizer states.

    Fails: torchtitan 0.2: [checkpoint]
        enable = true
        last_save_in_hf = true
        last_save_model_only = false
    Passes: torchtitan 0.2: [checkpoint]
        enable = true
        last_save_in_hf = true
        last_save_model_only = true
    """
    return bool(k.get("last_save_in_hf", False)) and not k.get("last_save_model_only", True)


@export_is_of_weights.message
def _(_k: Knobs) -> str:
    return "last_save_in_hf = True with last_save_model_only = False"


export_is_of_weights.fix(set_to(last_save_model_only=True))
