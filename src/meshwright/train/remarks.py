"""What is worth knowing of a run that the engine can execute; one function a matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
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


CASES: tuple[Callable[[Job], Iterator[Finding]], ...] = (_multi_token, *overruled.CASES)
