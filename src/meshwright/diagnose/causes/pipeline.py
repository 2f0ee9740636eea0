"""Causes in the pipeline: its bubble, uneven stages, the head on the last one, slow workers."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.causes.case import BUBBLE, UNEVEN, is_elsewhere
from meshwright.diagnose.causes.exposed import WAIT
from meshwright.diagnose.causes.levers import at_most_replayed, lever, predicted_gain_s
from meshwright.diagnose.causes.proofs import of_parts, of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import stage_wait_us, wait_us
from meshwright.plan.job import num_microbatches
from meshwright.plan.stages import all_stage_layers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Lever
    from meshwright.diagnose.pipeline.noun import Pipeline, Worker

MODEL = "model structure"
BUBBLE_SHARE = 0.1  # of the step: with 8 micro-batches a stage and more it is below
UNEVEN_FROM = 1.05  # heaviest stage over the mean; 1.1 and more is certain
CERTAIN = 1.1
SLOW_WORKER = 1.1  # over the median of its stage
WORTH = 0.03
VARIED = (
    0.15  # of durations within a stage: equal micro-batches differ by 2 to 3 % (both data sets)
)


def slow_worker(pipeline: Pipeline) -> tuple[Worker, float] | None:
    """The worker slowest beside the others of its stage, and how much; None with one a stage."""
    found = [(w, w.compute_us / m) for w in pipeline.by_worker if (m := _others_us(pipeline, w))]
    worst = max(found, key=lambda pair: pair[1], default=None)
    return worst if worst and worst[1] >= SLOW_WORKER else None


def _others_us(pipeline: Pipeline, worker: Worker) -> float:
    others = [w.compute_us for w in pipeline.by_worker if w.pp == worker.pp and w.dp != worker.dp]
    return median(others) if others else 0.0


def gain_us(pipeline: Pipeline, *changes: str) -> float:
    """What a step gains by the first of these changes that was replayed; 0 where none was."""
    for change in changes:
        if change in pipeline.what_if_us:
            return max(0.0, pipeline.step_span_us_median - pipeline.what_if_us[change])
    return 0.0


def uneven_us(pipeline: Pipeline) -> float:
    """What a step gains if stages were alike; without a replay the heaviest less their mean."""
    if "stages" in pipeline.effects_us:
        return pipeline.effects_us["stages"]
    if "stages alike" in pipeline.what_if_us:
        return gain_us(pipeline, "stages alike")
    stages = _stage_us(pipeline)
    return max(stages) - fmean(stages) if stages else 0.0


def stages_of(case: Case) -> list[float]:
    """Compute of each pipeline stage in one step, in their order; [] unknown."""
    if case.ranks:
        return list(case.across.stage_compute_us) if case.across else []
    return _stage_us(case.pipeline) if case.pipeline is not None else []


def _stage_us(pipeline: Pipeline) -> list[float]:
    """Compute of each stage in the order of the pipeline, slow workers apart."""
    names = dict.fromkeys(w.pp for w in pipeline.by_worker)
    found = [median(w.compute_us for w in pipeline.by_worker if w.pp == p) for p in sorted(names)]
    return found or list(pipeline.compute_us_median_by_stage.values())


def slow_worker_us(pipeline: Pipeline) -> float:
    """What a step gains if the slowest worker were like the others of its stage."""
    found = slow_worker(pipeline)
    if found is None:
        return 0.0
    worker, over = found
    replayed = gain_us(pipeline, f"worker pp {worker.pp} dp {worker.dp} at the median")
    return replayed or worker.compute_us * (1 - 1 / over)


def bubble_us(case: Case) -> float:
    """Time of a step in the bubble that the schedule has by design.

    From traces without a plan it is all that stages wait for each other.
    """
    if case.pipeline is not None and not case.ranks:
        return case.part_us(BUBBLE)
    job, waits = case.job, stage_wait_us(case)
    if job is None or int(job.plan.pp) == 1:
        return waits
    return min(waits, ideal_bubble(job.plan.pp, job.plan.vpp, num_microbatches(job)) * case.step_us)


def ideal_bubble(p: Any, v: Any, m: Any) -> float:
    """Share of a step of (interleaved) 1F1B that stages idle, (p-1)/(v*m+p-1)."""
    return float((p - 1) / (v * m + p - 1))


@cause(
    "MOD904",
    "Pipeline bubble",
    kind=MODEL,
    source="Megatron-LM (arXiv 2104.04473), section 2.2: (p-1)/(v*m+p-1)",
    needs=(),
    said_by=("MOD905", "MOD906", "CMP905", "DAT909", "HST907"),
    planned=True,
)
def pipeline_bubble(case: Case) -> Found | None:
    """Stages wait for the first micro-batch to come and for the last gradient to pass.

    Shown by: idle time of stages near (p-1)/(v*m+p-1) of the step for p stages, m micro-batches and
    v chunks a stage. Costs: that share, however even the stages are.
    Do: more micro-batches (smaller ones, or a larger global batch), interleaved or zero-bubble
    schedules, fewer stages.
    """
    us = bubble_us(case)
    if case.of_step(us) < BUBBLE_SHARE:
        return None
    part = BUBBLE if not case.ranks else WAIT
    shape = _shape(case)
    return Found(
        message=f"The pipeline's bubble takes {time(us)} of each step ({case.of_step(us):.0%})"
        + (f", as {shape} imply." if shape else ": stages wait for each other."),
        proofs=_bubble_proofs(case, us),
        lever=_best(
            case,
            "more and smaller micro-batches, an interleaved or a zero-bubble schedule",
            _bubble_changes(case),
        ),
        takes_us={part: us},
    )


def _shape(case: Case) -> str:
    p, m, v = 0, 0, 1
    if case.pipeline is None and case.job is None:
        return ""
    if case.pipeline is not None:
        p, m, v = case.pipeline.p, case.pipeline.m, case.pipeline.v
    elif case.job is not None:
        plan = case.job.plan
        p, m, v = int(plan.pp), int(num_microbatches(case.job)), int(plan.vpp)
    chunks = f", {v} chunks each," if v > 1 else ""
    return f"{p} stages{chunks} and {m} micro-batches"


def _bubble_proofs(case: Case, us: float) -> tuple[Any, ...]:
    if case.pipeline is None and case.job is None:
        return (of_parts(case, "exposed_comm", what="waits and transfers between stages and all"),)
    proofs = [of_ranks(f"ideal bubble of this schedule: {case.of_step(us):.1%} of the step", ())]
    if case.pipeline is not None:
        idle = case.pipeline.mean_idle_pct_of_step
        proofs.append(of_ranks(f"stages idle {idle:.1f}% of the step on average", ()))
    return tuple(proofs)


def _bubble_changes(case: Case) -> list[dict[str, Any]]:
    """Changes that make the bubble smaller, the plainest first."""
    if case.job is None:
        return [{"vpp": 2, "schedule": "interleaved"}, {"schedule": "zb-h1"}]
    plan = case.job.plan
    found: list[dict[str, Any]] = []
    if int(plan.micro_batch_size) > 1:
        found.append({"micro_batch_size": int(plan.micro_batch_size) // 2})
    if int(plan.vpp) == 1:
        found.append({"vpp": 2, "schedule": "interleaved"})
    found.append({"schedule": "zb-h1"})
    if int(plan.pp) > 1:
        found.append({"pp": int(plan.pp) // 2, "dp": 2 * int(plan.dp)})
    return found


def _best(case: Case, text: str, choices: Sequence[Mapping[str, Any]]) -> Any:
    """A lever with the changes that are predicted to gain most; the first without a plan.

    Without a plan no schedule gains more than a step would without any bubble, where that was
    replayed.
    """
    if case.job is None or is_elsewhere(case):
        found = lever(case, text, changes=choices[0], free="bubble")
        most = (
            gain_us(case.pipeline, "no pipeline bubble")
            if case.pipeline and not case.ranks
            else 0.0
        )
        if not most:
            return found
        gain_s = most / 1e6 if found.gain_s is None else min(found.gain_s, most / 1e6)
        return replace(found, gain_s=gain_s, basis="the pipeline replayed without its bubble")
    gains = [(predicted_gain_s(case.job, changes) or 0.0, changes) for changes in choices]
    best = max(gains, key=lambda pair: pair[0])
    return lever(case, text, changes=best[1] if best[0] else choices[0], free="bubble")


@cause(
    "MOD905",
    "One pipeline stage is heavier than the others",
    kind=MODEL,
    source="Understanding stragglers in LLM training (arXiv 2505.05713), section 4: stage "
    "partitioning",
    needs=(),
    said_by=("CMP912", "CMP905", "DAT909", "HST907"),
    same_as=("MOD906",),
)
def uneven_stages(case: Case) -> Found | None:
    """All stages keep pace with the heaviest one.

    Shown by: compute of one stage above the mean of all, in every step. Costs: the heaviest less
    the mean. Do: move layers away from it (first_stage_layers, last_stage_layers, layout), or count
    embedding and head when splitting.
    """
    over, us, where = _unevenness(case)
    if over < UNEVEN_FROM or case.of_step(us) < WORTH:
        return None
    return Found(
        message=f"{where} computes {over:.2f} times the mean of all stages.",
        proofs=(of_ranks(f"compute by stage: {_by_stage(case)}", ()),),
        lever=_even_lever(case, us),
        takes_us=_from_idle(case, us),
        confidence="high" if over >= CERTAIN else "medium",
    )


def _unevenness(case: Case) -> tuple[float, float, str]:
    """Heaviest stage over the mean, what that costs a step, and which stage it is."""
    stages = stages_of(case)
    told = case.across.imbalance.get("stage", 1.0) if case.across else 1.0
    over = max(stages) / fmean(stages) if stages and fmean(stages) else told
    name = f"Stage {stages.index(max(stages))}" if stages else "The heaviest pipeline stage"
    return over, _uneven_us(case, over), name


def _uneven_us(case: Case, over: float) -> float:
    """What a step gains if the heaviest stage were like the others."""
    if case.pipeline is not None and not case.ranks:
        return uneven_us(case.pipeline)
    cost = min(case.part_us("compute") * (over - 1), stage_wait_us(case) + wait_us(case))
    return at_most_replayed(case, cost, "stage")


def _by_stage(case: Case) -> str:
    return ", ".join(f"{n}: {time(us)}" for n, us in enumerate(stages_of(case))) or "not known"


def _from_idle(case: Case, us: float) -> dict[str, float]:
    """Time of a step's idle parts: beyond the ideal bubble first, then of the bubble."""
    if case.ranks:
        return {WAIT: us}
    first = min(us, case.part_us(UNEVEN))
    return {UNEVEN: first, BUBBLE: us - first}


