"""DAT1xx, before all others: values that no plan can have.

Section 4.1 of the guidelines. Where one of these fires, the other rules are not asked.
"""

from __future__ import annotations

from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.words import CHOICES
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_replicate", "micro_batch_size")
_COUNTS = ("first_stage_layers", "last_stage_layers", "recompute_layers", "lora_rank")
_SHARES = ("offload_optimizer", "offload_activations")
MOST_GPUS = 10**7  # more than any one job has
MOST_CHUNKS = 10**4  # more than any model has layers
MOST_SEQUENCES = 10**9
MOST_TOKENS = 10**9


@rule(
    "DAT105",
    "A parallel degree is below one",
    severity=Severity.ERROR,
    section="4.1",
    source="torchtitan torchtitan/distributed/parallel_dims.py ParallelDims (0.3.0); "
    "transformers src/transformers/distributed/configuration_utils.py (5.23.0)",
    reads=_DEGREES,
    confidence="run",
    foremost=True,
)
def degrees_are_positive(job: Job) -> Mask:
    """A degree counts ranks, so 1 switches an axis off and nothing smaller has a meaning.

    Fails: plan(pp=0, dp=8)
    Passes: plan(pp=1)
    """
    return reduce(np.logical_or, (getattr(job.plan, name) < 1 for name in _DEGREES))


@degrees_are_positive.message
def _(job: Job) -> str:
    low = [f"{n} = {getattr(job.plan, n)}" for n in _DEGREES if getattr(job.plan, n) < 1]
    return f"{', '.join(low)}: must be at least 1"


@degrees_are_positive.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {name: (1,) for name in _DEGREES if getattr(job.plan, name) < 1}


def _bounds() -> Iterator[tuple[str, float, float]]:
    """Plan fields with the least and the largest value that has a meaning."""
    for name in ("tp", "pp", "cp", "ep", "etp", "dp", "dp_replicate"):
        yield name, -np.inf, MOST_GPUS
    yield "vpp", -np.inf, MOST_CHUNKS
    yield "micro_batch_size", -np.inf, MOST_SEQUENCES
    for name in _COUNTS:
        yield name, 0, MOST_SEQUENCES
    for name in _SHARES:
        yield name, 0, 1
    for name, words in CHOICES.items():
        yield name, 0, max(words.values())


_BOUNDS = tuple(_bounds())


@rule(
    "DAT191",
    "A setting of the plan has no meaning",
    severity=Severity.ERROR,
    section="4.1",
    source="the enumerations and units of a plan",
    reads=tuple(name for name, _, _ in _BOUNDS),
    confidence="arithmetic",
    foremost=True,
)
def settings_have_meaning(job: Job) -> Mask:
    """Counts are not negative, shares lie between 0 and 1, choices are among those there are.

    Degrees have an upper end too: no job has ten million GPUs, no model ten thousand layers.

    Fails: plan(schedule=9)
    Fails: plan(offload_optimizer=1.5)
    Fails: plan(vpp=1000000)
    Passes: plan(schedule=Schedule.GPIPE, offload_optimizer=0.5)
    """
    values = ((getattr(job.plan, name), low, high) for name, low, high in _BOUNDS)
    within = ((value >= low) & (value <= high) for value, low, high in values)
    return np.logical_not(reduce(np.logical_and, within))


@settings_have_meaning.message
def _(job: Job) -> str:
    wrong = [
        f"{name} = {value} (at {'least' if value < low else 'most'} {low if value < low else high})"
        for name, low, high in _BOUNDS
        if not low <= (value := getattr(job.plan, name)) <= high
    ]
    return ", ".join(wrong)


@rule(
    "DAT192",
    "A step without tokens, or with more than there are",
    severity=Severity.ERROR,
    section="4.1",
    source="tokens a step = seq_len x global_batch_size",
    foremost=True,
)
def step_has_tokens(job: Job) -> Mask:
    """A step processes at least one sequence of at least one token.

    Fails: plan(global_batch_size=0)
    Passes: plan(global_batch_size=64)
    """
    workload = job.workload
    sequences = 1 <= workload.global_batch_size <= MOST_SEQUENCES
    return not (sequences and 1 <= workload.seq_len <= MOST_TOKENS)


@step_has_tokens.message
def _(job: Job) -> str:
    workload = job.workload
    return (
        f"seq_len = {workload.seq_len} (1 to {MOST_TOKENS}), global_batch_size = "
        f"{workload.global_batch_size} (1 to {MOST_SEQUENCES})"
    )


_POSITIVE = frozenset(
    {"step_time_s", "job_mtbf_s", "gpu_mtbf_s", "gpus_per_process", "eval_micro_batch_size"}
    | {"read_bytes_per_s_per_node", "checkpoint_write_bytes_per_s_per_node", "dataset_tokens"}
    | {"checkpoint_interval_s", "checkpoint_interval_steps", "tuned_global_batch_size"}
    | {"read_amplification", "critical_batch_tokens", "eval_global_batch_size", "bucket_elements"}
)
_SIGNED = frozenset({"expert_capacity_factor"})  # a negative one means that no token is dropped
MOST = 1e18  # of anything: bytes, tokens, seconds


def _meaningless_facts(job: Job) -> dict[str, float]:
    """Stated numbers of the workload that are negative, not finite, absurd, or zero in vain."""
    workload = job.workload
    wrong: dict[str, float] = {}
    for noun in (workload.loading, workload.runtime, workload.recipe):
        for name in (f.name for f in fields(noun)):
            value = getattr(noun, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or name in _SIGNED:
                continue
            if not 0 <= value <= MOST or (value == 0 and name in _POSITIVE):
                wrong[name] = value
    return wrong


@rule(
    "DAT193",
    "A stated fact of the workload has no meaning",
    severity=Severity.ERROR,
    section="4.1",
    source="the units of a workload",
    foremost=True,
)
def facts_have_meaning(job: Job) -> Mask:
    """Counts, times and rates are finite and not negative; what is divided by is not zero.

    Leave a fact out when it is not known: the rules that need it then stay silent.

    Fails: plan(step_time_s=0.0)
    Fails: plan(num_workers=-1)
    Passes: plan(step_time_s=2.5, num_workers=0)
    """
    return bool(_meaningless_facts(job))


@facts_have_meaning.message
def _(job: Job) -> str:
    wrong = [f"{name} = {value}" for name, value in _meaningless_facts(job).items()]
    return f"{', '.join(wrong)}: leave out what is not known"
