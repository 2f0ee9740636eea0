"""torch.distributed.pipelining, context parallelism and the data loader.

Sections 4.1, 4.3, 6.1, 6.3 and 7.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.frameworks.field import release
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_SCHEDULES = "PyTorch torch/distributed/pipelining/schedules.py (2.13.0)"
_CONTEXT = "PyTorch torch/distributed/tensor/experimental/_context_parallel (2.13.0)"
_LOADER = "PyTorch torch/utils/data/dataloader.py (2.13.0)"
_ROUNDS = ("interleaved1f1b", "interleavedzerobubble")
_SPLIT_BACKWARD = ("zbvzerobubble", "interleavedzerobubble", "dualpipev")
_NAMES = (
    *("1f1b", "gpipe", "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble"),
    *("dualpipev", "loopedbfs", "pipelineschedulesingle", "pipelineschedulemulti"),
)
NEARLY_FULL = 0.9


def _schedule(k: Knobs) -> str:
    """The schedule's name without case and dashes, as torch compares it."""
    stated = k.get("schedule_class") or k.get("schedule") or ""
    return str(stated).lower().replace("-", "").replace("_", "")


def _pipelined(k: Knobs) -> bool:
    return int(k.get("pp") or 1) > 1


@demand(
    "CMP105",
    "Micro-batches not a multiple of the rounds",
    severity=Severity.ERROR,
    section="6.1",
    scope="torch>=2.4; torchtitan",
    source=f"{_SCHEDULES} ScheduleInterleaved1F1B",
    consequence="ValueError: Interleaved 1F1B requires the number of microbatches to be a multiple "
    "of the number of rounds",
)
def rounds_are_full(k: Knobs) -> bool:
    """Micro-batches pass in max(1, M // pp) rounds of equal size.

    With pp = 4, ten make two rounds of five, nine do not divide, three make one round. Megatron
    counts otherwise.

    Fails: knobs(framework="torch 2.13", schedule="Interleaved1F1B", num_microbatches=9, pp=4)
    Passes: knobs(framework="torch 2.13", schedule="Interleaved1F1B", num_microbatches=10, pp=4)
    Passes: knobs(framework="torch 2.13", schedule="Interleaved1F1B", num_microbatches=3, pp=4)
    """
    if not _pipelined(k) or _schedule(k) not in _ROUNDS:
        return False
    return bool(k.num_microbatches % max(1, k.num_microbatches // k.pp))


@rounds_are_full.message
def _(k: Knobs) -> str:
    rounds = max(1, k.num_microbatches // k.pp)
    return f"{k.num_microbatches} micro-batches over pp {k.pp} do not fill {rounds} rounds"


@demand(
    "CMP112",
    "Unknown schedule name",
    severity=Severity.ERROR,
    section="6.1",
    scope="torch; torchtitan",
    source=f"{_SCHEDULES} get_schedule_class",
    consequence="ValueError: Unknown schedule name. The valid options are 1F1B, Interleaved1F1B, "
    "GPipe, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV, LoopedBFS",
)
def schedule_is_known(k: Knobs) -> bool:
    """Schedules go by the names of torch's classes, in any case.

    Fails: torchtitan 0.2: [parallelism]
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "1F1B-foo"
    Passes: torchtitan 0.2: [parallelism]
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "interleaved1f1b"
    """
    if not _pipelined(k) or k.get("pp_schedule_csv"):
        return False
    if k.get("schedule_name_unknown", False):
        return True
    stated = k.get("schedule_class")
    return stated is not None and str(stated).lower() not in _NAMES


@schedule_is_known.message
def _(k: Knobs) -> str:
    return f"schedule = {k.get('schedule_class') or k.get('schedule')}"


@demand(
    "CMP113",
    "Zero-bubble schedules with torch.compile",
    severity=Severity.ERROR,
    section="6.1",
    scope="torch>=2.6; torchtitan",
    source=f"{_SCHEDULES} _check_torch_compile_compatibility",
    consequence="RuntimeError: The schedule is not supported with stage modules that have used "
    "torch.compile",
)
def split_backward_is_not_compiled(k: Knobs) -> bool:
    """These schedules run the two halves of a backward pass apart; a compiled stage has one.

    Compiling the blocks inside a stage leaves its backward pass in torch's hands.

    Fails: knobs(framework="torch 2.13", schedule="ZBVZeroBubble", pp=2, compile=True,
        compile_wraps_stage=True)
    Passes: knobs(framework="torch 2.13", schedule="ZBVZeroBubble", pp=2, compile=True,
        compile_wraps_stage=False)
    """
    compiled = k.get("compile", False) and k.get("compile_wraps_stage", False)
    return bool(_pipelined(k) and _schedule(k) in _SPLIT_BACKWARD and compiled)


@split_backward_is_not_compiled.message
def _(k: Knobs) -> str:
    return f"schedule = {k.get('schedule_class') or k.schedule} over compiled stages"


split_backward_is_not_compiled.fix(lambda _k: {"compile": False})


@demand(
    "DAT120",
    "FlexAttention CP needs cp*128 blocks",
    severity=Severity.ERROR,
    section="4.1",
    scope="torch>=2.9; torchtitan>=0.2",
    source=f"{_CONTEXT}/_attention.py _create_cp_block_mask",
    consequence="NotImplementedError: Q_LEN is not divisible by CP mesh world size * BLOCK_SIZE "
    "128. This is not supported yet",
    says="seq_len {seq_len} over cp {cp} in blocks of 128",
)
def blocks_tile_the_sequence(k: Knobs) -> bool:
    """Block masks have 128 rows, and each rank must hold whole ones.

    Fails: knobs(framework="torch 2.13", cp=4, attention_backend="flex", seq_len=1000)
    Passes: knobs(framework="torch 2.13", cp=4, attention_backend="flex", seq_len=8192)
    """
    flex = k.get("attention_backend") in ("flex", "flex_attention")
    return flex and int(k.get("cp") or 1) > 1 and k.seq_len % (k.cp * 128) != 0


@blocks_tile_the_sequence.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"seq_len": -(-k.seq_len // (k.cp * 128)) * k.cp * 128}


@demand(
    "DAT121",
    "Per-document head-tail balancing needs padded documents",
    severity=Severity.ERROR,
    section="4.1",
    scope="torch>=2.9",
    source=f"{_CONTEXT}/_load_balancer.py _generate_indices_for_batch",
    consequence="AssertionError without a message",
)
def documents_split_evenly(k: Knobs) -> bool:
    """Each document is cut into 2 * cp equal chunks of its own.

    Fails: knobs(framework="torch 2.13", cp=2, cp_load_balancer="per_document", doc_lens=[64, 30])
    Passes: knobs(framework="torch 2.13", cp=2, cp_load_balancer="per_document", doc_lens=[64, 32])
    """
    if int(k.get("cp") or 1) == 1 or k.get("cp_load_balancer") != "per_document":
        return False
    return any(length % (2 * k.cp) for length in k.doc_lens)


@documents_split_evenly.message
def _(k: Knobs) -> str:
    odd = [length for length in k.doc_lens if length % (2 * k.cp)]
    return f"documents of {', '.join(map(str, odd[:4]))} tokens over 2 * cp = {2 * k.cp} chunks"


@demand(
    "CMP313",
    "CP load balancing for non-causal attention",
    severity=Severity.ERROR,
    section="6.3",
    scope="torch@2.9",
    source=f"{_CONTEXT}/_attention.py _templated_ring_attention",
    consequence="RuntimeError: Load balancing requires is_causal=True.",
    confidence="read",
    says="cp {cp} with balancer = {cp_load_balancer} over attention that is not causal",
    suggest={"cp_load_balancer": None},
)
def balanced_attention_is_causal(k: Knobs) -> bool:
    """Head and tail balance the triangle of a causal mask; a full mask needs no balance.

    Fails: knobs(framework="torch 2.13", cp=2, cp_load_balancer="headtail", causal=False)
    Passes: knobs(framework="torch 2.13", cp=2, cp_load_balancer=None, causal=False)
    """
    balanced = k.get("cp_load_balancer") == "headtail"
    return balanced and int(k.get("cp") or 1) > 1 and k.get("causal", True) is False


@demand(
    "DAT303",
    "Prefetch or persistent workers without workers",
    severity=Severity.ERROR,
    section="4.3",
    scope="torch",
    source=_LOADER,
    consequence="ValueError: prefetch_factor option could only be specified in multiprocessing; "
    "persistent_workers option needs num_workers > 0",
)
def workers_prefetch(k: Knobs) -> bool:
    """Without worker processes nothing can fetch ahead or live on.

    Fails: hf-trainer 5.23: --dataloader_num_workers 0 --dataloader_prefetch_factor 2
    Passes: hf-trainer 5.23: --dataloader_num_workers 2 --dataloader_prefetch_factor 2
    """
    if k.get("num_workers", 0) != 0:
        return False
    return k.get("prefetch_factor") is not None or bool(k.get("persistent_workers", False))


@workers_prefetch.message
def _(k: Knobs) -> str:
    return (
        f"num_workers 0 with prefetch_factor = {k.get('prefetch_factor')}, persistent_workers = "
        f"{k.get('persistent_workers', False)}"
    )


workers_prefetch.fix(lambda _k: {"num_workers": 2})


@demand(
    "DAT306",
    "shuffle=True on an iterable dataset",
    severity=Severity.ERROR,
    section="4.3",
    scope="torch",
    source=_LOADER,
    consequence="ValueError: DataLoader with IterableDataset: expected unspecified shuffle option, "
    "but got shuffle=True",
    says="shuffle = true on a data set of kind {dataset_kind}",
    suggest={"loader_shuffle": False},
)
def streams_are_not_shuffled_by_the_loader(k: Knobs) -> bool:
    """A stream has no index to shuffle; a buffer inside the data set does it.

    Fails: knobs(framework="torch 2.13", dataset_kind="iterable", loader_shuffle=True)
    Passes: knobs(framework="torch 2.13", dataset_kind="map", loader_shuffle=True)
    """
    return k.get("dataset_kind") == "iterable" and bool(k.get("loader_shuffle", False))


def _torch_release(k: Knobs) -> tuple[int, ...]:
    """The release of torch as numbers."""
    stated = k.torch_version
    return tuple(stated) if isinstance(stated, list | tuple) else release(str(stated))


@demand(
    "COM313",
    "Tensor lifetimes kept by record_stream",
    severity=Severity.INFO,
    section="7.3",
    scope="torch",
    source="Megatron-Bridge docs/performance-guide.md (067f987d), memory hikes",
    consequence="buffers of collectives are freed late, which raises the peak",
    confidence="doc",
    suggest={"torch_nccl_avoid_record_streams": 1},
)
def collective_buffers_are_freed_at_once(k: Knobs) -> bool:
    """Before torch 2.8 a collective's buffers are held until the allocator looks at its stream.

    TORCH_NCCL_AVOID_RECORD_STREAMS=1 frees them at once; newer releases do so anyway.

    Fails: knobs(framework="torch 2.7", torch_version=[2, 7], peak_bytes=78e9, gpu_mem_bytes=85e9)
    Passes: knobs(framework="torch 2.8", torch_version=[2, 8], peak_bytes=78e9, gpu_mem_bytes=85e9)
    """
    if k.get("torch_nccl_avoid_record_streams", False) or _torch_release(k) >= (2, 8):
        return False
    return bool(k.peak_bytes > NEARLY_FULL * k.gpu_mem_bytes)


@collective_buffers_are_freed_at_once.message
def _(k: Knobs) -> str:
    share = k.peak_bytes / k.gpu_mem_bytes
    return f"torch {'.'.join(map(str, _torch_release(k)))} at {share:.0%} of the device's memory"


# What other frameworks run or only warn of


@demand(
    "CMP104",
    "Fewer micro-batches than stages (torch)",
    severity=Severity.ERROR,
    section="6.1",
    scope="torch; torchtitan",
    source=f"{_SCHEDULES} Schedule1F1B",
    consequence="ValueError: Number of microbatches must be greater than or equal to the number of "
    "stages",
    says="{num_microbatches} micro-batches over pp {pp}",
)
def every_stage_gets_a_micro_batch(k: Knobs) -> bool:
    """torch's 1F1B fills the pipeline once before it alternates, and refuses to start half full.

    Megatron and nanotron run such plans, with a large bubble.

    Fails: knobs(framework="torch 2.13", schedule="1F1B", num_microbatches=3, pp=4)
    Passes: knobs(framework="torch 2.13", schedule="1F1B", num_microbatches=4, pp=4)
    Passes: knobs(framework="torch 2.13", schedule="GPipe", num_microbatches=3, pp=4)
    """
    return bool(_pipelined(k) and _schedule(k) == "1f1b" and k.num_microbatches < k.pp)


@every_stage_gets_a_micro_batch.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"num_microbatches": k.pp}