def _even_lever(case: Case, us: float) -> Lever:
    """Layers moved away; that makes stages alike, and no stage as fast as the lightest."""
    changes: dict[str, Any] = {"loss_in_split": True, "embedding_in_split": True}
    if case.job is not None:
        changes = _fewer_layers(case) or changes
    found = lever(case, "give the heaviest stage fewer layers", changes=changes, free="stage")
    return found if found.gain_s is None else replace(found, gain_s=min(found.gain_s, us / 1e6))


def _fewer_layers(case: Case) -> dict[str, Any]:
    """Layers of the last (or first) stage that would even it out, where that one is heaviest."""
    stages, job = stages_of(case), case.job
    if job is None or len(stages) != int(job.plan.pp) or len(stages) < 2:
        return {}
    heaviest = stages.index(max(stages))
    if heaviest not in (0, len(stages) - 1):
        return {}
    layers = [int(stage.layers) for stage in all_stage_layers(job)]
    per_layer = [
        us / n
        for place, (us, n) in enumerate(zip(stages, layers, strict=True))
        if n and place != heaviest
    ]
    if not per_layer or not median(per_layer):
        return {}
    besides = max(0.0, stages[heaviest] / median(per_layer) - layers[heaviest])  # in layers
    even = round((sum(layers) - besides * (len(stages) - 1)) / len(stages))
    if even < 1 or even == layers[heaviest]:
        return {}
    return {"first_stage_layers" if heaviest == 0 else "last_stage_layers": even}


