"""DAT1xx, second part: who reads which sample, packing, and what the batch does to training.

Section 4.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_count
from meshwright.plan.plan import Optimizer
from meshwright.rules.estimate import tokens_per_step
from meshwright.rules.nearest import multiples_near
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

MIN_GEMM_ROWS = 1024
MAX_USEFUL_EPOCHS = 4


def _tail(job: Job) -> Any:
    """Samples left over after whole batches of one micro-batch a replica; 0 when unknown."""
    samples = job.workload.loading.num_samples
    return 0 if samples is None else samples % (job.plan.micro_batch_size * job.plan.dp)


# Who reads what


@rule(
    "DAT130",
    "Replicas see different numbers of batches",
    severity=Severity.ERROR,
    section="4.1",
    source="PyTorch DDP Join documentation (2.13); accelerate data_loader.BatchSamplerShard "
    "(1.15.0)",
    reads=("micro_batch_size", "dp"),
    confidence="run",
)
def replicas_see_equal_batches(job: Job) -> Mask:
    """The last batches of an epoch must go to all replicas or to none.

    A replica with one batch fewer stops issuing collectives, and the others wait for it until the
    watchdog kills the job.

    Fails: plan(dp=64, num_samples=100000, drop_last=False)
    Passes: plan(dp=64, num_samples=100000, drop_last=True)
    Passes: plan(dp=64, num_samples=102400, drop_last=False)
    """
    loading = job.workload.loading
    if loading.drop_last is not False or loading.pad_last:
        return False
    return _tail(job) != 0


@replicas_see_equal_batches.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"{job.workload.loading.num_samples} samples leave {_tail(job)} over after batches of "
        f"micro_batch_size {p.micro_batch_size} x dp {p.dp}, and the last batch is neither "
        "dropped nor padded"
    )


replicas_see_equal_batches.fix(always(drop_last=(True,), pad_last=(True,)))


@rule(
    "DAT131",
    "The last batch is filled with samples seen before",
    severity=Severity.WARNING,
    section="4.1",
    source="accelerate data_loader.BatchSamplerShard (1.15.0); torch DistributedSampler (2.13.0)",
    reads=("micro_batch_size", "dp"),
    confidence="run",
)
def padding_repeats_samples(job: Job) -> Mask:
    """Padding the tail repeats samples, and figures averaged over it are biased.

    Drop the tail in training; mask it in evaluation.

    Fails: plan(dp=64, num_samples=100000, pad_last=True)
    Passes: plan(dp=64, num_samples=100000, drop_last=True)
    """
    loading = job.workload.loading
    if not loading.pad_last or loading.drop_last:
        return False
    return _tail(job) != 0


@padding_repeats_samples.message
def _(job: Job) -> str:
    unit = job.plan.micro_batch_size * job.plan.dp
    return f"{unit - _tail(job)} of the last {unit} samples are repeated ones"


padding_repeats_samples.fix(always(drop_last=(True,)))


@rule(
    "DAT133",
    "Ranks of one replica read different data, or replicas the same",
    severity=Severity.ERROR,
    section="4.1",
    source="DeepSpeed deepspeed/runtime/engine.py (0.19.8) AutoTP first-batch check; Megatron-LM "
    "megatron/training/datasets/data_samplers.py (0.19.2)",
    reads=("dp",),
    confidence="read",
)
def one_reader_a_replica(job: Job) -> Mask:
    """The tp, pp and cp ranks of a replica work on the same samples, so dp readers are right.

    More readers mix different data inside one matrix product and gradients are silently wrong (or
    a sampler refuses a rank beyond dp); fewer train on the same samples several times.

    Fails: plan(tp=4, dp=16, data_readers=64)
    Passes: plan(tp=4, dp=16, data_readers=16)
    """
    readers = job.workload.loading.data_readers
    return False if readers is None else job.plan.dp != readers


@one_reader_a_replica.message
def _(job: Job) -> str:
    return f"{job.workload.loading.data_readers} ranks read different data, but dp is {job.plan.dp}"


@one_reader_a_replica.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"data_readers": (int(job.plan.dp),)}


# Packing and masked losses


@rule(
    "DAT142",
    "Masked losses averaged rank by rank under context parallelism",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-Bridge src/megatron/bridge/training/config.py validate (0.6.2)",
    reads=("cp",),
    confidence="read",
)
def masked_loss_counts_tokens(job: Job) -> Mask:
    """A mean of per-rank means weighs tokens by how many neighbors carry a loss.

    With cp the ranks of one sequence hold different numbers of unmasked tokens; a rank with none
    divides by zero. Sum losses and token counts over all ranks, then divide.

    Fails: plan(cp=4, masked_loss=True, per_token_loss=False)
    Passes: plan(cp=4, masked_loss=True, per_token_loss=True)
    """
    recipe = job.workload.recipe
    if not recipe.masked_loss or recipe.per_token_loss is not False:
        return False
    return job.plan.cp > 1


@masked_loss_counts_tokens.message
def _(job: Job) -> str:
    return f"cp {job.plan.cp} with masked tokens, and the loss is a mean of the ranks' means"


masked_loss_counts_tokens.fix(always(per_token_loss=(True,)))


@rule(
    "DAT144",
    "Packed documents attend to each other",
    severity=Severity.WARNING,
    section="4.1",
    source="Llama 3 (arXiv 2407.21783) section 3.2",
    confidence="paper",
)
def packed_documents_are_masked(job: Job) -> Mask:
    """Without a document mask, tokens attend across the borders of unrelated documents.

    It matters for fine-tuning and for long sequences, little for short pre-training sequences.

    Fails: plan(packed=True, document_mask=False)
    Passes: plan(packed=True, document_mask=True)
    """
    loading = job.workload.loading
    return bool(loading.packed) and loading.document_mask is False


@packed_documents_are_masked.message
def _(job: Job) -> str:
    return f"packed sequences of {job.workload.seq_len} tokens without a document mask"


packed_documents_are_masked.fix(always(document_mask=(True,)))


# What the batch does


@rule(
    "DAT146",
    "Too few tokens in a matrix product",
    severity=Severity.WARNING,
    section="4.1",
    source="NVIDIA Matrix Multiplication Background User's Guide DU-09799-001 sections 2 and 3",
    reads=("micro_batch_size", "cp"),
    confidence="heuristic",
    needs=("seq_len",),
)
def gemms_have_rows(job: Job) -> Mask:
    """A product with fewer than about 1024 rows cannot fill a modern GPU.

    It lies below the balance of compute and bandwidth, leaves most of a wave of tiles empty, and
    its launch costs as much as its work.

    Fails: plan(seq_len=4096, cp=8, micro_batch_size=1)
    Passes: plan(seq_len=4096, cp=4, micro_batch_size=1)
    """
    p = job.plan
    return p.micro_batch_size * job.workload.seq_len // p.cp < MIN_GEMM_ROWS


@gemms_have_rows.message
def _(job: Job) -> str:
    p = job.plan
    rows = p.micro_batch_size * job.workload.seq_len // p.cp
    return (
        f"micro_batch_size {p.micro_batch_size} x seq_len {job.workload.seq_len} / cp {p.cp} = "
        f"{rows} rows in a matrix product, under {MIN_GEMM_ROWS}"
    )


@gemms_have_rows.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    p = job.plan
    tokens = p.micro_batch_size * job.workload.seq_len
    local = max(int(job.workload.seq_len // p.cp), 1)
    fixes: dict[str, tuple[Any, ...]] = {"micro_batch_size": (-(-MIN_GEMM_ROWS // local),)}
    if p.cp > 1 and tokens >= MIN_GEMM_ROWS:
        fixes["cp"] = (max(1 << int(np.log2(tokens // MIN_GEMM_ROWS)), 1),)
    return fixes


@rule(
    "DAT147",
    "Batch beyond the critical batch size",
    severity=Severity.WARNING,
    section="4.1",
    source="McCandlish et al. 2018 (arXiv 1812.06162); Zhang et al. 2024 (arXiv 2410.21676); "
    "Merrill et al. 2025 (arXiv 2505.23971)",
    confidence="paper",
)
def batch_is_below_critical(job: Job) -> Mask:
    """Beyond the critical batch size, more tokens a step buy little progress a step.

    Wall time still falls with more replicas, tokens and money no longer do. Use the GPUs for model
    parallelism, or let the batch grow as the critical size does.

    Fails: plan(global_batch_size=4096, seq_len=4096, critical_batch_tokens=4e6)
    Passes: plan(global_batch_size=512, seq_len=4096, critical_batch_tokens=4e6)
    """
    critical = job.workload.recipe.critical_batch_tokens
    return critical is not None and tokens_per_step(job) > critical


@batch_is_below_critical.message
def _(job: Job) -> str:
    critical = job.workload.recipe.critical_batch_tokens or 0.0
    return (
        f"{format_count(tokens_per_step(job))} tokens a step, over the critical "
        f"{format_count(critical)}"
    )


@batch_is_below_critical.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    critical = job.workload.recipe.critical_batch_tokens or 0.0
    unit = int(job.plan.dp * job.plan.micro_batch_size)
    fitting = multiples_near(unit, critical // job.workload.seq_len)[:1]
    return {"global_batch_size": fitting} if fitting else {}


@rule(
    "DAT148",
    "Batch changed but learning rate kept",
    severity=Severity.INFO,
    section="4.1",
    source="Goyal et al. 2017 (arXiv 1706.02677); McCandlish et al. 2018 (arXiv 1812.06162)",
    reads=("optimizer",),
    confidence="paper",
)
def learning_rate_follows_batch(job: Job) -> Mask:
    """A learning rate is tuned at a batch size and moves with it, below the critical batch.

    The usual step is linear for SGD and a square root for Adam and its kin.

    Fails: plan(learning_rate=3e-4, tuned_learning_rate=3e-4, tuned_global_batch_size=128)
    Passes: plan(learning_rate=6e-4, tuned_learning_rate=3e-4, tuned_global_batch_size=128)
    """
    recipe = job.workload.recipe
    if recipe.learning_rate is None or recipe.tuned_global_batch_size is None:
        return False
    same = recipe.learning_rate == recipe.tuned_learning_rate
    return same and job.workload.global_batch_size != recipe.tuned_global_batch_size


@learning_rate_follows_batch.message
def _(job: Job) -> str:
    recipe = job.workload.recipe
    return (
        f"learning rate {recipe.learning_rate} was tuned at {recipe.tuned_global_batch_size} "
        f"sequences a step, now {job.workload.global_batch_size}"
    )


@learning_rate_follows_batch.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    recipe = job.workload.recipe
    ratio = job.workload.global_batch_size / (recipe.tuned_global_batch_size or 1)
    linear = job.plan.optimizer in (Optimizer.SGD, Optimizer.SGD_MOMENTUM)
    scaled = (recipe.tuned_learning_rate or 0.0) * ratio ** (1.0 if linear else 0.5)
    return {"learning_rate": (float(f"{scaled:.3g}"),)}


@rule(
    "DAT149",
    "Data repeated more than four times",
    severity=Severity.INFO,
    section="4.1",
    source="Muennighoff et al. 2023 (arXiv 2305.16264)",
    confidence="paper",
)
def data_is_not_overused(job: Job) -> Mask:
    """Repeated data is worth nearly as much as new data up to about four epochs, then little.

    Fails: plan(train_tokens=1e12, dataset_tokens=1e11)
    Passes: plan(train_tokens=1e12, dataset_tokens=5e11)
    """
    tokens, unique = job.workload.train_tokens, job.workload.loading.dataset_tokens
    return tokens is not None and unique is not None and tokens > MAX_USEFUL_EPOCHS * unique


@data_is_not_overused.message
def _(job: Job) -> str:
    tokens = job.workload.train_tokens or 0.0
    unique = job.workload.loading.dataset_tokens or 1.0
    return (
        f"{format_count(tokens)} tokens from a corpus of {format_count(unique)}: "
        f"{format_count(tokens / unique)} epochs"
    )


@data_is_not_overused.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {
        "train_tokens": (int(MAX_USEFUL_EPOCHS * (job.workload.loading.dataset_tokens or 0.0)),)
    }
