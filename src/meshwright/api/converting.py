"""Writing a configuration in another framework's words, with what gets lost on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshwright.api.checking import Given, cluster_of, stated
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshwright.cost.predict import Prediction
    from meshwright.frameworks.framework import Expressed, Framework
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model

_CANNOT = "CFG301"  # the target has no place for it
_REFUSES = "CFG302"  # the target cannot run it


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A configuration in another framework's words.

    `files` maps names to texts. `lost` are findings about what the target has no place for,
    `refused` about what it cannot run (then `files` is empty). `before` and `after` are the
    predictions of the job as it was read and as the written files say it; None where model or
    hardware is not known. `assumed` names what stood in for what the source does not state.
    """

    source: str
    target: str
    files: Mapping[str, str] = field(default_factory=dict)
    carried: int = 0
    lost: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    before: Prediction | None = None
    after: Prediction | None = None
    assumed: tuple[str, ...] = ()


def convert_files(
    paths: Sequence[str | Path],
    to: str,
    *,
    to_version: str = "",
    model: str | Path | Model | None = None,
    gpus: str | Path | Cluster | None = None,
    nodes: int | None = None,
    framework: str = "",
    version: str = "",
    sets: Mapping[str, Any] | None = None,
) -> Conversion:
    """The configuration in `paths` (files that belong together) in the words of framework `to`.

    Raises UnknownName for a framework that is none, MeshwrightError for one that cannot be
    written, InvalidInput for files that cannot be read or that are several configurations.
    """
    from meshwright.frameworks.framework import framework as by_name
    from meshwright.frameworks.jobs import draft
    from meshwright.frameworks.read import read_files

    target = by_name(to)
    given = Given(
        model=model, gpus=gpus, nodes=nodes, framework=framework, version=version, sets=sets or {}
    )
    readings = read_files(paths, framework=framework, version=version)
    if len(readings) != 1:
        names = ", ".join(r.config.sources[0].file for r in readings)
        raise MeshwrightError(
            f"these are {len(readings)} configurations: {names}", hint="convert one at a time"
        )
    reading, known = stated(readings[0], given)
    drafted = draft(reading, model=known, cluster=cluster_of(reading, given))
    return _conversion(reading, drafted, target, to_version)


def _conversion(reading: Reading, drafted: Drafted, target: Framework, version: str) -> Conversion:
    """The conversion of a drafted job."""
    expressed = _express(target, drafted, version)
    refused = tuple(
        _finding(reading, _REFUSES, name, why, target) for name, why in expressed.refused.items()
    )
    lost = tuple(
        _finding(reading, _CANNOT, name, why, target) for name, why in expressed.lost.items()
    )
    alone, carried = _left_behind(reading, target, version, expressed)
    files = {} if refused else written(target, expressed)
    before, after = _predictions(drafted, target, files, version)
    return Conversion(
        source=reading.config.framework.name,
        target=target.name,
        files=files,
        carried=carried,
        lost=(*lost, *alone),
        refused=refused,
        before=before,
        after=after,
        assumed=drafted.missing,
    )


def _express(target: Framework, drafted: Drafted, version: str) -> Expressed:
    """The job in the target's words; MeshwrightError for a framework that is only read."""
    if target.express is None:
        raise MeshwrightError(f"{target.name} is read, not written", hint="try another framework")
    return target.express(drafted.job, version)


def written(target: Framework, expressed: Expressed) -> dict[str, str]:
    """The files that state what was expressed."""
    from meshwright.frameworks.text.render import render

    syntax = expressed.syntax or target.syntaxes[0]
    text = expressed.text or render(
        syntax, expressed.settings, launch=expressed.launch, program=expressed.program
    )
    return {expressed.file_name or target.file_name: text}


def _predictions(
    drafted: Drafted, target: Framework, files: Mapping[str, str], version: str
) -> tuple[Prediction | None, Prediction | None]:
    """What the job costs as it was read, and as the written files say it, on the same stack."""
    from dataclasses import replace

    from meshwright.cost.predict import predict
    from meshwright.frameworks.jobs import draft
    from meshwright.frameworks.read import read_text

    if not drafted.is_whole or not files:
        return None, None
    (name, text), *_ = files.items()
    again = read_text(text, file=name, framework=target.name, version=version)
    job = draft(again, model=drafted.job.model, cluster=drafted.job.cluster).job
    return predict(drafted.job), predict(replace(job, stack=drafted.job.stack))


def _left_behind(
    reading: Reading, target: Framework, version: str, expressed: Expressed
) -> tuple[tuple[Finding, ...], int]:
    """Stated settings whose variable the target has no field for, and the number of the others."""
    findings: list[Finding] = []
    carried = 0
    claimed = {s.name: v for v, value in reading.values.items() for s in value.settings}
    for setting in (*reading.config.settings.values(), *reading.config.unknown):
        variable = claimed.get(setting.name, "")
        if variable in expressed.lost or variable in expressed.refused:
            continue
        if variable and (target.table.of_variable(variable, version) or _is_said(variable)):
            carried += 1
            continue
        why = "has no counterpart that is known"
        findings.append(_about(setting, _CANNOT, f"{setting.spelled} {why} in {target.name}"))
    return tuple(findings), carried


def _is_said(variable: str) -> bool:
    """Whether a variable is part of the plan, workload or model, which are written whole."""
    from meshwright.frameworks.jobs import SHAPE
    from meshwright.plan.words import FIELDS

    return variable in FIELDS or variable in SHAPE or variable in _WRITTEN_WHOLE


_WRITTEN_WHOLE = frozenset(
    {"seq_len", "global_batch_size", "gradient_accumulation_steps", "num_gpus", "num_nodes"}
    | {"gpus_per_node", "environment", "model_name", "dp_shard", "train_tokens"}
)


def _finding(reading: Reading, code: str, name: str, why: str, target: Framework) -> Finding:
    """A finding about a variable, at the setting that states it if one does."""
    value = reading.value(name)
    said = name if value is None else f"{name} = {shown(value)}"
    message = f"{target.name} {'cannot run' if code == _REFUSES else 'cannot say'} {said}: {why}"
    settings = reading.settings_of(name)
    if settings:
        return _about(settings[0], code, message)
    return Finding(code=code, severity=_severity(code), message=message, key=name, value=value)


def _about(setting: Setting, code: str, message: str) -> Finding:
    mark = setting.label("here")
    return Finding(
        code=code,
        severity=_severity(code),
        message=message,
        file=mark.file,
        line=mark.line,
        column=mark.column,
        key=setting.name,
        value=setting.value,
        labels=(mark,),
    )


def _severity(code: str) -> Severity:
    return Severity.ERROR if code == _REFUSES else Severity.WARNING
