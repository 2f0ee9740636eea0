"""`meshwright.verify`: a plan's gradients beside those of one process.

Nothing here imports torch before the plan is known to be one that the engine runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api import read_job
from meshwright.api.training import config_keys, need_libraries
from meshwright.base.errors import InvalidInput
from meshwright.train.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshwright.plan.job import Job
    from meshwright.train.verify import Verdict


def verify(
    plan: Job | str | Path,
    *,
    ranks: int = 8,
    steps: int = 4,
    seed: int = 0,
    timeout_s: float = 300.0,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Verdicts on the shape of a plan, shrunk to at most `ranks` CPU ranks and a tiny model.

    `plan` is a job or the path of a plan.toml. All axes at once where that fits `ranks`, else
    several plans in which every pair of axes meets. InvalidInput with every reason why the engine
    cannot run the plan, MeshwrightError without torch or for a family it does not know.
    """
    job = read_job(plan)
    wrong = refusals(job)
    if wrong:
        raise InvalidInput(wrong)
    need_libraries()
    from meshwright.train.model.configuration import configuration_from_keys
    from meshwright.train.verify import verify as run

    config = configuration_from_keys(config_keys(job, plan))
    return run(
        job,
        config,
        ranks=ranks,
        steps=steps,
        seed=seed,
        timeout_s=timeout_s,
        on_verdict=on_verdict,
    )
