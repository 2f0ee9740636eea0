"""Synchronization: sharded optimizers, FSDP, reduction precision and their flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "DAT204",
    "Torch FSDP2 with pipeline parallelism (Megatron)",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--use-torch-fsdp2 is not supported with pipeline parallelism"',
    says="use_torch_fsdp2 with pp {pp}",
)
def fsdp2_in_a_pipeline(k: Knobs) -> bool:
    """Megatron's FSDP2 path gathers and reduces once a step, which no pipeline schedule calls.

    torchtitan does combine the two. Here, shard with the distributed optimizer or Megatron-FSDP.

    Fails: megatron-lm 0.19: --use-torch-fsdp2 --pipeline-model-parallel-size 2
    Passes: megatron-lm 0.19: --use-torch-fsdp2 --pipeline-model-parallel-size 1
    """
    return bool(k.use_torch_fsdp2 and k.pp > 1)


@demand(
    "DAT205",
    "Torch FSDP2 with expert parallelism (Megatron)",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--use-torch-fsdp2 is not supported with expert parallelism"',
    says="use_torch_fsdp2 with ep {ep}",
)
def fsdp2_with_experts(k: Knobs) -> bool:
    """Torch FSDP2 shards everything over one group; experts would need a group of their own.

    Fails: megatron-lm 0.19: --use-torch-fsdp2 --expert-model-parallel-size 8
    Passes: megatron-lm 0.19: --use-torch-fsdp2 --expert-model-parallel-size 1
    """
    return bool(k.use_torch_fsdp2 and k.ep > 1)


@demand(
    "DAT206",
    "Torch FSDP2 together with the distributed optimizer",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    consequence="AssertionError: \"--use-torch-fsdp2 is not supported with MCore's distributed "
    'optimizer"',
    says="use_torch_fsdp2 beside use_distributed_optimizer",
    suggest={"use_distributed_optimizer": None},
    safe=True,
)
def states_are_sharded_twice(k: Knobs) -> bool:
    """FSDP2 already shards the optimizer's states; the distributed optimizer would do so again.

    Fails: megatron-lm 0.19: --use-torch-fsdp2 --use-distributed-optimizer
    Passes: megatron-lm 0.19: --use-torch-fsdp2
    """
    return bool(k.use_torch_fsdp2 and k.use_distributed_optimizer)


@demand(
    "DAT207",
    "Torch FSDP2 with gradient-accumulation fusion",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.10",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--use-torch-fsdp2 is not supported with gradient accumulation '
    'fusion"',
    says="use_torch_fsdp2 with gradient_accumulation_fusion, which is on unless turned off",
    suggest={"gradient_accumulation_fusion": False},
)
def fused_accumulation_bypasses_fsdp2(k: Knobs) -> bool:
    """The fused kernel adds weight gradients into Megatron's own buffer, which FSDP2 never reads.

    The fusion is the default, so FSDP2 always needs --no-gradient-accumulation-fusion.

    Fails: megatron-lm 0.19: --use-torch-fsdp2
    Passes: megatron-lm 0.19: --use-torch-fsdp2 --no-gradient-accumulation-fusion
    """
    return bool(k.use_torch_fsdp2 and k.gradient_accumulation_fusion)


@demand(
    "DAT218",
    "overlap_param_gather without a sharded optimizer",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--overlap-param-gather only supported with distributed '
    'optimizer, megatron fsdp, or dist_muon"',
    says="overlap_param_gather with use_distributed_optimizer {use_distributed_optimizer}",
    suggest={"use_distributed_optimizer": True},
)
def nothing_to_gather(k: Knobs) -> bool:
    """Only sharded optimizers gather parameters, so there is nothing to overlap without one.

    Fails: megatron-lm 0.19: --overlap-param-gather
    Passes: megatron-lm 0.19: --overlap-param-gather --use-distributed-optimizer
    """
    sharded = (
        k.use_distributed_optimizer
        or k.get("use_megatron_fsdp")
        or k.get("use_custom_fsdp")
        or "muon" in str(k.get("optimizer"))
    )
    return bool(k.overlap_param_gather and not sharded)


@demand(
    "DAT219",
    "overlap_param_gather without overlap_grad_reduce",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.9",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Must use --overlap-param-gather with --overlap-grad-reduce"',
    says="overlap_param_gather {overlap_param_gather}, overlap_grad_reduce {overlap_grad_reduce}",
    suggest={"overlap_grad_reduce": True},
)
def gather_without_reduction(k: Knobs) -> bool:
    """Overlapped gathers wait on the buckets that the overlapped reduction makes.

    Fails: megatron-lm 0.19: --overlap-param-gather
    Passes: megatron-lm 0.19: --overlap-param-gather --overlap-grad-reduce
    """
    return bool(k.overlap_param_gather and not k.overlap_grad_reduce)


@demand(
    "DAT220",
    "Gather overlapped with the optimizer step without VPP",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.9",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--overlap-param-gather-with-optimizer-step only supported with '
    'interleaved pipeline parallelism", nor "with distributed checkpointing yet"',
    says="overlap_param_gather_with_optimizer_step with vpp {vpp}, overlap_param_gather "
    "{overlap_param_gather}, ckpt_format {ckpt_format}",
    suggest={"overlap_param_gather_with_optimizer_step": None},
)
def gather_in_the_step_needs_chunks(k: Knobs) -> bool:
    """The step of one model chunk hides the gather of another, so there must be several.

    The path also needs overlapped gathers, and the old checkpoint format.

    Fails: megatron-lm 0.19: --overlap-param-gather-with-optimizer-step
        --num-virtual-stages-per-pipeline-rank 1 --overlap-param-gather --ckpt-format torch
    Fails: megatron-lm 0.19: --overlap-param-gather-with-optimizer-step
        --num-virtual-stages-per-pipeline-rank 2 --overlap-param-gather --ckpt-format torch_dist
    Passes: megatron-lm 0.19: --overlap-param-gather-with-optimizer-step
        --num-virtual-stages-per-pipeline-rank 2 --overlap-param-gather --ckpt-format torch
    """
    ready = k.vpp > 1 and k.overlap_param_gather and k.ckpt_format == "torch"
    return bool(k.overlap_param_gather_with_optimizer_step and not ready)


@demand(
    "DAT222",
    "Optimizer instances without the distributed optimizer",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-core>=0.10",
    source=sources.DDP,
    confidence="read",
    consequence='AssertionError: "Partial DistOpt cannot be used without DistOpt"',
    says="num_distributed_optimizer_instances {num_distributed_optimizer_instances} without "
    "use_distributed_optimizer",
    suggest={"use_distributed_optimizer": True},
)
def instances_of_no_optimizer(k: Knobs) -> bool:
    """Several instances mean that the optimizer is sharded inside each and replicated across.

    Fails: megatron-lm 0.19: --num-distributed-optimizer-instances 2
    Passes: megatron-lm 0.19: --num-distributed-optimizer-instances 2 --use-distributed-optimizer
    """
    sharded = k.use_distributed_optimizer or k.get("use_megatron_fsdp")
    return bool(k.num_distributed_optimizer_instances > 1 and not sharded)


@demand(
    "DAT223",
    "FP32-accumulating reduce-scatter with several optimizer instances",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-core>=0.16",
    source="Megatron-LM megatron/core/distributed/param_and_grad_buffer.py (0.19.2)",
    confidence="read",
    consequence="AssertionError: reduce-scatter with FP32 accumulation is not supported with more "
    "than one optimizer instance",
    says="reduce_scatter_with_fp32_accumulation with num_distributed_optimizer_instances "
    "{num_distributed_optimizer_instances}",
)
def exact_reduction_over_instances(k: Knobs) -> bool:
    """That reduce-scatter is an all-to-all with a local sum; it has no second step over instances.

    It needs one bucket a group as well, and is dropped where gradients are FP32 on the wire anyway.

    Fails: megatron-lm 0.19: --ddp-reduce-scatter-with-fp32-accumulation
        --num-distributed-optimizer-instances 2
    Passes: megatron-lm 0.19: --ddp-reduce-scatter-with-fp32-accumulation
        --num-distributed-optimizer-instances 1
    """
    several = degree(k, "num_distributed_optimizer_instances") > 1
    return bool(k.reduce_scatter_with_fp32_accumulation and several)


@demand(
    "DAT225",
    "fp16 and bf16 both enabled",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-core; deepspeed; transformers",
    source=f"{sources.CONFIG}; DeepSpeed deepspeed/runtime/config.py DeepSpeedConfig (0.19.8); "
    "transformers TrainingArguments.__post_init__ (5.23.0)",
    consequence='ValueError: "Only one of self.fp16: True and self.bf16 True should be True"',
    consequences={
        "deepspeed": 'AssertionError: "bfloat16 and fp16 modes cannot be simultaneously enabled"',
        "transformers": 'ValueError: "At most one of fp16 and bf16 can be True, but not both"',
    },
    says="fp16 {fp16} and bf16 {bf16}",
)
def two_half_precisions(k: Knobs) -> bool:
    """The parameters have one type; the frameworks do not choose between two.

    Fails: megatron-lm 0.19: --fp16 --bf16
    Fails: knobs(framework="deepspeed 0.19", fp16=True, bf16=True)
    Passes: megatron-lm 0.19: --bf16
    """
    return k.fp16 is True and k.bf16 is True


@demand(
    "DAT226",
    "FP32 gradient accumulation with a lower main-grad dtype",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.11",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--main-grads-dtype can only be fp32 when '
    '--accumulate-allreduce-grads-in-fp32 is set"',
    says="main_grads_dtype {main_grads_dtype} with accumulate_allreduce_grads_in_fp32",
)
def two_gradient_types(k: Knobs) -> bool:
    """The buffer that gradients are accumulated in and the main gradients are the same memory.

    Fails: megatron-lm 0.19: --bf16 --accumulate-allreduce-grads-in-fp32 --main-grads-dtype bf16
    Passes: megatron-lm 0.19: --bf16 --accumulate-allreduce-grads-in-fp32 --main-grads-dtype fp32
    """
    return bool(k.accumulate_allreduce_grads_in_fp32 and k.main_grads_dtype != "fp32")


@demand(
    "DAT243",
    "Megatron-FSDP with an unsupported optimizer",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-lm>=0.18",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Megatron-FSDP does not support the muon optimizer yet."',
    says="use_megatron_fsdp with optimizer {optimizer}",
)
def optimizer_needs_whole_matrices(k: Knobs) -> bool:
    """Muon orthogonalizes whole matrices, and Megatron-FSDP leaves a rank only flat pieces.

    Use adam or sgd, or the layer-wise distributed optimizer without FSDP.

    Fails: megatron-lm 0.19: --use-megatron-fsdp --optimizer muon
    Passes: megatron-lm 0.19: --use-megatron-fsdp --optimizer adam
    """
    return bool(k.use_megatron_fsdp and not str(k.optimizer).startswith(("adam", "sgd")))


@demand(
    "DAT244",
    "Outer-DP sharding without full inner sharding",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-core>=0.16",
    source="Megatron-LM megatron/core/distributed/fsdp/src/megatron_fsdp/fully_shard.py (0.19.2)",
    confidence="read",
    consequence="ValueError: hybrid sharding needs optim_grads_params inside",
    says="outer_dp_sharding_strategy {outer_dp_sharding_strategy} over "
    "data_parallel_sharding_strategy {data_parallel_sharding_strategy}",
    suggest={"data_parallel_sharding_strategy": "optim_grads_params"},
)
def outer_sharding_of_replicas(k: Knobs) -> bool:
    """Sharding across instances divides what each instance has already sharded whole.

    Fails: megatron-lm 0.19: --outer-dp-sharding-strategy optim
        --data-parallel-sharding-strategy optim_grads
    Passes: megatron-lm 0.19: --outer-dp-sharding-strategy optim
        --data-parallel-sharding-strategy optim_grads_params
    """
    outer = k.outer_dp_sharding_strategy != "no_shard"
    return bool(outer and k.data_parallel_sharding_strategy != "optim_grads_params")


@demand(
    "DAT249",
    "Conflicting FSDP implementations",
    severity=Severity.ERROR,
    section="4.2",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE,
    confidence="read",
    consequence="ValueError: Megatron-FSDP and torch FSDP2 are mutually exclusive",
    says="use_megatron_fsdp and use_torch_fsdp2 both on",
)
def two_fsdp(k: Knobs) -> bool:
    """Both would wrap the same modules and own the same parameters.

    Fails: megatron-bridge 0.6: ddp.use_megatron_fsdp=true dist.use_torch_fsdp2=true
    Passes: megatron-bridge 0.6: ddp.use_megatron_fsdp=true dist.use_torch_fsdp2=false
    """
    return bool(k.use_megatron_fsdp and k.use_torch_fsdp2)
