"""Megatron's arguments, judged by megatron-core: configurations, groups, layers and schedule."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from math import prod
from typing import TYPE_CHECKING, Any
from unittest import mock

from comparing import PER_NODE, Config, Subject, perturbed
from fake_ranks import fake_world

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

ON = (True,)
DENSE: Config = {
    "num_layers": 24,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "seq_length": 4096,
    "max_position_embeddings": 8192,
    "swiglu": True,
    "disable_bias_linear": True,
    "untie_embeddings_and_output_weights": True,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "vocab_size": 128256,
    "micro_batch_size": 1,
    "global_batch_size": 128,
    "bf16": True,
    "train_iters": 1000,
    "lr": 3e-4,
}
EXPERTS: Config = {
    "num_experts": 16,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 2048,
    "moe_grouped_gemm": True,
    "moe_token_dispatcher_type": "alltoall",
    "expert_tensor_parallel_size": 1,
}
ANY: dict[str, tuple[Any, ...]] = {
    "tensor_model_parallel_size": (1, 2, 3, 4, 8),
    "pipeline_model_parallel_size": (1, 2, 3, 4, 5),
    "context_parallel_size": (1, 2, 4),
    "sequence_parallel": (True, None),
    "num_layers": (24, 22, 30, 32),
    "num_attention_heads": (32, 24, 12, 16),
    "num_query_groups": (1, 2, 3, 8),
    "ffn_hidden_size": (14336, 10922, 11008),
    "micro_batch_size": (1, 2, 3),
    "global_batch_size": (16, 24, 100, 128, 256),
    "fp16": ON,
    "use_distributed_optimizer": ON,
    "overlap_grad_reduce": ON,
    "overlap_param_gather": ON,
    "num_distributed_optimizer_instances": (1, 2),
    "ddp_num_buckets": (4,),
    "ddp_bucket_size": (40_000_000,),
    "grad_reduce_in_bf16": ON,
    "fp8_format": ("e4m3", "hybrid"),
    "fp4_format": ("e2m1",),
    "first_last_layers_bf16": ON,
    "fp8_param_gather": ON,
    "attention_backend": ("fused", "flash"),
    "cp_comm_type": ("p2p", "a2a", "allgather"),
}
PIPELINE: dict[str, tuple[Any, ...]] = {
    "num_virtual_stages_per_pipeline_rank": (1, 2, 3, 4),
    "decoder_first_pipeline_num_layers": (0, 2, 4, 5, 6),
    "decoder_last_pipeline_num_layers": (2, 4, 5, 6),
    "account_for_embedding_in_pipeline_split": ON,
    "account_for_loss_in_pipeline_split": ON,
    "microbatch_group_size_per_virtual_pipeline_stage": (1, 3, 4, 8),
    "pipeline_model_parallel_layout": ("Et*6|t*6|t*6|t*6L", "Et*12|t*12L", "Et*11|(t*3|)*4tL"),
    "defer_embedding_wgrad_compute": ON,
    "overlap_p2p_communication_warmup_flush": ON,
}
RECOMPUTE: dict[str, tuple[Any, ...]] = {
    "recompute_granularity": ("full", "selective", None),
    "recompute_method": ("uniform", "block"),
    "recompute_num_layers": (1, 2),
    "recompute_modules": (["core_attn"], ["mlp", "layernorm"], ["moe_act"], ["mla_up_proj"]),
    "distribute_saved_activations": ON,
    "cpu_offloading_num_layers": (0, 4, 24, 40),
    "fine_grained_activation_offloading": ON,
    "offload_modules": (["core_attn"], ["attn_proj"], ["core_attn", "attn_proj"], ["moe_act"]),
    "cuda_graph_impl": ("none", "local", "transformer_engine", "full_iteration"),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8"),
}
MOE: dict[str, tuple[Any, ...]] = {
    "expert_model_parallel_size": (1, 2, 4, 5, 8, 16),
    "expert_tensor_parallel_size": (None, 1, 2, 4),
    "num_experts": (8, 12, 16, 64),
    "moe_router_topk": (1, 2, 4),
    "moe_token_dispatcher_type": ("alltoall", "allgather", "flex"),
    "moe_expert_capacity_factor": (1.0, 1.25),
    "moe_pad_expert_input_to_capacity": ON,
    "moe_router_load_balancing_type": ("aux_loss", "sinkhorn", "none", "seq_aux_loss"),
    "moe_router_score_function": ("softmax", "sigmoid"),
    "moe_router_enable_expert_bias": ON,
    "moe_router_pre_softmax": ON,
    "moe_router_num_groups": (2, 4, 5),
    "moe_router_group_topk": (1, 2, 8),
    "moe_router_padding_for_quantization": ON,
    "moe_shared_expert_intermediate_size": (2048,),
    "moe_shared_expert_overlap": ON,
    "overlap_moe_expert_parallel_comm": ON,
    "delay_wgrad_compute": ON,
    "disable_bias_linear": (True, None),
    "mtp_num_layers": (1, 2),
}


def draw(rng: random.Random) -> Config:
    """A dense or MoE model on a grid that tiles its GPUs, with up to three changes."""
    tp, pp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 1, 2))
    gpus = tp * pp * cp * rng.choice((1, 2, 4))
    arguments: Config = {
        **DENSE,
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "context_parallel_size": cp,
        "sequence_parallel": True if tp > 1 else None,
    }
    changes = [ANY]
    if rng.random() < 0.5:
        arguments |= EXPERTS | {"expert_model_parallel_size": rng.choice((1, 2))}
        changes.append(MOE)
    changes += [PIPELINE] if pp > 1 else []
    changes += [RECOMPUTE] if rng.random() < 0.5 else []
    for offered in changes:
        arguments = perturbed(rng, arguments, offered, most=1 if offered is ANY else 2)
    return {"gpus": gpus, "arguments": arguments}


def text(config: Config) -> str:
    """A launch of pretrain_gpt.py with every argument."""
    gpus = config["gpus"]
    per_node = min(gpus, PER_NODE)
    nodes = -(-gpus // per_node)
    head = f"torchrun --nproc-per-node {per_node} --nnodes {nodes} pretrain_gpt.py"
    options = [o for name, value in config["arguments"].items() if (o := _option(name, value))]
    connections = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    return connections + " \\\n    ".join([head, *options]) + "\n"


def _option(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return flag
    return f"{flag} {' '.join(map(str, value)) if isinstance(value, list) else repr(value)}"


def judge(config: Config) -> None:
    """What a training builds from the arguments before its model, and the model's splits."""
    arguments = config["arguments"]
    with _accelerated(), fake_world(config["gpus"]):
        built = _config(arguments)
        with _grid(arguments):
            _buckets(arguments)
            micro_batches = _micro_batches(arguments, config["gpus"])
            _layers(built)
            _interleaving(built, arguments, micro_batches)


