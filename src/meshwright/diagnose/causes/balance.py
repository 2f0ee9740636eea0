"""Causes in how work is spread: experts, sequences of different length."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import BUBBLE, UNEVEN
from meshwright.diagnose.causes.exposed import WAIT
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.pipeline import gain_us, slow_worker
from meshwright.diagnose.causes.proofs import of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import MUCH_WAITING, wait_us

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.pipeline.noun import Pipeline

EXPERTS = 1.2  # heaviest rank over the mean: auxiliary losses keep it near 1.1
SEQUENCES = 1.1
VARIED = 0.1  # of durations in a stage: equal micro-batches differ by 2 to 3 % (arXiv 2505.05713)
WORTH = 0.03


def _imbalance(case: Case, name: str) -> float:
    return case.across.imbalance.get(name, 1.0) if case.across else 1.0


@cause(
    "MOD907",
    "Experts have unequal numbers of tokens",
    kind="model structure",
    source="Switch transformers (arXiv 2101.03961), section 2.2; DeepSeek-V3 (arXiv 2412.19437), "
    "section 2.1.2",
    needs=("across",),
)
def expert_imbalance(case: Case) -> Found | None:
    """The rank with the most popular experts computes longest, and the exchange waits for it.

    Shown by: compute of expert layers on one rank of an ep group above the mean of the group, and
    waits in the all-to-alls. Costs: the heaviest less the mean.
    Do: a balancing loss or bias, a capacity factor, expert placement (EPLB), a smaller ep.
    """
    over = _imbalance(case, "expert")
    us = min(wait_us(case), case.part_us("compute") * (over - 1))
    if over < EXPERTS or case.of_step(us) < WORTH:
        return None
    balancing = case.job.workload.runtime.expert_balancing if case.job else None
    change = {"workload.runtime.expert_capacity_factor": 1.25}
    if balancing in (None, "none"):
        change = {"workload.runtime.expert_balancing": "aux_loss"}  # type: ignore[dict-item]
    return Found(
        message=f"The heaviest rank of an expert group computes {over:.2f} times the mean.",
        proofs=(of_ranks(f"ranks wait {time(us)} of each step for it", ()),),
        lever=lever(
            case, "balance the router, cap its capacity, or place experts anew", changes=change
        ),
        takes_us={WAIT: us},
        confidence="medium",
    )


@cause(
    "DAT906",
    "Micro-batches differ in length",
    kind="data processing",
    source="Understanding stragglers in LLM training (arXiv 2505.05713), section 5: sequence "
    "length",
    needs=(),
    said_by=("CMP912",),
)
def uneven_sequences(case: Case) -> Found | None:
    """Attention costs more for long documents, so the rank with the longest holds up the rest.

    Shown by: durations of the same pass within a stage that vary far more than 2 to 3%, or ranks
    that are slow in turn with their batch. Costs: the longest less the mean.
    Do: pack by cost instead of by length, sort micro-batches, balance over ranks
    (context_balancer), `meshwright data plan`.
    """
    found = _of_pipeline(case) if case.pipeline is not None and not case.ranks else _of_ranks(case)
    if found is None:
        return None
    text, takes = found
    us = sum(takes.values())
    return Found(
        message=f"Micro-batches of different length cost {time(us)} of each step.",
        proofs=(of_ranks(text, ()),),
        lever=lever(
            case,
            "balance micro-batches by the cost of attention, not by tokens",
            changes={"workload.runtime.context_balancer": "documents"},
            command="meshwright data plan",
        ),
        takes_us=takes,
        confidence="medium",
    )


def _of_pipeline(case: Case) -> tuple[str, dict[str, float]] | None:
    pipeline = case.pipeline
    if pipeline is None or slow_worker(pipeline) is not None:
        return None
    varied = _variation(pipeline)
    us = pipeline.effects_us.get("microbatches", gain_us(pipeline, "microbatches alike"))
    if varied < VARIED or case.of_step(us) < WORTH:
        return None
    text = f"passes of one kind within a stage vary by {varied:.0%} of their mean"
    first = min(us, case.part_us(UNEVEN))
    return text, {UNEVEN: first, BUBBLE: min(us - first, case.part_us(BUBBLE))}


def _variation(pipeline: Pipeline) -> float:
    values = list(pipeline.duration_cv_within_stage.values())
    return median(values) if values else 0.0


def _of_ranks(case: Case) -> tuple[str, dict[str, float]] | None:
    over = _imbalance(case, "sequence")
    us = min(wait_us(case), case.part_us("compute") * (over - 1))
    if not case.ranks or over < SEQUENCES or case.of_step(us) < max(WORTH, MUCH_WAITING):
        return None
    return f"the slowest rank of a step computes {over:.2f} times the mean, in turn", {WAIT: us}
