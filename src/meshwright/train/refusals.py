"""What the engine cannot execute, told before torch is imported; one function an axis."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding
from meshwright.model.architecture import Experts
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Optimizer, Precision, Schedule
from meshwright.plan.stages import chunks_per_rank
from meshwright.train.families import layouts, model_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job

_NO_NARROWER = (Precision.MXFP8, Precision.NVFP4)


def refusals(job: Job) -> list[Finding]:
    """Every reason why the engine cannot run the plan of a job; empty where it can."""
    return [finding for case in CASES for finding in case(job)]


def _batch(job: Job) -> Iterator[Finding]:
    """The global batch in whole micro-batches, the same number on every replica."""
    plan, size = job.plan, job.workload.global_batch_size
    together = int(plan.dp) * int(plan.micro_batch_size)
    if size % together:
        below, above = size // together * together, -(-size // together) * together
        yield _finding(
            "workload.global_batch",
            size,
            f"a batch of {size} does not divide into micro-batches of {plan.micro_batch_size} on "
            f"{plan.dp} replicas",
            hint=f"workload.global_batch = {below or above} or {above}",
        )


def _sequence(job: Job) -> Iterator[Finding]:
    """Rows in whole slices: two for each cp rank unless all-to-all gives it whole rows."""
    plan, length = job.plan, job.workload.seq_len
    cp = int(plan.cp)
    is_whole = int(plan.context_parallel) == ContextParallel.ULYSSES
    parts = cp if is_whole else 2 * cp
    if cp > 1 and length % parts:
        above = -(-length // parts) * parts
        yield _finding(
            "workload.seq_len",
            length,
            f"rows of {length} tokens do not divide into {parts} slices for cp {cp}",
            hint=f"workload.seq_len = {above}, or another plan.cp",
        )
    tp = int(plan.tp)
    if tp > 1 and plan.sequence_parallel and length % cp == 0 and (length // cp) % tp:
        yield _finding(
            "plan.tp",
            tp,
            f"slices of {length // cp} tokens do not divide by tp {tp} for sequence parallelism",
            hint="plan.sequence_parallel = false, or another workload.seq_len",
        )


def _tensor(job: Job) -> Iterator[Finding]:
    """Families that have no layout over tp, and sizes that it does not divide."""
    tp, model = int(job.plan.tp), job.model
    if tp == 1:
        return
    if model_type_of(model.family) not in layouts():
        yield _finding(
            "plan.tp",
            tp,
            f"tensor parallelism of the family {model.family!r} is not known",
            hint=f"plan.tp = 1, or one of the families {', '.join(sorted(layouts()))}",
        )
    sizes = _cut_over_tp(model)
    uneven = [f"{size} {name}" for name, size in sizes if size % tp]
    if uneven:
        fitting = [n for n in range(1, tp) if all(size % n == 0 for _, size in sizes)]
        yield _finding(
            "plan.tp",
            tp,
            f"tp {tp} does not divide the model's {', '.join(uneven)}",
            hint=f"plan.tp = {fitting[-1]}",
        )


def _cut_over_tp(model: Model) -> list[tuple[str, int]]:
    """(name, size) of all that tensor parallelism cuts in whole parts."""
    found: dict[tuple[str, int], None] = {}
    for block in model.kinds:
        attention, network = block.attention, block.feed_forward
        found["attention heads", attention.num_attention_heads] = None
        if not attention.is_latent:  # each latent head has keys of its own
            found["key/value heads", attention.num_key_value_heads] = None
        if not isinstance(network, Experts):
            found["columns of the feed-forward network", network.intermediate_size] = None
        elif network.shared_intermediate_size:
            found["columns of the shared experts", network.shared_intermediate_size] = None
    return list(found)


def _pipeline(job: Job) -> Iterator[Finding]:
    """Schedules that neither torch nor our tables have, and too few micro-batches."""
    plan = job.plan
    if int(plan.pp) < 2:
        return
    schedule = Schedule(int(plan.schedule))
    if schedule is Schedule.DUALPIPE:
        yield _finding(
            "plan.schedule",
            "dualpipe",
            "DualPipe holds every layer twice, which this engine does not",
            hint='plan.schedule = "dualpipe-v", the same order with one copy',
        )
    count, pp = int(num_microbatches(job)), int(plan.pp)
    if schedule is Schedule.ONE_F_ONE_B and int(chunks_per_rank(plan)) == 1 and count < pp:
        yield _finding(
            "workload.global_batch",
            job.workload.global_batch_size,
            f"{count} micro-batches are fewer than the {pp} stages of 1F1B",
            hint=f"workload.global_batch = {pp * int(plan.dp) * int(plan.micro_batch_size)}, or "
            'plan.schedule = "gpipe"',
        )
    if plan.vocab_over_pipeline:
        yield _finding(
            "plan.vocab_over_pipeline",
            True,
            "the vocabulary cannot be spread over pipeline stages",
            hint="plan.vocab_over_pipeline = false",
        )


def _experts(job: Job) -> Iterator[Finding]:
    """Experts over the ranks of one replica; without ZeRO every data-parallel rank is a replica."""
    plan = job.plan
    over, dp, inner = int(plan.ep) * int(plan.etp), int(plan.dp), int(plan.cp) * int(plan.tp)
    replicas = int(plan.dp_replicate) if int(plan.zero_stage) else dp
    if (dp * inner) % over or dp % replicas or dp // replicas * inner % over == 0:
        return  # that they fit in all ranks of the stage is a rule
    fits = [n for n in range(1, dp + 1) if dp % n == 0 and dp // n * inner % over == 0]
    is_whole = int(plan.zero_stage) == 0
    yield _finding(
        "plan.ep",
        int(plan.ep),
        f"ep * etp = {over} does not divide the {dp // replicas * inner} ranks over which one "
        f"replica of the weights lies{' without ZeRO' if is_whole else ''}",
        hint="plan.zero_stage = 1" if is_whole else f"plan.dp_replicate = {max(fits)}",
    )


def _precision(job: Job) -> Iterator[Finding]:
    """Formats that are neither torch's nor torchao's here."""
    precision = Precision(int(job.plan.precision))
    if precision in _NO_NARROWER:
        yield _finding(
            "plan.precision",
            precision.name.lower(),
            f"products in {precision.name.lower()} are not implemented",
            hint='plan.precision = "fp8" or "bf16"',
        )
    if precision == Precision.FP8:
        yield from _needs("torchao", "plan.precision", "fp8", 'plan.precision = "bf16"')
        if int(job.plan.tp) > 1:
            yield _finding(
                "plan.precision",
                "fp8",
                "products in fp8 are not cut over tp",
                hint='plan.tp = 1, or plan.precision = "bf16"',
            )
    if precision == Precision.FP16 and not (job.plan.master_weights or job.plan.param_bytes == 4):
        yield _finding(
            "plan.master_weights",
            False,
            "updates of fp16 weights vanish: most are below their last digit",
            hint='plan.master_weights = true, or plan.precision = "bf16"',
        )


def _optimizer(job: Job) -> Iterator[Finding]:
    """Optimizers of libraries that need not be there."""
    if int(job.plan.optimizer) == Optimizer.ADAM_8BIT:
        yield from _needs("torchao", "plan.optimizer", "adam-8bit", 'plan.optimizer = "adam"')


def _adapters(job: Job) -> Iterator[Finding]:
    """LoRA: linear layers of one rank each, and frozen weights in the run's own formats."""
    plan = job.plan
    if int(plan.lora_rank):
        yield from _needs("peft", "plan.lora_rank", int(plan.lora_rank), "plan.lora_rank = 0")
    if int(plan.lora_rank) and int(plan.tp) > 1:
        yield _finding(
            "plan.tp",
            int(plan.tp),
            "adapters of layers that are cut over tp are not implemented",
            hint="plan.tp = 1: frozen weights need no more than FSDP, plan.zero_stage = 3",
        )
    if int(plan.base_weight_bits):
        yield _finding(
            "plan.base_weight_bits",
            int(plan.base_weight_bits),
            "frozen weights of fewer bits (QLoRA) are not implemented",
            hint="plan.base_weight_bits = 0",
        )


