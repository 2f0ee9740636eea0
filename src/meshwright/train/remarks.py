"""What is worth knowing of a run that the engine can execute; one function a matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.cost.schedules import definition_of
from meshwright.plan.plan import Recompute
from meshwright.train import overruled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.plan.job import Job


def remarks(job: Job) -> list[Finding]:
    """Every way in which a run is less than its plan says, as warnings."""
    return [finding for case in CASES for finding in case(job)]


def _multi_token(job: Job) -> Iterator[Finding]:
    """Blocks for multi-token prediction are in the model's sizes and not in transformers' model."""
    layers = sum(run.count for run in job.model.mtp)
    if layers:
        them = "layer" if layers == 1 else "layers"
        yield Finding(
            message=f"the model's {layers} {them} of multi-token prediction will not be trained: "
            "transformers' model has none",
            severity=Severity.WARNING,
            key="model.num_nextn_predict_layers",
            value=layers,
            consequence="checkpoints and exports hold the model without them; what is predicted "
            "counts them",
            hint="num_nextn_predict_layers = 0 in the model's config.json, for predictions without",
        )


def _made_again(job: Job) -> Iterator[Finding]:
    """Recomputation under a schedule that splits the backward pass.

    Each weight gradient is a backward pass of its own there, for which torch makes a block's
    activations again, and holds them until all are done (torch 2.13, pipelining/_backward.py
    `stage_backward_weight` over utils/checkpoint.py, `recomputed` by graph task).
    """
    plan = job.plan
    definition = definition_of(int(plan.schedule), vpp=int(plan.vpp))
    if not int(plan.recompute) or int(plan.pp) == 1 or not definition.splits_backward:
        return
    yield Finding(
        message=f"{definition.name} splits the backward pass: torch makes activations again for "
        "every weight gradient, and holds them meanwhile",
        severity=Severity.WARNING,
        key="plan.recompute",
        value=Recompute(int(plan.recompute)).name.lower(),
        consequence="more memory than without recomputation, and several times the recomputation; "
        "the prediction counts neither, `meshwright measure` does",
        hint='plan.recompute = "none", or plan.schedule = "1f1b"',
    )


CASES: tuple[Callable[[Job], Iterator[Finding]], ...] = (
    _multi_token,
    _made_again,
    *overruled.CASES,
)
