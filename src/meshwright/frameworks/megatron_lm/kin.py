"""Names that tell Megatron's kin from other frameworks, and how surely they do."""

from __future__ import annotations

MESH = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "pipeline_model_parallel_layout",
    }
)
COMMON = frozenset(
    {
        "sequence_parallel",
        "use_distributed_optimizer",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
        "micro_batch_size",
        "global_batch_size",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "moe_token_dispatcher_type",
        "moe_grouped_gemm",
        "moe_router_load_balancing_type",
        "moe_layer_freq",
        "cross_entropy_loss_fusion",
        "tp_comm_overlap",
        "attention_backend",
        "ckpt_format",
        "optimizer_cpu_offload",
        "cp_comm_type",
        "num_moe_experts",
        "fp8_recipe",
    }
)
ARGUMENTS = frozenset(
    {
        "untie_embeddings_and_output_weights",
        "group_query_attention",
        "num_query_groups",
        "ffn_hidden_size",
        "disable_bias_linear",
        "swiglu",
        "max_position_embeddings",
        "train_iters",
        "train_samples",
        "make_vocab_size_divisible_by",
        "no_overlap_p2p_communication",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "use_megatron_fsdp",
        "data_parallel_sharding_strategy",
        "use_torch_fsdp2",
        "transformer_impl",
        "use_mcore_models",
        "moe_expert_model_parallelism",
        "moe_num_experts",
        "no_load_optim",
        "use_checkpoint_args",
        "target_tensor_parallel_size",
        "target_pipeline_parallel_size",
        "overlap_moe_expert_parallel_comm",
        "encoder_tensor_model_parallel_size",
        "use_flash_attn",
        "rampup_batch_size",
        "step_batch_size_schedule",
        "num_experts",
        "moe_router_topk",
        "dist_ckpt_format",
    }
)
SHAPE = frozenset(
    {"num_layers", "hidden_size", "num_attention_heads", "seq_length", "bf16", "fp16"}
)


def sure(mesh: int, common: int, own: int) -> float:
    """From counts of telling names to a sureness below that of a program's name."""
    if mesh + common + own == 0:
        return 0.0
    return min(0.25 * (mesh > 0) + 0.12 * mesh + 0.08 * common + 0.15 * own, 0.9)
