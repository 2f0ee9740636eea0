"""Proves a plan exact before it costs money: its gradients beside those of one process.

The plan is shrunk to a few ranks and its model to a tiny one of the same family (`shrinking`);
forked CPU ranks run the very code that training runs, in float64, and every gradient, the clipped
norm and the parameters after some steps are compared with transformers' own model in one process.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.train.verify.shrinking import trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.plan.job import Job
    from meshwright.train.verify.comparing import Deviation
    from meshwright.train.verify.shrinking import Trial

TOLERANCE = 1e-9
STEPS = 4
SEQ_LEN = 16
CLIP_NORM = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One shrunk plan: `worst` relative error of each quantity over all ranks, or why it failed.

    `differing` lists the tensors beyond the tolerance, the worst first, as (name, error).
    """

    trial: Trial
    loss: float
    gradient: float
    norm: float
    parameter: float
    tensors: int
    differing: tuple[tuple[str, float], ...]
    missing: tuple[str, ...]
    seconds: float
    error: str = ""

    @property
    def exact(self) -> bool:
        """Whether the plan computes what one process does."""
        worst = max(self.loss, self.gradient, self.norm, self.parameter)
        return not self.error and not self.missing and worst <= TOLERANCE


def verify(
    job: Job,
    config: Any,
    *,
    ranks: int = 8,
    steps: int = STEPS,
    seed: int = 0,
    timeout_s: float = 300.0,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """A verdict on each of the shrunk plans of `job`; `config` is the model's configuration.

    Raises MeshwrightError where the engine cannot run the plan or its family at all.
    """
    verdicts = []
    for trial in trials(job, ranks=ranks):
        verdict = judge(trial, config, steps=steps, seed=seed, timeout_s=timeout_s)
        verdicts.append(verdict)
        if on_verdict is not None:
            on_verdict(verdict)
    return verdicts


def judge(
    trial: Trial, config: Any, *, steps: int = STEPS, seed: int = 0, timeout_s: float = 300.0
) -> Verdict:
    """One shrunk plan beside one process."""
    from meshwright.train.local import RankFailed, run_ranks
    from meshwright.train.model.configuration import shrunk
    from meshwright.train.verify.comparing import compare
    from meshwright.train.verify.reference import batches, reference

    began_s = time.perf_counter()
    plan = trial.plan
    small = shrunk(
        config,
        layers=trial.layers,
        heads_multiple=trial.heads_multiple,
        experts_multiple=trial.experts_multiple,
    )
    rows = trial.microbatches * int(plan.micro_batch_size) * int(plan.dp)
    data = batches(small, rows=rows, seq_len=SEQ_LEN, steps=steps)
    expected = reference(small, data, seed=seed, clip_norm=CLIP_NORM, plan=plan)
    try:
        found = run_ranks(
            lambda: compare(small, plan, data, expected, seed=seed, clip_norm=CLIP_NORM),
            trial.world_size,
            timeout_s=timeout_s,
        )
    except RankFailed as failure:
        return _failed(trial, failure, time.perf_counter() - began_s)
    return _verdict(trial, found, time.perf_counter() - began_s)


def _verdict(trial: Trial, found: list[Deviation], seconds: float) -> Verdict:
    """The worst over all ranks."""
    gradients = _worst([rank.gradients for rank in found])
    parameters = _worst([rank.parameters for rank in found])
    beyond = {name: error for name, error in gradients.items() if error > TOLERANCE}
    beyond |= {
        f"{name} (after the steps)": error
        for name, error in parameters.items()
        if error > TOLERANCE and name not in beyond
    }
    return Verdict(
        trial=trial,
        loss=max(max(rank.losses) for rank in found),
        gradient=max(gradients.values()),
        norm=max(max(rank.norms) for rank in found),
        parameter=max(parameters.values()),
        tensors=len(gradients),
        differing=tuple(sorted(beyond.items(), key=lambda item: -item[1])),
        missing=tuple(sorted({name for rank in found for name in rank.missing})),
        seconds=seconds,
    )


def _worst(found: list[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for rank in found for name in rank})
    return {name: max(rank.get(name, 0.0) for rank in found) for name in names}


def _failed(trial: Trial, failure: Any, seconds: float) -> Verdict:
    nothing = float("inf")
    return Verdict(
        trial=trial,
        loss=nothing,
        gradient=nothing,
        norm=nothing,
        parameter=nothing,
        tensors=0,
        differing=(),
        missing=(),
        seconds=seconds,
        error=f"{failure.message}\n{failure.detail}".strip(),
    )
