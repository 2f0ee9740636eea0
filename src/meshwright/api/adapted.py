"""Stated numbers that another framework says in another unit, or together with others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed, Framework
    from meshwright.frameworks.reading import Reading
    from meshwright.plan.job import Job

_ADAM = frozenset({"adam", "adamw", "onebitadam", "zerooneadam", "lamb"})


def with_adapted(reading: Reading, job: Job, expressed: Expressed, target: Framework) -> Expressed:
    """What was expressed, with stated numbers that the target says otherwise."""
    if expressed.text:
        return expressed
    found = _adapted(reading, job, target, expressed.settings)
    more = {name: value for name, (value, _) in found.items()}
    return replace(
        expressed, settings={**more, **expressed.settings} if more else expressed.settings
    )


def adapted_variables(
    reading: Reading, job: Job, expressed: Expressed, target: Framework
) -> frozenset[str]:
    """The stated variables that what was expressed says otherwise."""
    found = _adapted(reading, job, target, expressed.settings)
    said = [v for name, (value, v) in found.items() if expressed.settings.get(name) == value]
    return frozenset(v for names in said for v in names)


def _adapted(
    reading: Reading, job: Job, target: Framework, settings: Mapping[str, Any]
) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Value and the variables that it says, by the target's field."""
    if reading.config.framework.name == target.name:
        return {}
    if target.name == "deepspeed":
        return _betas(reading, settings)
    return _rates(reading, job) if target.name == "torchtitan" else {}


def _betas(reading: Reading, settings: Mapping[str, Any]) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Adam's two decays, of which torch takes both or none."""
    names = [n for n in ("adam_beta1", "adam_beta2") if reading.is_stated(n)]
    if not names or str(settings.get("optimizer.type")).lower() not in _ADAM:
        return {}
    pair = [_number(reading, "adam_beta1", 0.9), _number(reading, "adam_beta2", 0.999)]
    return {"optimizer.params.betas": (pair, tuple(names))}


def _rates(reading: Reading, job: Job) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """The lowest learning rate as a share of the highest, warm-up in steps instead of samples."""
    found: dict[str, tuple[Any, tuple[str, ...]]] = {}
    highest = job.workload.recipe.learning_rate
    lowest = _number(reading, "min_learning_rate", 0.0)
    if highest and reading.is_stated("min_learning_rate"):
        share = round(lowest / highest, 6)
        found["lr_scheduler.min_lr_factor"] = (share, ("min_learning_rate",))
    samples = _number(reading, "lr_warmup_samples", 0.0)
    if samples and reading.is_stated("lr_warmup_samples"):
        steps = max(round(samples / job.workload.global_batch_size), 1)
        found["lr_scheduler.warmup_steps"] = (steps, ("lr_warmup_samples",))
    return found


def _number(reading: Reading, name: str, otherwise: float) -> float:
    value = reading.value(name)
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable else otherwise