@cause(
    "MOD906",
    "The loss head makes the last stage the heaviest",
    kind=MODEL,
    source="Understanding stragglers in LLM training (arXiv 2505.05713), section 4; vocabulary "
    "parallelism (arXiv 2411.05288)",
    needs=(),
    said_by=("CMP912", "CMP905", "DAT909", "HST907"),
)
def head_on_last_stage(case: Case) -> Found | None:
    """The last stage has as many layers as the others and the head and the loss besides.

    Shown by: the last stage alone above the rest, which are even among themselves.
    Costs: the last stage less the mean. Do: fewer layers on it (last_stage_layers, loss_in_split),
    the vocabulary over all stages (vocab_over_pipeline), a fused loss.
    """
    stages = stages_of(case)
    if len(stages) < 2 or not any(stages[:-1]) or _has_more_layers_last(case):
        return None
    rest, us = stages[:-1], _uneven_us(case, max(stages) / fmean(stages))
    even = max(rest) <= UNEVEN_FROM * fmean(rest)
    if not even or stages[-1] < UNEVEN_FROM * max(rest) or case.of_step(us) < WORTH:
        return None
    over = stages[-1] / fmean(rest)
    return Found(
        message=f"The last stage computes {over:.2f} times as long as the others, which are even.",
        proofs=(of_ranks(f"compute by stage: {_by_stage(case)}", ()),),
        lever=_even_lever(case, us),
        takes_us=_from_idle(case, us),
        confidence="high" if over >= CERTAIN else "medium",
    )


