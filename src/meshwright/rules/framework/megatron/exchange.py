"""Communication of the model: pipeline transfers, and experts' tokens under the computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree, is_meant

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD336",
    "Warm-up and flush overlap without overlapped transfers",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.10",
    source=sources.PARALLEL_CONFIG,
    consequence='ValueError: "Pipeline parallel communication overlapping in warmup and flush is '
    'only compatible with overlap_p2p_comm but not batch_p2p_comm."',
    says="overlapped warm-up and flush with vpp {vpp}, overlapped transfers {overlap_pp}",
    suggest={"overlap_pp_warmup_flush": False},
)
def warmup_overlaps_what_overlaps(k: Knobs) -> bool:
    """Only the interleaved schedule overlaps its transfers, and only where it is not told not to.

    The command line turns overlapped transfers off for every other schedule.

    Fails: megatron-lm 0.19: --overlap-p2p-communication-warmup-flush
        --pipeline-model-parallel-size 2 --hidden-size 1024
    Passes: megatron-lm 0.19: --overlap-p2p-communication-warmup-flush
        --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2
    """
    if not k.overlap_pp_warmup_flush or not is_meant(k, "overlap_pp_warmup_flush"):
        return False
    return degree(k, "vpp") <= 1 or k.get("overlap_pp", True) is False


@demand(
    "MOD305",
    "P2P overlap on the plain 1F1B schedule",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-bridge",
    source=f"{sources.SCHEDULES} forward_backward_pipelining_without_interleaving (0.19.2)",
    consequence='ValueError: "Non-interleaved pipeline parallelism does not support overlapping '
    'p2p communication" (the command line of Megatron-LM resets it with a warning)',
    says="overlapped transfers asked for with pp {pp} and vpp {vpp}",
    suggest={"overlap_pp": None},
    safe=True,
)
def transfers_cannot_overlap(k: Knobs) -> bool:
    """In plain 1F1B every transfer is needed at once; only chunks leave something to overlap with.

    Fails: knobs(overlap_pp=True, pp=4, vpp=1)
    Passes: megatron-bridge 0.6: model.overlap_p2p_comm=true model.pipeline_model_parallel_size=4
        model.virtual_pipeline_model_parallel_size=2
    """
    return bool(k.is_stated("overlap_pp") and k.overlap_pp and k.pp > 1 and k.vpp == 1)


@demand(
    "MOD306",
    "Overlapped and batched p2p together",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core",
    source=f"{sources.SCHEDULES} forward_backward_pipelining_with_interleaving (0.19.2)",
    consequence='ValueError: "Can not use both overlap_p2p_comm and batch_p2p_comm"',
    says="overlapped and batched transfers both asked for with vpp {vpp}",
    suggest={"batch_p2p_comm": False},
)
def transfers_are_batched_and_overlapped(k: Knobs) -> bool:
    """Batched transfers are launched and awaited together, which leaves nothing to overlap.

    Overlap suits chunks, batching plain 1F1B.

    Fails: knobs(overlap_pp=True, batch_p2p_comm=True, pp=4, vpp=2)
    Passes: knobs(overlap_pp=True, batch_p2p_comm=False, pp=4, vpp=2)
    """
    both = k.is_stated("overlap_pp") and k.overlap_pp and k.batch_p2p_comm
    return bool(k.is_stated("batch_p2p_comm") and both and k.pp > 1)


@demand(
    "MOD308",
    "EP overlap in a pipeline without VPP",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.14; megatron-bridge>=0.6",
    source=sources.CONFIG,
    consequence='AssertionError: "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size '
    'must be specified when pipeline_model_parallel_size > 1"',
    says="overlap_ep with pp {pp} and vpp {vpp}",
)
def tokens_have_no_other_chunk(k: Knobs) -> bool:
    """The exchange of one chunk's tokens is hidden behind another chunk's products.

    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 1
    Passes: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 2
    """
    return bool(k.overlap_ep and k.pp > 1 and k.vpp == 1)


@demand(
    "MOD309",
    "EP overlap with full or MoE recompute",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.14",
    source=sources.CONFIG,
    consequence='AssertionError: "disable full recomputation when enabling '
    'overlap_moe_expert_parallel_comm" (recomputation method, recompute_num_layers, moe likewise)',
    says="overlap_ep with recompute {recompute}",
)
def recomputed_tokens_are_sent_again(k: Knobs) -> bool:
    """Recomputing a layer of experts repeats its exchange, outside the schedule that hides it.

    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --recompute-granularity full
    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --recompute-granularity selective
        --recompute-modules moe
    Passes: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --recompute-granularity selective
        --recompute-modules core_attn
    """
    if not k.overlap_ep:
        return False
    layered = k.get("recompute_method") or k.is_stated("recompute_num_layers")
    return bool(k.recompute == "full" or layered or "moe" in (k.get("recompute_modules") or ()))


@demand(
    "MOD310",
    "EP overlap dispatcher, precision or shared-expert conflict",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.14",
    source=sources.CONFIG,
    consequence='AssertionError: "overlap_moe_expert_parallel_comm is supported with alltoall/flex '
    'token dispatcher", "only supported with bf16 or fp16 model", "disable '
    'moe_shared_expert_overlap", "MTP supports at most one layer"',
    says="overlap_ep with moe_token_dispatcher_type {moe_token_dispatcher_type}, bf16 {bf16}, fp16 "
    "{fp16}, moe_shared_expert_overlap {moe_shared_expert_overlap}, mtp_num_layers "
    "{mtp_num_layers}",
)
def overlap_of_experts_has_limits(k: Knobs) -> bool:
    """The interleaved schedule knows two dispatchers, half precision and one prediction layer.

    Shared experts hide the same exchange in another way, so one of the two must go.

    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm
        --moe-token-dispatcher-type allgather --bf16
    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm
        --moe-token-dispatcher-type alltoall --bf16 --mtp-num-layers 2
    Passes: megatron-lm 0.19: --overlap-moe-expert-parallel-comm
        --moe-token-dispatcher-type alltoall --bf16
    """
    if not k.overlap_ep:
        return False
    half = k.get("bf16") or k.get("fp16") or not is_meant(k, "precision")
    several = (k.get("mtp_num_layers") or 0) > 1
    dispatches = k.moe_token_dispatcher_type in ("alltoall", "flex")
    return bool(not dispatches or not half or several or k.get("moe_shared_expert_overlap"))


@demand(
    "MOD311",
    "Delayed weight gradients alone",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.14; megatron-bridge>=0.6",
    source=f"{sources.CONFIG}; {sources.ARGUMENTS}",
    consequence='AssertionError: "overlap_moe_expert_parallel_comm must be enabled when enabling '
    'delay_wgrad_compute"; "only supported with transformer_engine implementation"',
    says="delay_wgrad_compute with overlap_ep {overlap_ep}, transformer_impl {transformer_impl}",
    suggest={"overlap_ep": True},
)
def weight_gradients_wait_for_nothing(k: Knobs) -> bool:
    """Weight gradients are held back to fill the exchange that the EP overlap exposes.

    Fails: megatron-lm 0.19: --delay-wgrad-compute
    Passes: megatron-lm 0.19: --delay-wgrad-compute --overlap-moe-expert-parallel-comm
        --transformer-impl transformer_engine
    """
    engine = k.get("transformer_impl", "transformer_engine") == "transformer_engine"
    return bool(k.delay_wgrad_compute and not (k.overlap_ep and engine))


@demand(
    "MOD312",
    "Deferred embedding weight gradient without a pipeline",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.7",
    source=sources.PARALLEL_CONFIG,
    consequence='ValueError: "Cannot defer embedding wgrad compute when pipeline model parallel '
    '(gradient accumulation fusion) is not used"',
    says="defer_embedding_wgrad_compute with pp {pp}, gradient_accumulation_fusion "
    "{gradient_accumulation_fusion}",
    suggest={"defer_embedding_wgrad_compute": None},
)
def no_bubble_to_defer_into(k: Knobs) -> bool:
    """The head's weight gradients wait for the pipeline's cool-down, and are added by the fusion.

    Fails: megatron-lm 0.19: --defer-embedding-wgrad-compute --pipeline-model-parallel-size 1
    Passes: megatron-lm 0.19: --defer-embedding-wgrad-compute --pipeline-model-parallel-size 4
    """
    ready = k.pp > 1 and k.gradient_accumulation_fusion
    return bool(k.defer_embedding_wgrad_compute and not ready)


@demand(
    "MOD313",
    "Shared-expert overlap with the allgather dispatcher",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.18",
    source=sources.CONFIG,
    consequence='ValueError: "moe_shared_expert_overlap only works with alltoall or flex token '
    'dispatcher."',
    says="moe_shared_expert_overlap with moe_token_dispatcher_type {moe_token_dispatcher_type}",
    suggest={"moe_token_dispatcher_type": "alltoall"},
)
def shared_experts_hide_no_gather(k: Knobs) -> bool:
    """The shared experts run while tokens are on their way, which the all-gather does not split.

    Fails: megatron-lm 0.19: --moe-shared-expert-overlap --moe-token-dispatcher-type allgather
    Passes: megatron-lm 0.19: --moe-shared-expert-overlap --moe-token-dispatcher-type flex
    """
    other = k.moe_token_dispatcher_type not in ("alltoall", "flex")
    return bool(k.moe_shared_expert_overlap and other)


@demand(
    "MOD313",
    "Shared-expert overlap beyond the alltoall dispatcher (up to 0.17)",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.10,<=0.17",
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.17.1)",
    consequence='ValueError: "moe_shared_expert_overlap only works with alltoall token '
    'dispatcher."',
    says="moe_shared_expert_overlap with moe_token_dispatcher_type {moe_token_dispatcher_type}",
    suggest={"moe_token_dispatcher_type": "alltoall"},
)
def shared_experts_want_alltoall(k: Knobs) -> bool:
    """Up to 0.17 only the all-to-all dispatcher is split into steps that can be overlapped.

    Fails: megatron-lm 0.17: --moe-shared-expert-overlap --moe-token-dispatcher-type flex
    Passes: megatron-lm 0.17: --moe-shared-expert-overlap --moe-token-dispatcher-type alltoall
    """
    return bool(k.moe_shared_expert_overlap and k.moe_token_dispatcher_type != "alltoall")
