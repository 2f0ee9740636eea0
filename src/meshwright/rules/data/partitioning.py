"""DAT1xx: the mesh tiles the GPUs, the batch tiles the mesh, the sequence tiles cp and tp.

Section 4.1 of the guidelines. Every rule here is integer arithmetic. Who reads which sample and
what the batch does to training is in `samples.py`; values that mean nothing are in `ranges.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import world_size
from meshwright.plan.plan import ContextParallel
from meshwright.rules.nearest import divisors_near, multiples_near
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask


def _replica(job: Job) -> Any:
    """GPUs of one model replica."""
    return job.plan.tp * job.plan.pp * job.plan.cp


# The mesh tiles the GPUs


@rule(
    "DAT101",
    "GPUs do not divide into model replicas",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    reads=("tp", "pp", "cp"),
    confidence="run",
)
def gpus_divide_into_replicas(job: Job) -> Mask:
    """One replica of the model occupies tp*pp*cp GPUs, and replicas must fill the cluster.

    With a remainder the data-parallel degree would be a fraction. Ulysses degrees count as cp here.

    Fails: plan(tp=3)
    Fails: plan(cp=48, context_parallel=ContextParallel.ULYSSES)
    Passes: plan(tp=4, pp=2)
    """
    return job.cluster.num_gpus % _replica(job) != 0


@gpus_divide_into_replicas.message
def _(job: Job) -> str:
    p, gpus = job.plan, job.cluster.num_gpus
    replica = _replica(job)
    return (
        f"{gpus} GPUs do not divide by tp {p.tp} x pp {p.pp} x cp {p.cp} = {replica}: "
        f"{gpus % replica if replica else gpus} GPUs would be left over"
    )


@gpus_divide_into_replicas.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    replica, gpus = int(_replica(job)), job.cluster.num_gpus
    fixes: dict[str, tuple[Any, ...]] = {}
    for axis in ("tp", "pp", "cp"):
        degree = int(getattr(job.plan, axis))
        rest = replica // max(degree, 1)
        if rest and degree > 1 and gpus % rest == 0:
            fixes[axis] = divisors_near(gpus // rest, degree)
    return fixes


@rule(
    "DAT102",
    "The mesh does not cover the GPUs exactly",
    severity=Severity.ERROR,
    section="4.1",
    source="torchtitan torchtitan/distributed/parallel_dims.py ParallelDims (0.3.0)",
    reads=("tp", "pp", "cp", "dp"),
    confidence="run",
)
def mesh_covers_gpus(job: Job) -> Mask:
    """The degrees multiply to the number of ranks that are started, neither more nor fewer.

    Fails: plan(tp=4, dp=8)
    Passes: plan(tp=4, dp=16)
    """
    return world_size(job.plan) != job.cluster.num_gpus


@mesh_covers_gpus.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"tp {p.tp} x pp {p.pp} x cp {p.cp} x dp {p.dp} = {world_size(p)} ranks "
        f"on {job.cluster.num_gpus} GPUs"
    )


@mesh_covers_gpus.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    replica, gpus = int(_replica(job)), job.cluster.num_gpus
    return {"dp": (gpus // replica,)} if replica and gpus % replica == 0 else {}


# The batch tiles the mesh


@rule(
    "DAT106",
    "Global batch does not divide into micro-batches",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/core/num_microbatches_calculator.py (0.19.2); "
    "torchtitan torchtitan/trainer.py (0.3.0)",
    reads=("micro_batch_size", "dp"),
    confidence="run",
    said_by=("DAT107", "DAT111"),
)
def batch_divides_into_microbatches(job: Job) -> Mask:
    """Every replica runs the same number of equal micro-batches.

    So the global batch is a multiple of micro_batch_size * dp; otherwise replicas would do unequal
    work between two synchronizations, or the batch is silently rounded.

    Fails: plan(global_batch_size=100, micro_batch_size=2, dp=64)
    Passes: plan(global_batch_size=256, micro_batch_size=2, dp=64)
    """
    return job.workload.global_batch_size % (job.plan.micro_batch_size * job.plan.dp) != 0


@batch_divides_into_microbatches.message
def _(job: Job) -> str:
    p, batch = job.plan, job.workload.global_batch_size
    return (
        f"global batch of {batch} sequences does not divide by micro_batch_size "
        f"{p.micro_batch_size} x dp {p.dp} = {p.micro_batch_size * p.dp}"
    )


@batch_divides_into_microbatches.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    p, batch = job.plan, job.workload.global_batch_size
    fixes: dict[str, tuple[Any, ...]] = {}
    if p.dp > 0 and batch % p.dp == 0:
        fixes["micro_batch_size"] = divisors_near(batch // p.dp, p.micro_batch_size)
    fixes["global_batch_size"] = multiples_near(p.micro_batch_size * p.dp, batch)
    return fixes


@rule(
    "DAT107",
    "Global batch smaller than one micro-batch per replica",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/core/num_microbatches_calculator.py (0.19.2)",
    reads=("micro_batch_size", "dp"),
    confidence="run",
    said_by=("DAT111",),
)
def batch_feeds_every_replica(job: Job) -> Mask:
    """Each replica needs at least one micro-batch a step, or it has nothing to do.

    Fails: plan(global_batch_size=32, dp=64)
    Passes: plan(global_batch_size=64, dp=64)
    """
    return job.workload.global_batch_size < job.plan.micro_batch_size * job.plan.dp


@batch_feeds_every_replica.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"global batch of {job.workload.global_batch_size} sequences is less than "
        f"micro_batch_size {p.micro_batch_size} x dp {p.dp} = {p.micro_batch_size * p.dp}"
    )


@batch_feeds_every_replica.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    p, batch = job.plan, job.workload.global_batch_size
    fixes: dict[str, tuple[Any, ...]] = {"global_batch_size": (int(p.micro_batch_size * p.dp),)}
    if batch >= p.dp:
        fixes["micro_batch_size"] = (int(batch // p.dp),)
    return fixes


@rule(
    "DAT109",
    "Evaluation batch does not divide over the replicas",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2)",
    reads=("micro_batch_size", "dp"),
    confidence="run",
)
def evaluation_batch_divides(job: Job) -> Mask:
    """The evaluation batch tiles the same replicas as the training batch.

    Its micro-batch is that of training unless stated.

    Fails: plan(dp=64, eval_global_batch_size=96)
    Passes: plan(dp=64, eval_global_batch_size=128)
    """
    recipe = job.workload.recipe
    if recipe.eval_global_batch_size is None:
        return False
    return recipe.eval_global_batch_size % (_eval_micro_batch(job) * job.plan.dp) != 0


def _eval_micro_batch(job: Job) -> Any:
    """Sequences of an evaluation micro-batch."""
    stated = job.workload.recipe.eval_micro_batch_size
    return job.plan.micro_batch_size if stated is None else stated


@evaluation_batch_divides.message
def _(job: Job) -> str:
    unit = _eval_micro_batch(job) * job.plan.dp
    return (
        f"evaluation batch of {job.workload.recipe.eval_global_batch_size} sequences does not "
        f"divide by its micro-batch {_eval_micro_batch(job)} x dp {job.plan.dp} = {unit}"
    )


@evaluation_batch_divides.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    batch = job.workload.recipe.eval_global_batch_size
    return {"eval_global_batch_size": multiples_near(_eval_micro_batch(job) * job.plan.dp, batch)}


@rule(
    "DAT139",
    "A step of the batch ramp-up does not divide into micro-batches",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/core/num_microbatches_calculator.py "
    "StepBatchsizeNumMicroBatchesCalculator (0.19.2)",
    reads=("micro_batch_size", "dp"),
    confidence="read",
)
def ramp_divides_into_microbatches(job: Job) -> Mask:
    """Every batch size of a ramp-up tiles the mesh, not only the last.

    A bad step is met only when the run reaches it, possibly days after the start.

    Fails: plan(dp=64, batch_size_steps=(96, 256, 512))
    Passes: plan(dp=64, batch_size_steps=(128, 256, 512))
    """
    unit = job.plan.micro_batch_size * job.plan.dp
    steps = job.workload.recipe.batch_size_steps
    bad: Mask = False
    for batch in steps:
        bad = bad | (batch % unit != 0)
    return bad


@ramp_divides_into_microbatches.message
def _(job: Job) -> str:
    unit = job.plan.micro_batch_size * job.plan.dp
    bad = [str(b) for b in job.workload.recipe.batch_size_steps if b % unit]
    return (
        f"batch size steps {', '.join(bad)} do not divide by micro_batch_size "
        f"{job.plan.micro_batch_size} x dp {job.plan.dp} = {unit}"
    )


@ramp_divides_into_microbatches.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    unit = int(job.plan.micro_batch_size * job.plan.dp)
    steps = job.workload.recipe.batch_size_steps
    return {"batch_size_steps": (tuple(-(-b // unit) * unit for b in steps),)} if unit else {}


# The sequence tiles cp and tp


@rule(
    "DAT116",
    "Sequence longer than the position table",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2); "
    "torchtitan models/common/decoder.py (0.3.0)",
    confidence="run",
)
def positions_cover_sequence(job: Job) -> Mask:
    """A learned position table has one row a position; a longer sequence reads past its end.

    Fails: plan(seq_len=4096, position_embeddings=2048)
    Passes: plan(seq_len=2048, position_embeddings=2048)
    """
    return 0 < job.model.position_embeddings < job.workload.seq_len


@positions_cover_sequence.message
def _(job: Job) -> str:
    return (
        f"sequences of {job.workload.seq_len} tokens, but the model learns "
        f"{job.model.position_embeddings} positions"
    )


@positions_cover_sequence.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"seq_len": (job.model.position_embeddings,)}


@rule(
    "DAT190",
    "Sequence longer than the model's rotary range",
    severity=Severity.WARNING,
    section="4.1",
    source="YaRN (arXiv 2309.00071) section 2; torchtitan models/common/decoder.py (0.3.0)",
    confidence="paper",
)
def rotary_range_covers_sequence(job: Job) -> Mask:
    """Rotary positions beyond those the model was made for extrapolate badly.

    It runs, but loss rises unless the frequencies are rescaled; some frameworks refuse.

    Fails: plan(seq_len=32768, max_position_embeddings=8192)
    Passes: plan(seq_len=8192, max_position_embeddings=8192)
    """
    limit = job.model.max_position_embeddings
    return limit is not None and not job.model.position_embeddings and job.workload.seq_len > limit


@rotary_range_covers_sequence.message
def _(job: Job) -> str:
    return (
        f"sequences of {job.workload.seq_len} tokens, but max_position_embeddings is "
        f"{job.model.max_position_embeddings}: rescale the rotary frequencies"
    )


def _context_multiple(job: Job) -> Any:
    """What the sequence must be a multiple of so that cp ranks get equal shares.

    Zig-zag balance gives each rank one chunk from the front and one from the back, 2*cp chunks.
    """
    p = job.plan
    zigzag = job.workload.runtime.context_balancer in (None, "zigzag")
    whole = p.context_parallel == ContextParallel.ULYSSES
    return np.where(whole | (not zigzag), p.cp, 2 * p.cp)


@rule(
    "DAT117",
    "Sequence does not divide into balanced context-parallel chunks",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2); "
    "PyTorch torch/distributed/tensor/experimental/_context_parallel/_load_balancer.py (2.13.0)",
    reads=("cp", "context_parallel"),
    confidence="run",
)
def sequence_divides_by_context(job: Job) -> Mask:
    """Causal balance cuts the sequence into 2*cp equal chunks, two a rank.

    A rank with the last tokens alone would do almost twice the mean work. Without balance, cp equal
    chunks are enough.

    Fails: plan(seq_len=4100, cp=4)
    Passes: plan(seq_len=4096, cp=4)
    Passes: plan(seq_len=4100, cp=4, context_balancer="none")
    """
    p = job.plan
    ring = p.context_parallel != ContextParallel.ULYSSES
    return (p.cp > 1) & ring & (job.workload.seq_len % _context_multiple(job) != 0)


@sequence_divides_by_context.message
def _(job: Job) -> str:
    unit = _context_multiple(job)
    return f"seq_len {job.workload.seq_len} is not a multiple of {unit} (cp {job.plan.cp})"


@sequence_divides_by_context.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"seq_len": multiples_near(_context_multiple(job), job.workload.seq_len)}


@rule(
    "DAT119",
    "A rank's sequence does not divide by tp under sequence parallelism",
    severity=Severity.ERROR,
    section="4.1",
    source="Megatron-LM megatron/core/tensor_parallel/mappings.py _split_along_first_dim (0.19.2)",
    reads=("tp", "cp", "sequence_parallel"),
    confidence="run",
)
def local_sequence_divides_by_tp(job: Job) -> Mask:
    """Sequence parallelism scatters the tokens of a context-parallel rank over tp.

    Fails: plan(seq_len=4100, tp=8)
    Passes: plan(seq_len=4096, tp=8)
    Passes: plan(seq_len=4100, tp=8, sequence_parallel=False)
    """
    p = job.plan
    return p.sequence_parallel & (job.workload.seq_len // p.cp % p.tp != 0)


@local_sequence_divides_by_tp.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"{job.workload.seq_len // p.cp} tokens a rank (seq_len {job.workload.seq_len} / cp "
        f"{p.cp}) do not divide by tp {p.tp}"
    )


@local_sequence_divides_by_tp.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    p = job.plan
    chunks = np.where(p.cp > 1, _context_multiple(job), 1)
    return {"seq_len": multiples_near(chunks * p.tp, job.workload.seq_len)}


@rule(
    "DAT122",
    "Sequence does not divide over Ulysses ranks",
    severity=Severity.ERROR,
    section="4.1",
    source="DeepSpeed deepspeed/runtime/sequence_parallel/ulysses_sp.py (0.19.8)",
    reads=("cp", "context_parallel"),
    confidence="read",
)
def sequence_divides_by_ulysses(job: Job) -> Mask:
    """Ulysses holds seq_len/cp tokens a rank outside attention; the shares must be equal.

    Fails: plan(seq_len=4098, cp=4, context_parallel=ContextParallel.ULYSSES)
    Passes: plan(seq_len=4100, cp=4, context_parallel=ContextParallel.ULYSSES)
    """
    p = job.plan
    return (p.context_parallel == ContextParallel.ULYSSES) & (job.workload.seq_len % p.cp != 0)


@sequence_divides_by_ulysses.message
def _(job: Job) -> str:
    return f"seq_len {job.workload.seq_len} does not divide by the Ulysses degree {job.plan.cp}"


@sequence_divides_by_ulysses.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"seq_len": multiples_near(job.plan.cp, job.workload.seq_len)}
