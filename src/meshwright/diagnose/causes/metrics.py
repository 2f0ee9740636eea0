"""Causes that a run's own metrics show, over all of its steps and not only those traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.units import format_duration
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.proofs import of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case

WAITED = 0.05  # of the time of steps: a loader that keeps up leaves well under 1 %
STALLED = 0.02  # of the time of the run
SLOWER = 1.1  # the last third of the steps over the first
SKIPPED = 0.02  # of the steps: a loss scale that is found skips one in some thousands
SOURCE = "metrics.jsonl of `meshwright train`"


def _figure(case: Case, name: str) -> float:
    """A figure of the metrics, 0 where they do not have it."""
    value = (case.evidence.metrics or {}).get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _takes(case: Case, part: str, share: float) -> dict[str, float]:
    """Time of a step: what the traces have of it, or what the metrics say where there are none."""
    us = min(case.part_us(part), share * case.step_us) if case.ranks else share * case.step_us
    return {part: us} if us else {}


def _told(case: Case, share: str, part: str, message: str, made: Any) -> Found:
    found = _figure(case, share)
    steps = int(_figure(case, "steps"))
    return Found(
        message=message,
        proofs=(of_ranks(f"{found:.1%} of the time of {steps:,} steps, by metrics.jsonl", ()),),
        lever=made,
        takes_us=_takes(case, part, found),
    )


@cause(
    "DAT911",
    "Steps wait for their data, by the run's metrics",
    kind="data processing",
    source=SOURCE,
    needs=("metrics",),
    same_as=("DAT901", "DAT902", "DAT903", "DAT908", "DAT909"),
)
def waits_for_data(case: Case) -> Found | None:
    """Over the whole run the slowest rank waits for batches.

    Shown by: data_wait_s of the steps in metrics.jsonl, 5% of their time and more.
    Costs: that time. Do: more workers, prefetch, data that is tokenized and packed beforehand;
    trace some steps to see where in the loader the time goes.
    """
    share = _figure(case, "data_wait_share")
    if share < WAITED:
        return None
    wait = format_duration(_figure(case, "data_wait_s_median"))
    made = lever(
        case,
        "more workers of the loader, or data that is tokenized beforehand",
        changes={"workload.loading.num_workers": 4},
        command="meshwright data build",
        free="data_loading",
    )
    message = f"Ranks wait for data {share:.0%} of the time, {wait} a step in the median."
    return _told(case, "data_wait_share", "idle_dataloader", message, made)


@cause(
    "HST913",
    "Saving takes a notable part of the run",
    kind="host",
    source=SOURCE + "; Young (1974), Daly (2006): optimum checkpoint interval",
    needs=("metrics",),
    same_as=("HST902",),
)
def saving_share(case: Case) -> Found | None:
    """Training stands still for checkpoints longer than their worth.

    Shown by: save_s in metrics.jsonl, 2% of the run's time and more. Costs: that time.
    Do: asynchronous saving, a longer interval.
    """
    share = _figure(case, "save_share")
    if share < STALLED:
        return None
    count, each = _figure(case, "save_s_count"), _figure(case, "save_s_median")
    made = lever(
        case,
        "save asynchronously, or less often",
        changes={"workload.loading.checkpoint_async": True},
    )
    message = f"{count:.0f} checkpoints of {format_duration(each)} took {share:.0%} of the time."
    return _told(case, "save_share", "idle_checkpoint", message, made)


@cause(
    "HST914",
    "Evaluation takes a notable part of the run",
    kind="host",
    source=SOURCE,
    needs=("metrics",),
    same_as=("HST906",),
)
def evaluation_share(case: Case) -> Found | None:
    """Training stands still for evaluation.

    Shown by: evaluate_s in metrics.jsonl, 2% of the run's time and more. Costs: that time.
    Do: evaluate less often, on fewer samples, or in a job of its own from checkpoints.
    """
    share = _figure(case, "evaluate_share")
    if share < STALLED:
        return None
    made = lever(case, "evaluate less often, on fewer samples, or in a job of its own")
    message = f"Evaluation took {share:.0%} of the run's time."
    return _told(case, "evaluate_share", "idle_evaluation", message, made)


@cause(
    "HST915",
    "The run was started anew",
    kind="host",
    source=SOURCE,
    needs=("metrics",),
)
def restarts(case: Case) -> Found | None:
    """The run failed and went on from a checkpoint; what came after that one was lost.

    Shown by: several attempts in metrics.jsonl. Costs no time of a step, but of the run.
    Do: read the logs of the attempts; more frequent asynchronous checkpoints.
    """
    again = int(_figure(case, "restarts"))
    if again < 1:
        return None
    between = _figure(case, "between_attempts_s")
    lost = f", {format_duration(between)} between them" if between else ""
    return Found(
        message=f"The run was started again {again} {'time' if again == 1 else 'times'}{lost}.",
        proofs=(of_ranks(f"{again + 1} attempts in metrics.jsonl", ()),),
        lever=lever(case, "read the logs of the attempts; save more often, asynchronously"),
        takes_us={},
    )


@cause(
    "CMP918",
    "Steps become slower while the run goes on, by its metrics",
    kind="compute resources",
    source=SOURCE + "; fail-slow in XPUTimer (arXiv 2502.05413)",
    needs=("metrics",),
    same_as=("CMP906",),
)
def slower_and_slower(case: Case) -> Found | None:
    """The last third of the steps takes longer than the first, with the same work.

    Shown by: step_s in metrics.jsonl, the median of the last third at least 1.1 times the first.
    Costs: what a step takes above its beginnings. Do: look at clocks and temperature, at memory
    that grows on the host, at other jobs on the nodes.
    """
    drift = _figure(case, "drift")
    us = case.step_us * (1 - 2 / (1 + drift)) if drift > SLOWER else 0.0
    if not us:
        return None
    return Found(
        message=f"Steps at the end of the run take {drift:.2f} times as long as at its start.",
        proofs=(of_ranks(f"a median step takes {time(case.step_us)}", ()),),
        lever=lever(case, "look at clocks, temperature, memory of the host and other jobs"),
        takes_us={"compute": us},
        confidence="medium",
    )


@cause(
    "HST911",
    "Steps are skipped or end in NaN",
    kind="host",
    source="Mixed precision training (arXiv 1710.03740), section 3.2: loss scaling",
    needs=("metrics",),
)
def skipped_steps(case: Case) -> Found | None:
    """Steps compute gradients that are then thrown away, because they are not finite.

    Shown by: steps without an update, or without a loss that is a number, in metrics.jsonl.
    Costs: these steps whole. Do: bf16 instead of fp16, a lower learning rate, a look at the batches
    of those steps.
    """
    steps = _figure(case, "steps")
    skipped = max(_figure(case, "skipped_steps"), _figure(case, "not_finite_steps"))
    if not steps or skipped < SKIPPED * steps:
        return None
    return Found(
        message=f"{skipped:,.0f} of {steps:,.0f} steps changed nothing: loss or gradients were not "
        "finite.",
        proofs=(of_ranks(f"{skipped / steps:.1%} of the steps in metrics.jsonl", ()),),
        lever=lever(
            case, "train in bf16, or lower the learning rate", changes={"precision": "bf16"}
        ),
        takes_us={},
    )