def _compiled(job: Job) -> Iterator[Finding]:
    """What torch.compile cannot look into."""
    if job.plan.compile and float(job.plan.offload_activations):
        yield _finding(
            "plan.compile",
            True,
            "compiled layers cannot keep what they save on the host",
            hint="plan.compile = false, or plan.offload_activations = 0",
        )


def _needs(package: str, key: str, value: object, instead: str) -> Iterator[Finding]:
    """A finding where a library is not installed."""
    if find_spec(package) is None:
        message = f"this is done by {package}, which is not installed"
        yield _finding(key, value, message, hint=f"pip install {package}, or {instead}")


def _offload(job: Job) -> Iterator[Finding]:
    """What can be kept on the host is parameters with their optimizer states."""
    plan = job.plan
    if float(plan.offload_optimizer) and not plan.offload_params:
        yield _finding(
            "plan.offload_optimizer",
            float(plan.offload_optimizer),
            "optimizer states go to the host together with the parameters, or not at all",
            hint="plan.offload_params = true, or plan.offload_optimizer = 0",
        )
    if not 0 <= float(plan.offload_activations) <= 1:
        yield _finding(
            "plan.offload_activations",
            float(plan.offload_activations),
            "the share of layers that keep what they save on the host lies between 0 and 1",
            hint="plan.offload_activations = 1",
        )


CASES: tuple[Callable[[Job], Iterator[Finding]], ...] = (
    _batch,
    _sequence,
    _tensor,
    _pipeline,
    _experts,
    _precision,
    _optimizer,
    _adapters,
    _compiled,
    _offload,
)


def _finding(key: str, value: object, message: str, *, hint: str) -> Finding:
    return Finding(message=message, key=key, value=value, hint=hint)