@contextmanager
def _accelerated() -> Iterator[None]:
    """As if Transformer Engine were there, in its newest release."""
    from megatron.core.transformer import transformer_config

    with mock.patch.object(transformer_config, "is_te_min_version", return_value=True):
        yield


SAME = (  # arguments that the configuration has under the same name
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "normalization"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("expert_model_parallel_size", "expert_tensor_parallel_size", "bf16", "fp16"),
    *("fp8_recipe", "first_last_layers_bf16", "cp_comm_type", "mtp_num_layers"),
    *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
    *("pipeline_model_parallel_layout", "defer_embedding_wgrad_compute"),
    *("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"),
    *("distribute_saved_activations", "cpu_offloading_num_layers", "cuda_graph_impl"),
    *("fine_grained_activation_offloading", "offload_modules", "delay_wgrad_compute"),
    *("moe_router_topk", "moe_ffn_hidden_size", "moe_grouped_gemm", "moe_token_dispatcher_type"),
    *("moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"),
    *("moe_router_load_balancing_type", "moe_router_score_function"),
    *("moe_router_enable_expert_bias", "moe_router_pre_softmax", "moe_router_num_groups"),
    *("moe_router_group_topk", "moe_router_padding_for_quantization"),
    *("moe_shared_expert_intermediate_size", "moe_shared_expert_overlap"),
    "overlap_moe_expert_parallel_comm",
)
RENAMED = {
    "num_experts": "num_moe_experts",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
    "overlap_p2p_communication_warmup_flush": "overlap_p2p_comm_warmup_flush",
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "fp8_param_gather": "fp8_param",
}


def _config(arguments: Config) -> Any:
    """The TransformerConfig that the arguments stand for, as megatron.training hands them on."""
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    stated = {name: value for name, value in arguments.items() if value is not None}
    given = {name: stated[name] for name in SAME if name in stated}
    given |= {new: stated[old] for old, new in RENAMED.items() if old in stated}
    tp, pp = (stated[f"{axis}_model_parallel_size"] for axis in ("tensor", "pipeline"))
    chunks = stated.get("num_virtual_stages_per_pipeline_rank", 1)
    interleaved = pp > 1 and chunks > 1
    return TransformerConfig(
        **given,
        num_query_groups=stated["num_query_groups"],
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear="disable_bias_linear" not in stated,
        bias_activation_fusion=False,
        sequence_parallel=stated.get("sequence_parallel", False) and tp > 1,
        virtual_pipeline_model_parallel_size=chunks if interleaved else None,
        overlap_p2p_comm=_virtual(stated) > 1,
        batch_p2p_comm=_virtual(stated) <= 1,
        cpu_offloading=stated.get("cpu_offloading_num_layers", 0) > 0,
        gradient_accumulation_fusion=True,
        params_dtype=torch.float16 if "fp16" in stated else torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        use_cpu_initialization=True,
    )


