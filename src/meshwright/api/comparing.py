"""How far a configuration's plan is from the best one under the same pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.plan.plan import Plan, Schedule

if TYPE_CHECKING:
    from meshwright.cost.predict import Prediction
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.plan.job import Job
    from meshwright.search import Candidate

LEAST_GAIN = 0.03  # of the step: below it two plans are as good as one
_KEPT = (
    "sequence_parallel",
    "overlap_tp",
    "offload_activations",
    "zero_stage",
    "reshard_after_forward",
    "offload_optimizer",
    "offload_params",
    "overlap_grad_reduce",
    "overlap_param_gather",
)
_SAID = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch_size", "recompute")
_SUMS = frozenset({"time.compute", "time.communication"})
_REASONS = 2
_ONE_RANK_EACH = frozenset({"hf-trainer", "accelerate", "deepspeed", "llama-factory", "axolotl"})


def distance(reading: Reading, drafted: Drafted, *, own: Prediction) -> tuple[Finding, ...]:
    """CFG202: what the best plan that the framework can run would gain, and why.

    `own` is what the drafted plan costs. The search keeps the model, the cluster, the workload, the
    precision, the optimizer and how state is sharded and hidden; it varies the mesh, the
    micro-batch and recomputation.
    """
    best = _best(reading, drafted.job)
    if best is None:
        return ()
    gain = 1 - best.prediction.step_time_s / own.step_time_s
    if gain < LEAST_GAIN:
        return (_note(reading, f"within {max(gain, 0):.0%} of the best plan found", ""),)
    words = _difference(drafted.job.plan, best.plan)
    slower = own.step_time_s / best.prediction.step_time_s - 1
    message = f"predicted {slower:.0%} slower than {words}: {_because(own, best.prediction)}"
    return (_note(reading, message, words),)


def _best(reading: Reading, job: Job) -> Candidate | None:
    """The fastest plan that fits and that the framework can run."""
    from meshwright.search import Options, fastest

    plan = job.plan.row(0)
    pins: dict[str, tuple[Any, ...]] = {name: (getattr(plan, name),) for name in _KEPT}
    if plan.schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE):
        pins["schedule"] = (int(plan.schedule),)
    if plan.cp == 1:
        pins["cp"] = (1,)
    if reading.config.framework.name in _ONE_RANK_EACH:
        pins |= {"pp": (1,), "ep": (int(plan.ep),)}
    base = plan.replace(first_stage_layers=0, last_stage_layers=0, layout=None)
    settings = Options(pins=pins, base=base)
    return fastest(job, settings, accept=lambda found: _runs(reading, job, found))


def _runs(reading: Reading, job: Job, plan: Plan) -> bool:
    """Whether the configuration's framework can run a plan."""
    express = reading.config.framework.express
    if express is None:
        return True
    try:
        return not express(job.with_plan(plan.row(0)), reading.config.version).refused
    except MeshwrightError:
        return False


def _difference(own: Plan, best: Plan) -> str:
    """The settings that differ, as a plan.toml words them: "tp=4 pp=2"."""
    from meshwright.plan.words import word

    rows = own.row(0), best.row(0)
    changed = [n for n in _SAID if getattr(rows[0], n) != getattr(rows[1], n)]
    return " ".join(f"{name}={word(name, getattr(rows[1], name))}" for name in changed)


def _because(own: Prediction, best: Prediction) -> str:
    """Which parts of the step the better plan spends least on, by comparison."""
    saved = {
        name.removeprefix("time."): own.terms[name].value - best.terms[name].value
        for name in own.terms
        if name.startswith("time.") and name in best.terms and name not in _SUMS
    }
    first = sorted(saved, key=lambda name: -saved[name])[:_REASONS]
    parts = [
        f"{name.replace('.', ' ')} {own.terms['time.' + name].value:.3g} s instead of "
        f"{best.terms['time.' + name].value:.3g} s"
        for name in first
        if saved[name] > 0
    ]
    return ", ".join(parts) or f"{own.step_time_s:.3g} s instead of {best.step_time_s:.3g} s"


def _note(reading: Reading, message: str, hint: str) -> Finding:
    sources = reading.config.sources
    return Finding(
        code="CFG202",
        severity=Severity.INFO,
        file=sources[0].file if sources else "",
        message=message,
        hint=hint,
        confidence="predicted",
    )
