"""Protocol, pattern and resources of communication: NCCL, kernel order, buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree, integer

if TYPE_CHECKING:
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

DETERMINISTIC_ALGORITHMS = ("Ring", "CollnetDirect", "CollnetChain", "^NVLS")
BLACKWELL = 100  # compute capability times 10
MANY_RANKS = 512
MOST_OVERLAP_SMS, MOST_OVERLAP_CGA = 32, 4


@demand(
    "COM103",
    "Tree algorithm in deterministic mode",
    severity=Severity.ERROR,
    section="7.1",
    scope="megatron-lm>=0.19",
    source=f"{sources.DETERMINISM}",
    consequence="AssertionError: \"NCCL_ALGO='Tree': each token must be in ['CollnetChain', "
    "'CollnetDirect', 'Ring', '^NVLS']\"",
    says="deterministic with NCCL_ALGO {nccl_algo}",
    suggest={"nccl_algo": "Ring"},
)
def reduction_order_varies(k: Knobs) -> bool:
    """The order in which a tree adds depends on the topology found at start.

    Megatron up to 0.18 and Bridge still accept Tree.

    Fails: megatron-lm 0.19: NCCL_ALGO=Tree torchrun pretrain_gpt.py --deterministic-mode
    Passes: megatron-lm 0.19: NCCL_ALGO=Ring torchrun pretrain_gpt.py --deterministic-mode
    """
    chosen = str(k.nccl_algo).split(",")
    return bool(k.deterministic and any(a not in DETERMINISTIC_ALGORITHMS for a in chosen))


@demand(
    "COM104",
    "Deterministic mode with fused cross entropy or TP overlap",
    severity=Severity.ERROR,
    section="7.1",
    scope="megatron-lm>=0.9; megatron-bridge>=0.6",
    source=sources.DETERMINISM,
    consequence='AssertionError: "--deterministic-mode requires: cross_entropy_loss_fusion=False '
    '(got True)."; "Cross Entropy Fusion is currently not deterministic." up to 0.18',
    says="deterministic with cross_entropy_loss_fusion {cross_entropy_loss_fusion}, overlap_tp "
    "{overlap_tp}",
    suggest={"cross_entropy_loss_fusion": False, "overlap_tp": False},
)
def fused_kernels_are_not_repeatable(k: Knobs) -> bool:
    """Both kernels add in the order in which blocks arrive.

    Fails: megatron-lm 0.19: --deterministic-mode --cross-entropy-loss-fusion
    Fails: megatron-lm 0.19: --deterministic-mode --tp-comm-overlap
    Passes: megatron-lm 0.19: --deterministic-mode
    """
    return bool(k.deterministic and (k.get("cross_entropy_loss_fusion") or k.get("overlap_tp")))


@demand(
    "COM105",
    "Transformer Engine fused cross entropy",
    severity=Severity.ERROR,
    section="7.1",
    scope="megatron-lm>=0.18",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.18.2, 0.19.2)",
    consequence='AssertionError: "Transformer Engine cross entropy loss fusion is disabled due to '
    'stability issues."',
    says="cross_entropy_loss_fusion with cross_entropy_fusion_impl {cross_entropy_fusion_impl}",
    suggest={"cross_entropy_fusion_impl": "native"},
)
def engine_loss_is_disabled(k: Knobs) -> bool:
    """The engine's fused loss gave unstable training; 0.17 still runs it.

    Fails: megatron-lm 0.19: --cross-entropy-loss-fusion --cross-entropy-fusion-impl te
    Passes: megatron-lm 0.19: --cross-entropy-loss-fusion --cross-entropy-fusion-impl native
    """
    return bool(k.cross_entropy_loss_fusion and k.cross_entropy_fusion_impl == "te")


@demand(
    "COM107",
    "SHARP group settings",
    severity=Severity.ERROR,
    section="7.1",
    scope="megatron-core>=0.14",
    source=sources.GROUPS,
    consequence='AssertionError: "sharp_enabled_group is only valid when use_sharp is True", '
    '"Invalid sharp_enabled_group", "dp_replica group requires '
    'num_distributed_optimizer_instances > 1"',
    says="sharp_enabled_group {sharp_enabled_group} with use_sharp {use_sharp}",
)
def sharp_has_no_group(k: Knobs) -> bool:
    """One group gets the switches: the data-parallel one, or that across optimizer instances.

    Fails: megatron-lm 0.19: --sharp-enabled-group dp
    Fails: megatron-lm 0.19: --use-sharp --sharp-enabled-group tp
    Fails: megatron-lm 0.19: --use-sharp --sharp-enabled-group dp_replica
    Passes: megatron-lm 0.19: --use-sharp --sharp-enabled-group dp
    """
    group = k.sharp_enabled_group
    single = degree(k, "num_distributed_optimizer_instances") == 1
    refused = group not in ("dp", "dp_replica") or (group == "dp_replica" and single)
    return bool(not k.get("use_sharp") or refused)


@demand(
    "COM201",
    "CUDA_DEVICE_MAX_CONNECTIONS not 1 with TP or CP",
    severity=Severity.ERROR,
    section="7.2",
    scope="megatron-lm",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Using tensor model parallelism or context parallelism require '
    'setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1"',
    suggest={"cuda_device_max_connections": 1},
)
def kernels_start_in_any_order(k: Knobs) -> bool:
    """Before Blackwell, overlap of TP and CP relies on kernels starting in the order of launch.

    One hardware queue guarantees it. FSDP and the overlap of experts want several queues instead.
    Megatron refuses an unset variable as well; a script that exports others leaves it unset.

    Fails: megatron-lm 0.19: NCCL_IB_SL=1 torchrun --nproc_per_node 8 pretrain_gpt.py
        --hidden-size 4096 --tensor-model-parallel-size 2
        # 8 x H100-80GB
    Passes: megatron-lm 0.19: --hidden-size 4096 --tensor-model-parallel-size 2
        # 8 x H100-80GB
    Fails: megatron-lm 0.19: CUDA_DEVICE_MAX_CONNECTIONS=8 torchrun gpt.py
        --tensor-model-parallel-size 2
        # 8 x H100-80GB
    Fails: knobs(tp=2, cp=1, gpu_cc=90, cuda_device_max_connections=8)
    Passes: knobs(tp=2, cp=1, gpu_cc=90, cuda_device_max_connections=1)
    Passes: knobs(tp=2, cp=1, gpu_cc=100, cuda_device_max_connections=8)
    """
    exempt = k.get("use_torch_fsdp2") or k.get("use_megatron_fsdp") or k.get("overlap_ep")
    split = degree(k, "tp") > 1 or degree(k, "cp") > 1
    if not split or exempt or k.gpu_cc >= BLACKWELL:
        return False
    queues = _queues(k)
    return queues is not None and integer(queues) != 1


def _queues(k: Knobs) -> Any:
    """The number of hardware queues, "unset" where a whole script exports others alone."""
    is_whole = k.is_stated("hidden_size") and k.is_stated("environment")
    return k.get("cuda_device_max_connections", "unset" if is_whole else None)


@kernels_start_in_any_order.message
def _(k: Knobs) -> str:
    axes = [f"{axis} {degree(k, axis)}" for axis in ("tp", "cp") if degree(k, axis) > 1]
    sequence = " with sequence_parallel" if k.get("sequence_parallel") else ""
    return (
        f"{' x '.join(axes)}{sequence} before Blackwell, and CUDA_DEVICE_MAX_CONNECTIONS is "
        f"{_queues(k)}"
    )


@demand(
    "COM202",
    "CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP",
    severity=Severity.ERROR,
    section="7.2",
    scope="megatron-lm>=0.12; megatron-bridge>=0.6",
    source=f"{sources.ARGUMENTS}; {sources.BRIDGE}",
    consequence='AssertionError: "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset."',
    says="FSDP with CUDA_DEVICE_MAX_CONNECTIONS {cuda_device_max_connections}",
    suggest={"cuda_device_max_connections": None},
)
def gathers_queue_behind_products(k: Knobs) -> bool:
    """In a single hardware queue the next layer's gather cannot start before this layer ends.

    Fails: megatron-lm 0.19: CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun pretrain_gpt.py
        --use-megatron-fsdp
    Passes: megatron-lm 0.19: CUDA_DEVICE_MAX_CONNECTIONS=8 torchrun pretrain_gpt.py
        --use-megatron-fsdp
    """
    sharded = k.get("use_torch_fsdp2") or k.get("use_megatron_fsdp")
    return bool(sharded and integer(k.cuda_device_max_connections) == 1)


@demand(
    "COM213",
    "Parameter gather not aligned across stages",
    severity=Severity.INFO,
    section="7.2",
    scope="megatron-core",
    source="Megatron-Bridge training/comm_overlap.py (0.6.2)",
    confidence="doc",
    consequence="overlapped gathers slow the stages at different moments; the slowest paces all",
    says="overlap_param_gather with pp {pp}, vpp {vpp} and align_param_gather {align_param_gather}",
    suggest={"align_param_gather": True},
)
def gathers_are_staggered(k: Knobs) -> bool:
    """Gathers of all stages at the same moment cost the pipeline once; Bridge aligns them here.

    Fails: megatron-lm 0.19: --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 2 --overlap-param-gather --no-align-param-gather
    Passes: megatron-lm 0.19: --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 2 --overlap-param-gather
    """
    chunked = k.pp > 1 and k.vpp > 1
    return bool(chunked and k.overlap_param_gather and not k.align_param_gather)


@demand(
    "COM302",
    "Bucket size and count both given",
    severity=Severity.ERROR,
    section="7.3",
    scope="megatron-core>=0.18",
    source=sources.DDP_CONFIG,
    consequence='AssertionError: "Cannot specify both num_buckets and bucket_size"',
    says="bucket_elements {bucket_elements} and num_buckets {num_buckets}",
)
def buckets_are_stated_twice(k: Knobs) -> bool:
    """Either the size of a bucket follows from their number, or the number from the size.

    Fails: megatron-lm 0.19: --ddp-bucket-size 40000000 --ddp-num-buckets 8
    Passes: megatron-lm 0.19: --ddp-bucket-size 40000000
    """
    return k.get("bucket_elements") is not None and k.get("num_buckets") is not None


@demand(
    "COM303",
    "Buckets not padded at large DP",
    severity=Severity.INFO,
    section="7.3",
    scope="megatron-core>=0.12",
    source=sources.DDP_CONFIG,
    confidence="read",
    consequence="message sizes that are no multiple of a power of two lose bus bandwidth",
    says="gradients reduced over dp {dp} * cp {cp} ranks with pad_buckets_for_high_nccl_busbw "
    "{pad_buckets_for_high_nccl_busbw}",
    suggest={"pad_buckets_for_high_nccl_busbw": True},
)
def buckets_have_odd_sizes(k: Knobs) -> bool:
    """NCCL divides a bucket over the ranks; with very many of them odd shares are slow.

    --ddp-pad-buckets-for-high-nccl-busbw rounds buckets up.

    Fails: knobs(dp=512, cp=1, pad_buckets_for_high_nccl_busbw=False)
    Passes: knobs(dp=512, cp=1, pad_buckets_for_high_nccl_busbw=True)
    Passes: knobs(dp=64, cp=1, pad_buckets_for_high_nccl_busbw=False)
    """
    return bool(k.dp * degree(k, "cp") >= MANY_RANKS and not k.pad_buckets_for_high_nccl_busbw)


@demand(
    "COM306",
    "FSDP manual registration without its parents",
    severity=Severity.ERROR,
    section="7.3",
    scope="megatron-lm>=0.16; megatron-bridge>=0.6",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "FSDP manual registration is only supported with Megatron FSDP" '
    "(with nccl-ub option)",
    says="fsdp_manual_registration with use_megatron_fsdp {use_megatron_fsdp}, nccl_ub {nccl_ub}",
    suggest={"fsdp_manual_registration": None},
)
def nothing_to_register(k: Knobs) -> bool:
    """It registers the buffers of Megatron-FSDP with NCCL, so it needs both.

    Fails: megatron-lm 0.19: --fsdp-manual-registration --use-megatron-fsdp
    Passes: megatron-lm 0.19: --fsdp-manual-registration --use-megatron-fsdp --use-nccl-ub
    """
    ready = k.get("use_megatron_fsdp") and k.get("nccl_ub")
    return bool(k.fsdp_manual_registration and not ready)


@demand(
    "COM311",
    "TP overlap takes too many SMs or CGAs",
    severity=Severity.WARNING,
    section="7.3",
    scope="megatron-core; transformer-engine",
    source="Megatron-Bridge docs/performance-guide.md (067f987d), tips on TP overlap",
    confidence="doc",
    consequence="the products starve of SMs; the documented start is 16 SMs and a CGA of at most 2",
    says="tp_overlap_num_sm {tp_overlap_num_sm}, tp_overlap_cga_size {tp_overlap_cga_size}",
    suggest={"tp_overlap_num_sm": 16, "tp_overlap_cga_size": 2},
)
def overlap_starves_the_products(k: Knobs) -> bool:
    """User buffers run on SMs of their own, taken from the products that they hide behind.

    Fails: knobs(overlap_tp=True, tp_overlap_num_sm=64, tp_overlap_cga_size=2)
    Fails: knobs(overlap_tp=True, tp_overlap_num_sm=2, tp_overlap_cga_size=4)
    Passes: knobs(overlap_tp=True, tp_overlap_num_sm=16, tp_overlap_cga_size=2)
    """
    sms, cga = k.tp_overlap_num_sm, k.tp_overlap_cga_size
    return bool(k.overlap_tp and (sms > MOST_OVERLAP_SMS or cga > MOST_OVERLAP_CGA or cga > sms))