def _has_more_layers_last(case: Case) -> bool:
    """Whether the plan gives the last pipeline rank more layers than any other."""
    if case.job is None or int(case.job.plan.pp) < 2:
        return False
    layers = [int(stage.layers) for stage in all_stage_layers(case.job)]
    return layers[-1] > max(layers[:-1])


@cause(
    "CMP912",
    "One worker of a pipeline stage is slow",
    kind="compute resources",
    source="Understanding stragglers in LLM training (arXiv 2505.05713), section 4: worker faults",
    needs=("pipeline",),
)
def slow_pipeline_worker(case: Case) -> Found | None:
    """One worker computes longer than the others of its stage, who have the same work.

    Shown by: its median compute over theirs, at least 1.1. Everybody else waits for it: in the
    reduction of gradients, and in receives along its pipeline. Costs: its excess.
    Do: check clocks, temperature, ECC and what else runs on that host; drain the node.
    """
    pipeline = case.pipeline
    found = slow_worker(pipeline) if pipeline is not None and not case.ranks else None
    if pipeline is None or found is None:
        return None
    worker, over = found
    us = min(slow_worker_us(pipeline), case.part_us(UNEVEN, BUBBLE))
    if case.of_step(us) < WORTH:
        return None
    name = f"stage {worker.pp}, data-parallel rank {worker.dp}"
    return Found(
        message=f"The worker of {name} takes {over:.2f} times as long as the others of its stage.",
        proofs=(
            of_ranks(
                f"it computes {time(worker.compute_us)} a step, the others of stage {worker.pp} "
                f"{time(_others_us(pipeline, worker))}",
                (),
            ),
        ),
        lever=lever(case, f"take the node of {name} out, or restore its clocks", free="straggler"),
        takes_us=_from_idle(case, us),
    )
