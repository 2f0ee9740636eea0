"""Raw values by variable as the settings of one framework's table, and what is lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.inverse import lost as reasons_for
from meshwright.frameworks.inverse import reading_of, unsaid
from meshwright.model.count import parameters
from meshwright.plan.stages import chunk_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.field import Field
    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job

_ALWAYS = frozenset({"tp", "pp", "cp", "ep", "etp", "seq_len", "micro_batch_size", "num_workers"})
_SPLIT = ("layout", "first_stage_layers", "last_stage_layers", "embedding_in_split")
_SPLIT_FIELDS = (*_SPLIT, "loss_in_split", "vpp")
_CLOSE = 0.003  # of the parameters: biases and norms that a shape does not count


def spelled(framework: Framework, version: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that state raw values, where they are not the defaults anyway."""
    settings: dict[str, Any] = {}
    for variable, value in raw.items():
        fields = framework.table.of_variable(variable, version)
        chosen = _chosen(fields, value)
        if chosen is None:
            continue
        if chosen.type == "flag":
            if value:
                settings[chosen.name] = True
        elif chosen.type == "off-flag":
            if not value:
                settings[chosen.name] = True
        elif variable in _ALWAYS or value != chosen.default:
            settings[chosen.name] = value
    return settings


def _chosen(fields: tuple[Field, ...], value: Any) -> Field | None:
    """The field that can state a value; None where none can or an off-flag is left out for it."""
    if isinstance(value, bool):
        turned_off = [f for f in fields if f.type == "off-flag"]
        if turned_off and (not value or not any(f.type == "flag" for f in fields)):
            return None if value else turned_off[0]
        kinds = ("flag", "bool") if value else ("bool", "flag")
        return next(
            (f for kind in kinds for f in fields if f.type == kind), next(iter(fields), None)
        )
    own = sorted(fields, key=lambda f: "encoder" in f.name)  # names of T5 mean the same in GPT
    return next((f for f in own if not _is_foreign(f, value)), None)


def _is_foreign(field: Field, value: Any) -> bool:
    """Whether a field has choices, and the value is none of them."""
    values = value if isinstance(value, list) else [value]
    words = [v for v in values if isinstance(v, str)]
    return bool(field.choices) and any(word not in field.choices for word in words)


def unplaced(framework: Framework, version: str, raw: Mapping[str, Any]) -> list[str]:
    """Variables with a value for which a version's table has no field."""
    return [
        name
        for name, value in raw.items()
        if value not in (None, False) and not framework.table.of_variable(name, version)
    ]


def differences(
    framework: Framework, version: str, settings: Mapping[str, Any], job: Job
) -> dict[str, tuple[Any, Any]]:
    """Fields of the plan that read back otherwise, those aside that spell the same stages."""
    found = dict(unsaid(framework, version, settings, job))
    same = _same_stages(framework, version, settings, job)
    if same:
        for name in _SPLIT_FIELDS:
            found.pop(name, None)
    if found.get("recompute_layers") == (1, 0) and job.plan.row(0).recompute_uniform:
        found.pop("recompute_layers")
        found.pop("recompute_uniform", None)
    return found


def _same_stages(framework: Framework, version: str, settings: Mapping[str, Any], job: Job) -> bool:
    """Whether the chunks that are read back hold as many layers each."""
    from meshwright.frameworks.inverse import plan_of

    back = plan_of(framework, version, settings, job)
    plan = job.plan.row(0)
    if back.vpp * back.pp != plan.vpp * plan.pp:
        return False
    return chunk_layers(job.model, back) == chunk_layers(job.model, plan)


def lost_model(
    framework: Framework, version: str, settings: Mapping[str, Any], job: Job
) -> dict[str, str]:
    """The model, where the shape that is read back is of another size."""
    from meshwright.frameworks.jobs import stated_model

    reading = reading_of(framework, version, settings, num_gpus=job.cluster.num_gpus)
    try:
        back = stated_model(reading)
        theirs = parameters(back).total if back is not None else 0
    except (MeshwrightError, ValueError, TypeError, ZeroDivisionError):
        theirs = 0
    own = parameters(job.model).total
    if abs(theirs - own) <= _CLOSE * own:
        return {}
    said = f"a model of {theirs / 1e9:.3g}e9 parameters" if theirs else "no model"
    return {"model": f"its arguments state {said}, not the {own / 1e9:.3g}e9 of {job.model.name}"}


def lost_of(
    framework: Framework,
    version: str,
    settings: Mapping[str, Any],
    job: Job,
    *,
    reasons: Mapping[str, str],
) -> dict[str, str]:
    """Everything of the job that is read back otherwise, with the reason."""
    found = differences(framework, version, settings, job)
    title = framework.title
    return {**lost_model(framework, version, settings, job), **reasons_for(found, reasons, title)}
