"""Resource scheduling: offload, allocator, and GPU resources that kernels compete for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import (
    has_expandable_segments,
    integer,
    is_meant,
)

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

MEM_POOL_FIXED = (2, 11)


@demand(
    "CMP201",
    "Layer CPU offloading with pipeline parallelism",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-core",
    source=sources.CONFIG,
    consequence='ValueError: "Currently there is no support for Pipeline parallelism with CPU '
    'offloading"',
    says="cpu_offloading with pp {pp}",
)
def layer_offload_in_a_pipeline(k: Knobs) -> bool:
    """Whole-layer offload swaps back in the reverse order of one forward pass.

    A pipeline has several micro-batches under way and returns to them in another order. Use
    fine-grained activation offloading, or recompute.

    Fails: megatron-lm 0.19: --cpu-offloading-num-layers 4 --pipeline-model-parallel-size 2
    Passes: megatron-lm 0.19: --cpu-offloading-num-layers 4 --pipeline-model-parallel-size 1
    """
    return bool(k.cpu_offloading and k.pp > 1)


@demand(
    "CMP202",
    "Layer CPU offloading with recompute",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-core",
    source=sources.CONFIG,
    consequence='ValueError: "CPU offloading does not work when activation recomputation is '
    'enabled"',
    says="cpu_offloading with recompute {recompute}",
)
def offloaded_and_recomputed(k: Knobs) -> bool:
    """What is recomputed was never kept, so there is nothing to offload.

    Fails: megatron-lm 0.19: --cpu-offloading-num-layers 4 --recompute-granularity full
    Passes: megatron-lm 0.19: --cpu-offloading-num-layers 4
    """
    return bool(k.cpu_offloading and k.recompute != "none")


@demand(
    "CMP203",
    "Offloading all layers",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-core",
    source=sources.CONFIG,
    consequence='ValueError: "CPU offloading can be done only for layers less than 8"',
    says="cpu_offloading_num_layers {cpu_offloading_num_layers} of {num_hidden_layers}",
)
def last_layer_is_offloaded(k: Knobs) -> bool:
    """The last layer's activations are needed at once; the swap has nothing to hide behind.

    Fails: knobs(cpu_offloading=True, cpu_offloading_num_layers=8, num_hidden_layers=8)
    Fails: megatron-lm 0.19: --cpu-offloading-num-layers 8 --num-layers 8
    Passes: megatron-lm 0.19: --cpu-offloading-num-layers 7 --num-layers 8
    """
    return bool(k.cpu_offloading and not 0 <= k.cpu_offloading_num_layers < k.num_hidden_layers)


@last_layer_is_offloaded.fix
def _(k: Knobs) -> dict[str, int]:
    return {"cpu_offloading_num_layers": k.num_hidden_layers - 1}


@demand(
    "CMP204",
    "Optimizer CPU offload prerequisites",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-lm>=0.12",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "The optimizer cpu offload must be used in conjunction with '
    '`--use-precision-aware-optimizer`"; with --fp8-param-gather only the delayed recipe',
    says="optimizer_offload with use_precision_aware_optimizer {use_precision_aware_optimizer}, "
    "fp8_param_gather {fp8_param_gather}",
    suggest={"use_precision_aware_optimizer": True},
)
def offload_takes_another_path(k: Knobs) -> bool:
    """The hybrid optimizer is built on the code path of the precision-aware one.

    Fails: megatron-lm 0.19: --optimizer-cpu-offload
    Fails: megatron-lm 0.19: --optimizer-cpu-offload --use-precision-aware-optimizer
        --fp8-param-gather --fp8-recipe mxfp8
    Passes: megatron-lm 0.19: --optimizer-cpu-offload --use-precision-aware-optimizer
    """
    if not k.optimizer_offload:
        return False
    quantized = k.get("fp8_param_gather") and k.get("fp8_recipe", "delayed") != "delayed"
    return bool(not k.use_precision_aware_optimizer or quantized)


@demand(
    "CMP205",
    "Fine-grained offload prerequisites",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-core>=0.16",
    source=f"{sources.CONFIG}; {sources.ARGUMENTS}",
    consequence='AssertionError: "Fine-grained activation offloading is only supported with '
    'transformer_engine implementation", or a bare one where no module is named; ValueError: '
    '"attn_proj cannot be set to offload_modules alone without core_attn"',
    says="offload_modules {offload_modules} with transformer_impl {transformer_impl}, "
    "cpu_offloading {cpu_offloading}, recompute_modules {recompute_modules}",
)
def module_offload_has_limits(k: Knobs) -> bool:
    """Modules are offloaded inside Transformer Engine, each by its input.

    The output projection's input is the attention's own, so the two go together; layers that are
    offloaded whole, or experts that are recomputed whole, leave no module to offload. From
    Transformer Engine 2.10 on it needs NVTE_CPU_OFFLOAD_V1=1 as well.

    Fails: megatron-lm 0.19: --fine-grained-activation-offloading --offload-modules attn_proj
    Fails: megatron-lm 0.19: --fine-grained-activation-offloading --offload-modules moe_act
        --recompute-modules moe
    Fails: megatron-lm 0.19: --fine-grained-activation-offloading --hidden-size 4096
    Passes: megatron-lm 0.19: --fine-grained-activation-offloading
        --offload-modules core_attn attn_proj --transformer-impl transformer_engine
    """
    if not k.fine_grained_activation_offloading:
        return False
    modules = set(k.get("offload_modules") or ())
    inside_moe = "moe" in (k.get("recompute_modules") or ()) and modules & {"moe_act", "expert_fc1"}
    return bool(
        k.get("transformer_impl", "transformer_engine") != "transformer_engine"
        or k.get("cpu_offloading")
        or (not modules and is_meant(k, "offload_modules"))
        or ("attn_proj" in modules and "core_attn" not in modules)
        or inside_moe
    )


@demand(
    "CMP213",
    "Expandable segments with graph registration",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-lm>=0.16",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access '
    'when using CUDA Graph with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."',
    says="expandable segments, cuda_graph_impl {cuda_graph_impl} and NCCL_GRAPH_REGISTER "
    "{nccl_graph_register}",
    suggest={"nccl_graph_register": 0},
)
def registered_segments_move(k: Knobs) -> bool:
    """NCCL registers the buffers that a graph uses, and expandable segments are mapped anew.

    Fails: knobs(expandable_segments=True, cuda_graph_impl="transformer_engine")
    Fails: megatron-lm 0.19: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun gpt.py
        --cuda-graph-impl transformer_engine
    Passes: knobs(expandable_segments=True, cuda_graph_impl="transformer_engine",
        nccl_graph_register=0)
    """
    registers = integer(k.get("nccl_graph_register")) != 0
    captured = k.cuda_graph_impl == "transformer_engine"
    return captured and registers and has_expandable_segments(k)


@demand(
    "CMP214",
    "Expandable segments with NCCL user buffers",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-core>=0.14",
    source=sources.DDP_CONFIG,
    confidence="read",
    consequence="ValueError: expandable segments are not supported with nccl_ub, because of the "
    "MemPool interface of torch below 2.11",
    says="expandable segments with nccl_ub",
    suggest={"nccl_ub": False},
)
def pool_of_moving_segments(k: Knobs) -> bool:
    """User buffers come from a memory pool of their own, which older torch keeps in fixed segments.

    Fails: knobs(expandable_segments=True, nccl_ub=True)
    Fails: megatron-lm 0.19: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun gpt.py
        --use-nccl-ub
    Passes: knobs(expandable_segments=True, nccl_ub=True, torch_version=[2, 13])
    """
    version = tuple(k.get("torch_version") or (0,))
    return bool(k.nccl_ub and version < MEM_POOL_FIXED and has_expandable_segments(k))


@demand(
    "CMP216",
    "Persistent norm kernels block overlapped collectives",
    severity=Severity.WARNING,
    section="6.2",
    scope="megatron-core",
    source="Megatron-Bridge docs/performance-guide.md (067f987d), failure of DP overlap",
    confidence="doc",
    consequence="the norm kernels hold every SM, so the overlapped collectives are not scheduled",
    says="overlap_grad_reduce with persistent norm kernels and no SM margin",
    suggest={"layernorm_sm_margin": 16},
)
def norms_hold_every_multiprocessor(k: Knobs) -> bool:
    """A persistent kernel spins on all SMs; leave some free (NVTE_FWD/BWD_LAYERNORM_SM_MARGIN=16).

    Fails: knobs(overlap_grad_reduce=True, te_persistent_norm=True, layernorm_sm_margin=0)
    Passes: knobs(overlap_grad_reduce=True, te_persistent_norm=True, layernorm_sm_margin=16)
    """
    stated = k.get("layernorm_sm_margin")
    margin = integer(k.nvte_fwd_layernorm_sm_margin if stated is None else stated)
    blocked = k.te_persistent_norm and margin == 0
    return bool(k.overlap_grad_reduce and blocked)


@demand(
    "CMP220",
    "TP-PP-DP mapping with Megatron-FSDP",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE,
    confidence="read",
    consequence="AssertionError: use_tp_pp_dp_mapping is not supported with Megatron FSDP",
    says="rank_order {rank_order} with use_megatron_fsdp",
    suggest={"rank_order": "tp-cp-ep-dp-pp"},
)
def shards_expect_another_order(k: Knobs) -> bool:
    """Megatron-FSDP builds its device mesh for the usual order, with data parallelism inside.

    Fails: megatron-bridge 0.6: dist.use_tp_pp_dp_mapping=true ddp.use_megatron_fsdp=true
    Fails: knobs(rank_order="tp-cp-ep-pp-dp", use_megatron_fsdp=True)
    Passes: megatron-bridge 0.6: dist.use_tp_pp_dp_mapping=false ddp.use_megatron_fsdp=true
    """
    return bool(k.rank_order == "tp-cp-ep-pp-dp" and k.use_megatron_fsdp)


@demand(
    "CMP221",
    "Meta initialisation without sharding",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-lm>=0.20",
    source="Megatron-LM megatron/training/arguments.py (d98e8a64; 0.19.2 accepts it)",
    consequence="ValueError: parameters on the meta device need a sharding strategy",
    says="meta_init with data_parallel_sharding_strategy {data_parallel_sharding_strategy}",
    suggest={"data_parallel_sharding_strategy": "optim_grads_params"},
)
def nothing_materializes_parameters(k: Knobs) -> bool:
    """Megatron-FSDP fills in parameters when it shards them; without sharding they stay empty.

    Fails: knobs(framework="megatron-lm 0.20", meta_init=True, use_megatron_fsdp=True,
        data_parallel_sharding_strategy="no_shard")
    Passes: knobs(framework="megatron-lm 0.20", meta_init=True, use_megatron_fsdp=True,
        data_parallel_sharding_strategy="optim_grads_params")
    """
    whole = k.data_parallel_sharding_strategy == "no_shard"
    return bool(k.meta_init and k.use_megatron_fsdp and whole)
