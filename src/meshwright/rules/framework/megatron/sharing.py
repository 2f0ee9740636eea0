"""Parameter sharing: tied weights, replicated parameters and reused buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD201",
    "Tied embeddings with torch FSDP2 in Megatron",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--use-torch-fsdp2 requires '
    '--untie-embeddings-and-output-weights"',
    says="use_torch_fsdp2 with tie_word_embeddings {tie_word_embeddings}",
)
def tied_weights_under_fsdp2(k: Knobs) -> bool:
    """Embedding and head are wrapped apart, and one tensor cannot be sharded by two wrappers.

    Without --untie-embeddings-and-output-weights Megatron ties them. Megatron-FSDP has no such
    limit.

    Fails: megatron-lm 0.19: --use-torch-fsdp2
    Passes: megatron-lm 0.19: --use-torch-fsdp2 --untie-embeddings-and-output-weights
    """
    return bool(k.use_torch_fsdp2 and k.tie_word_embeddings)


@demand(
    "MOD207",
    "Replicated parameters not marked under sequence parallelism",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-core",
    source="Megatron-LM megatron/core/distributed/finalize_model_grads.py "
    "_allreduce_non_tensor_model_parallel_grads (0.19.2)",
    confidence="read",
    consequence="no error: the copies of such a parameter drift apart over the tensor-parallel "
    "ranks",
    says="own replicated parameters under sequence_parallel are not marked",
)
def replicas_drift_apart(k: Knobs) -> bool:
    """Under sequence parallelism a replicated weight sees one slice of the tokens on each rank.

    Its gradient is summed over the tensor-parallel group only where `param.sequence_parallel` is
    set; norms and routers of the library have it, hand-written ones do not.

    Fails: knobs(sequence_parallel=True, has_custom_replicated_params=True,
        marks_sequence_parallel_params=False)
    Passes: knobs(sequence_parallel=True, has_custom_replicated_params=True,
        marks_sequence_parallel_params=True)
    """
    own = k.sequence_parallel and k.has_custom_replicated_params
    return bool(own and not k.marks_sequence_parallel_params)


@demand(
    "MOD215",
    "MXFP8 parameter gather without buffer reuse",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE,
    consequence="AssertionError: reuse_grad_buf_for_mxfp8_param_ag must be set",
    says="fp8_param_gather with fp8_recipe {fp8_recipe} and reuse_grad_buf_for_mxfp8_param_ag "
    "{reuse_grad_buf_for_mxfp8_param_ag}",
    suggest={"reuse_grad_buf_for_mxfp8_param_ag": True},
)
def quantized_gather_has_no_buffer(k: Knobs) -> bool:
    """MXFP8 weights are quantized after the gather, which lands in the idle gradient buffer.

    Fails: knobs(fp8_param_gather=True, fp8_recipe="mxfp8", reuse_grad_buf_for_mxfp8_param_ag=False)
    Passes: megatron-bridge 0.6: ddp.fp8_param_gather=true model.fp8_recipe=mxfp8
        ddp.reuse_grad_buf_for_mxfp8_param_ag=true
    """
    gathers = k.fp8_param_gather and k.fp8_recipe == "mxfp8" and not k.get("use_megatron_fsdp")
    return bool(gathers and not k.reuse_grad_buf_for_mxfp8_param_ag)


@demand(
    "MOD215",
    "Gradient buffer reused without MXFP8 parameters",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-core>=0.13",
    source=sources.DDP_CONFIG,
    consequence='AssertionError: "Reuse grad buffer only when keeping params in MXFP8."',
    says="reuse_grad_buf_for_mxfp8_param_ag with fp8_param_gather {fp8_param_gather}",
    suggest={"reuse_grad_buf_for_mxfp8_param_ag": None},
    safe=True,
)
def buffer_is_reused_for_nothing(k: Knobs) -> bool:
    """The gradient buffer may hold gathered parameters only where those are kept in MXFP8.

    Fails: megatron-lm 0.19: --reuse-grad-buf-for-mxfp8-param-ag
    Passes: megatron-lm 0.19: --reuse-grad-buf-for-mxfp8-param-ag --fp8-param-gather
    """
    return bool(k.reuse_grad_buf_for_mxfp8_param_ag and not k.fp8_param_gather)


@demand(
    "MOD216",
    "Weight shards not a multiple of TP (GTP)",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-core>=0.19",
    source="Megatron-LM megatron/core/model_parallel_config.py "
    "resolve_tensor_parallel_weight_shards (0.19.2)",
    consequence='ValueError: "tensor_parallel_num_weight_shards (6) must be divisible by '
    'tensor_model_parallel_size (4)."',
    says="tensor_parallel_num_weight_shards {tensor_parallel_num_weight_shards} over tp {tp}",
)
def shards_do_not_tile_tensor_parallelism(k: Knobs) -> bool:
    """Each tensor-parallel slice is stored in equal shards; their product divides the GPUs too.

    Fails: megatron-lm 0.19: --tensor-parallel-num-weight-shards 6 --tensor-model-parallel-size 4
    Passes: megatron-lm 0.19: --tensor-parallel-num-weight-shards 8 --tensor-model-parallel-size 4
    """
    return bool(k.tensor_parallel_num_weight_shards % k.tp)


@shards_do_not_tile_tensor_parallelism.fix
def _(k: Knobs) -> dict[str, int]:
    return {
        "tensor_parallel_num_weight_shards": -(-k.tensor_parallel_num_weight_shards // k.tp) * k.tp
    }