def _virtual(stated: Config) -> int:
    """Chunks of a rank, by count or as a layout has them."""
    pp = stated["pipeline_model_parallel_size"]
    if layout := stated.get("pipeline_model_parallel_layout"):
        from megatron.core.transformer.pipeline_parallel_layer_layout import (
            PipelineParallelLayerLayout,
        )

        return int(
            PipelineParallelLayerLayout.from_str(layout, pp).virtual_pipeline_model_parallel_size
        )
    return int(stated.get("num_virtual_stages_per_pipeline_rank", 1)) if pp > 1 else 1


@contextmanager
def _grid(arguments: Config) -> Iterator[None]:
    """The process groups of all axes."""
    from megatron.core import parallel_state

    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    try:
        parallel_state.initialize_model_parallel(
            **{name: arguments[name] for name in names},
            expert_model_parallel_size=arguments.get("expert_model_parallel_size") or 1,
            expert_tensor_parallel_size=arguments.get("expert_tensor_parallel_size"),
            create_gloo_process_groups=False,
            num_distributed_optimizer_instances=arguments.get("num_distributed_optimizer_instances")
            or 1,
        )
        yield
    finally:
        parallel_state.destroy_model_parallel()


def _buckets(arguments: Config) -> None:
    from megatron.core.distributed import DistributedDataParallelConfig

    DistributedDataParallelConfig(
        grad_reduce_in_fp32="grad_reduce_in_bf16" not in arguments,
        num_buckets=arguments.get("ddp_num_buckets"),
        bucket_size=arguments.get("ddp_bucket_size"),
        fp8_param_gather=bool(arguments.get("fp8_param_gather")),
        use_distributed_optimizer=bool(arguments.get("use_distributed_optimizer")),
    )


def _micro_batches(arguments: Config, gpus: int) -> int:
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator

    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    calculator = ConstantNumMicroBatchesCalculator(
        global_batch_size=arguments["global_batch_size"],
        micro_batch_size=arguments["micro_batch_size"],
        data_parallel_size=gpus // prod(arguments[name] for name in names),
        decrease_batch_size_if_needed=False,
        rank=1,
    )
    return int(calculator.get())


def _layers(config: Any) -> None:
    """The split of layers over stages, of widths over ranks, and of experts."""
    config.gradient_accumulation_fusion = False  # no kernel of it is here
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel import ColumnParallelLinear
    from megatron.core.transformer.moe.moe_layer import BaseMoELayer
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    for rank in range(config.pipeline_model_parallel_size):
        for chunk in range(config.virtual_pipeline_model_parallel_size or 1):
            interleaved = config.virtual_pipeline_model_parallel_size is not None
            get_num_layers_to_build(config, chunk if interleaved else None, rank)
    ColumnParallelLinear(
        1,
        config.ffn_hidden_size,
        config=config,
        init_method=config.init_method,
        skip_weight_param_allocation=True,
    )
    if config.num_moe_experts:
        layer = type("Layer", (BaseMoELayer,), {"forward": None})
        layer(config, pg_collection=ProcessGroupCollection.use_mpu_process_groups())


class Reached(Exception):  # noqa: N818 - the schedule has come as far as it is asked to
    """Everything that is compared has been passed."""


def _interleaving(config: Any, arguments: Config, micro_batches: int) -> None:
    """The interleaved schedule until it sends its first tensor."""
    import torch
    from megatron.core.pipeline_parallel import schedules

    chunks = config.virtual_pipeline_model_parallel_size
    if chunks is None:
        return
    models = [torch.nn.Module() for _ in range(chunks)]
    for model in models:
        model.config = config  # type: ignore[assignment]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(schedules, "get_model_type", side_effect=Reached))
        stack.enter_context(mock.patch.object(schedules, "P2PCommunicator", _Neighbors))
        stack.enter_context(mock.patch.object(torch, "zeros", return_value=0))  # of a GPU
        try:
            schedules.forward_backward_pipelining_with_interleaving(
                forward_step_func=None,
                data_iterator=[None] * chunks,
                model=models,
                num_microbatches=micro_batches,
                seq_length=arguments["seq_length"],
                micro_batch_size=arguments["micro_batch_size"],
                forward_only=True,
            )
        except Reached:
            return


class _Neighbors:
    """What the schedule asks of its communicator before it sends anything."""

    def __init__(self, pp_group: Any, config: Any) -> None:
        self.pp_group, self.config = pp_group, config


SUBJECT = Subject(
    name="megatron-core",
    framework="megatron-lm",
    version="0.19.2",
    file="train.sh",
    draw=draw,
    text=text,
    judge=judge,
    later={
        **dict.fromkeys(
            (
                "CMP119",
                "CMP132",
                "DAT109",
                "DAT218",
                "DAT219",
                "DAT222",
                "MOD107",
                "MOD118",
            ),
            "megatron.training's argument validation, which no wheel has",
        ),
        **dict.fromkeys(("COM114", "MOD154"), "the dispatcher, in the first forward pass"),
        "MOD168": "the attention kernel of Transformer Engine",
    },
    accepted={
        r"^only we refuse: CMP116$": "a method beside selective recompute: refused by "
        "megatron.training's argument validation, as is more that megatron-core refuses too",
    },
)
