"""Findings about what is not carried over to another framework's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting

CANNOT = "CFG301"
_BATCHES = ("#SBATCH ", "#PBS ", "#BSUB ", "#COBALT ")
_LISTED = 12  # names in one line


def bearing_finding(setting: Setting, target: Framework) -> Finding:
    """A setting that bears on the job and has no place in the target."""
    mark = setting.label("not carried over")
    return Finding(
        code=CANNOT,
        severity=Severity.WARNING,
        message=f"{setting.spelled} {shown(setting.value)} is not carried over to {target.title}",
        file=mark.file,
        line=mark.line,
        column=mark.column,
        key=setting.name,
        value=setting.value,
        labels=(mark,),
    )


def plain_finding(settings: Sequence[Setting], target: Framework) -> Finding:
    """One line for all settings that do not bear on plan, memory and time."""
    names = [s.spelled for s in settings]
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    count = f"{len(names)} setting{'' if len(names) == 1 else 's'}"
    places = [s.label("") for s in settings]
    return Finding(
        code=CANNOT,
        severity=Severity.INFO,
        message=f"{count} without a counterpart in {target.title}: "
        + ", ".join(names[:_LISTED])
        + rest,
        file=places[0].file,
        line=places[0].line,
        column=places[0].column,
        key=",".join(names),
        hint="they do not bear on plan, memory or time; carry over by hand what is wanted",
        notes=tuple(
            f"{p.file}:{p.line}: {s.spelled} {shown(s.value)}"
            for p, s in zip(places, settings, strict=True)
        ),
    )


def program_finding(left: Mapping[str, Any], target: Framework) -> Finding:
    """What a file has no place for because the program around it decides."""
    words = ", ".join(f"{name} = {shown(value)}" for name, value in left.items())
    return Finding(
        code=CANNOT,
        severity=Severity.WARNING,
        message=f"{target.title} leaves to the program: {words}",
        key=",".join(left),
        hint="tell the program, or memory and time are others",
    )


def batch_findings(reading: Reading) -> list[Finding]:
    """One line for the headers of a batch job, which no written file has."""
    found: list[Finding] = []
    for source in reading.config.sources:
        if source.syntax != "shell":
            continue
        lines = [
            n for n, line in enumerate(source.text.splitlines(), 1) if line.startswith(_BATCHES)
        ]
        if not lines:
            continue
        said = f"{len(lines)} line{'' if len(lines) == 1 else 's'} of the batch job"
        found.append(
            Finding(
                code=CANNOT,
                severity=Severity.INFO,
                message=f"{said} (#SBATCH and the like, and its launcher) not carried over",
                file=source.file,
                line=lines[0],
                column=1,
                key="batch",
                hint="start what is written once on every node, with NODE_RANK and MASTER_ADDR set",
            )
        )
    return found


def checkpoint_findings(reading: Reading, after: Reading, target: Framework) -> list[Finding]:
    """One line for a checkpoint that the target cannot read as it is."""
    settings = reading.settings_of("ckpt_load")
    if not settings or after.is_stated("ckpt_load"):
        return []
    mark = settings[0].label("not carried over")
    return [
        Finding(
            code=CANNOT,
            severity=Severity.WARNING,
            message=f"{settings[0].spelled} {shown(settings[0].value)} is not carried over: "
            f"{target.title} reads checkpoints of another format",
            file=mark.file,
            line=mark.line,
            column=mark.column,
            key=settings[0].name,
            value=settings[0].value,
            labels=(mark,),
            hint="convert the checkpoint first, or the run starts from nothing",
        )
    ]
