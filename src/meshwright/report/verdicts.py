"""What `verify` found: a line for each shrunk plan, and the tensors that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.plan.words import plan_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.train.verify import Verdict

MOST_TENSORS = 8  # named below a plan that differs


def verdict_lines(verdict: Verdict) -> list[str]:
    """One plan: exact or not, how far, and in which tensors."""
    trial = verdict.trial
    shape = " ".join(f"{name}={value}" for name, value in plan_words(trial.plan).items())
    head = f"{'exact' if verdict.exact else 'DIFFERS':8s}{trial.world_size} ranks  {shape}"
    if verdict.error:
        return [head, *(f"        {line}" for line in verdict.error.splitlines())]
    figures = (
        f"        {verdict.tensors} gradients within {verdict.gradient:.1e}, "
        f"loss {verdict.loss:.1e}, clipped norm {verdict.norm:.1e}, "
        f"parameters after the steps {verdict.parameter:.1e}; "
        f"{verdict.seconds:.1f} s"
    )
    return [head, figures, *_differing(verdict)]


def summary_line(verdicts: Sequence[Verdict], *, model: str) -> str:
    """The answer in one line."""
    wrong = sum(not verdict.exact for verdict in verdicts)
    plans = f"{len(verdicts)} shrunk plan{'s' if len(verdicts) != 1 else ''}"
    if wrong:
        return f"NOT exact: {wrong} of {plans} of {model} differ from one process"
    worst = max(verdict.gradient for verdict in verdicts)
    return f"exact: {plans} of {model} compute what one process does, to {worst:.1e}"


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """One plan for machines; errors are relative to each tensor's largest element."""
    return {
        "exact": verdict.exact,
        "plan": plan_words(verdict.trial.plan),
        "ranks": verdict.trial.world_size,
        "micro_batches": verdict.trial.microbatches,
        "layers": verdict.trial.layers,
        "loss": _finite(verdict.loss),
        "gradient": _finite(verdict.gradient),
        "norm": _finite(verdict.norm),
        "parameter": _finite(verdict.parameter),
        "tensors": verdict.tensors,
        "differing": [{"tensor": n, "error": _finite(e)} for n, e in verdict.differing],
        "missing": list(verdict.missing),
        "seconds": verdict.seconds,
        "error": verdict.error or None,
    }


def _differing(verdict: Verdict) -> list[str]:
    lines = [f"        {name}: {error:.1e}" for name, error in verdict.differing[:MOST_TENSORS]]
    rest = len(verdict.differing) - MOST_TENSORS
    if rest > 0:
        lines.append(f"        and {rest} more; --json lists all")
    return [*lines, *(f"        {name}: no gradient" for name in verdict.missing[:MOST_TENSORS])]


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None
