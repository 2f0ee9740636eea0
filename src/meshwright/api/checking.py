"""Checking files: read, judge, and say how far each plan is from the best one."""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.deferred import Deferred
from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.frameworks.setting import Value
from meshwright.report.check.report import Checked, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.frameworks.reading import Reading
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.rules.lint import Linted

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user states beside the files: model, hardware, framework, single variables.

    Without `edits` findings tell their fix and do not carry it out, which is quicker. `texts` count
    instead of the contents of files, by name.
    """

    model: str | Path | Model | None = None
    gpus: str | Path | Cluster | None = None
    nodes: int | None = None
    framework: str = ""
    version: str = ""
    sets: Mapping[str, Any] = field(default_factory=dict)
    edits: bool = True
    texts: Mapping[str, str] = field(default_factory=dict)


def check_files(
    paths: Sequence[str | Path],
    *,
    model: str | Path | Model | None = None,
    gpus: str | Path | Cluster | None = None,
    nodes: int | None = None,
    framework: str = "",
    version: str = "",
    sets: Mapping[str, Any] | None = None,
    compare: bool = True,
    edits: bool = True,
    only_recognized: bool = False,
    texts: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """What is wrong with configurations of any framework.

    `model` and `gpus`, `nodes` are as for `plan`; they outweigh what the files say. `sets` states
    variables by name (`show names` lists them). Without `edits` findings do not carry out their
    fixes, without `compare` no better plan is looked for; both are quicker. With `only_recognized`
    files that belong to no known framework are skipped, each file is read for itself, and one that
    cannot be read is skipped too; otherwise files that belong together are read as one. `texts`
    count instead of the contents of files, by name. A file that is named twice is read once.
    """
    given = Given(
        model=model,
        gpus=gpus,
        nodes=nodes,
        framework=framework,
        version=version,
        sets=sets or {},
        edits=edits,
        texts=texts or {},
    )
    paths = _named_once(paths)
    if not only_recognized:
        try:
            readings = _read(paths, given)
        except InvalidInput as error:
            return _one_by_one(paths, given, compare=compare, error=error)
        return Report(files=tuple(_checked(r, given, compare=compare) for r in readings))
    files: list[Checked] = []
    skipped: list[str] = []
    for number, path in enumerate(paths):
        found = _recognized(path, given, compare=compare)
        if isinstance(found, Checked):
            files.append(found)
        else:
            skipped.append(str(path))
        if progress is not None:
            progress(number + 1, len(paths))
    return Report(files=tuple(files), skipped=tuple(skipped))


def _named_once(paths: Sequence[str | Path]) -> list[str | Path]:
    """The paths without those that name a file once more, however they spell it."""
    first: dict[str, str | Path] = {}
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    return list(first.values())


def check_text(
    text: str, *, file: str = "", given: Given | None = None, compare: bool = True
) -> Checked:
    """Like `check_files` for a text; `file` tells the syntax by its ending, where it has one."""
    from meshwright.frameworks.read import read_text

    given = given or Given()
    try:
        reading = read_text(text, file=file, framework=given.framework, version=given.version)
    except InvalidInput as error:
        return _unreadable(file, error)
    return _checked(reading, given, compare=compare)


def _read(paths: Sequence[str | Path], given: Given) -> list[Reading]:
    from meshwright.frameworks.read import read_files

    return read_files(paths, framework=given.framework, version=given.version, texts=given.texts)


def _recognized(path: str | Path, given: Given, *, compare: bool) -> Checked | None:
    """One file of a folder, None if it is no configuration of a known framework."""
    from meshwright.frameworks.read import GENERIC

    try:
        (reading,) = _read([path], given)
    except InvalidInput:
        return None
    if reading.config.framework.name == GENERIC:
        return None
    return _checked(reading, given, compare=compare)


def _one_by_one(
    paths: Sequence[str | Path], given: Given, *, compare: bool, error: InvalidInput
) -> Report:
    """The files that can be read, and why the others cannot."""
    if len(paths) == 1:
        return Report(files=(_unreadable(str(paths[0]), error),))
    files: list[Checked] = []
    for path in paths:
        try:
            (reading,) = _read([path], given)
            files.append(_checked(reading, given, compare=compare))
        except InvalidInput as refused:
            files.append(_unreadable(str(path), refused))
    return Report(files=tuple(files))


def _unreadable(file: str, error: InvalidInput) -> Checked:
    return Checked(file=file, findings=error.findings, error=error.message)


def _checked(reading: Reading, given: Given, *, compare: bool) -> Checked:
    """The findings of one reading with what is given beside it."""
    from meshwright.api.overruled import overruled
    from meshwright.rules.claims import claim_figures, claim_findings, claims
    from meshwright.rules.costed import prediction_of
    from meshwright.rules.figures import figures
    from meshwright.rules.lint import lint

    alone = reading
    reading, model = stated(reading, given)
    cluster = cluster_of(reading, given)
    linted = lint(reading, model=model, cluster=cluster, edits=given.edits)
    notes: tuple[Finding, ...] = ()
    known = linted.drafted.is_whole and linted.drafted.is_sized
    if compare and known and not _has_errors(linted.findings):
        from meshwright.api.comparing import distance

        notes = distance(reading, linted.drafted, own=prediction_of(linted.judged))
    numbers = Deferred(lambda: figures(reading, linted.drafted))
    claimed = claims(reading, linted.drafted, numbers)
    config = reading.config
    return Checked(
        file=config.sources[0].file if config.sources else "",
        framework=config.framework.name,
        version=config.version,
        findings=(
            *linted.findings,
            *overruled(alone, model=model, cluster=cluster),
            *claim_findings(claimed),
            *notes,
        ),
        summary=_summary(
            reading,
            linted,
            _heads(linted),
        ),
        figures=Deferred(lambda: {**numbers, **claim_figures(claimed)}),
        sources={s.file: s.text for s in sources(reading)},
    )


def sources(reading: Reading) -> tuple[Any, ...]:
    """The sources of a reading and of its parts."""
    inner = [s for part in reading.config.parts for s in sources(part)]
    given = {s.source.file: s.source for v in reading.values.values() for s in v.settings}
    return (*reading.config.sources, *inner, *given.values())


def _has_errors(findings: Sequence[Finding]) -> bool:
    return any(f.severity is Severity.ERROR for f in findings)


# What is given beside the files


def stated(reading: Reading, given: Given) -> tuple[Reading, Model | None]:
    """The reading with the variables that are given, and the model if one is."""
    from meshwright.api import load_model
    from meshwright.frameworks.read import on_machine

    sets: dict[str, Value] = {}
    if given.sets:
        from meshwright.frameworks.variables import read_variable

        sets = {name: Value(value=read_variable(name, v)) for name, v in given.sets.items()}
    reading = on_machine(reading, _counts(given, sets)).with_values(sets)
    if isinstance(given.gpus, str) and not given.gpus.endswith(".toml"):
        name = given.gpus.partition(":")[0]
        reading = reading.with_values({"gpu_name": Value(value=name)})
    if given.model is None:
        return reading, None
    model = load_model(given.model)
    return reading.with_values(_shape(given.model)), model


_LONGEST = 7  # digits of a number of GPUs
_MACHINE = ("num_gpus", "num_nodes", "gpus_per_node")


def _counts(given: Given, sets: Mapping[str, Value]) -> dict[str, int]:
    """GPUs and nodes that are given, by variable."""
    found = {n: sets[n].value for n in _MACHINE if n in sets}
    cluster = given.gpus
    if isinstance(cluster, str):
        each, nodes = cluster.partition(":")[2], given.nodes or 1
        if each.isdecimal() and len(each) < _LONGEST:
            own = (int(each) * nodes, nodes, int(each))
            found = {**dict(zip(_MACHINE, own, strict=True)), **found}
    elif cluster is not None and not isinstance(cluster, Path):
        own = (cluster.num_gpus, cluster.num_nodes, cluster.gpus_per_node)
        found = {**dict(zip(_MACHINE, own, strict=True)), **found}
    return {name: value for name, value in found.items() if isinstance(value, int) and value > 0}


def _shape(model: str | Path | Model) -> dict[str, Value]:
    """The places of a config.json's own values, so that findings can point at them."""
    from meshwright.frameworks.jobs import SHAPE

    path = Path(model) if isinstance(model, str | Path) else None
    try:
        if path is not None and path.is_dir():
            path = path / "config.json"
        if path is None or not path.is_file():
            return {}
    except OSError:
        return {}
    from meshwright.frameworks.read import source_of
    from meshwright.frameworks.text import parse_source

    parsed = parse_source(source_of(path))
    found = {s.spelled.rsplit(".", 1)[-1]: s for s in parsed.settings}
    return {n: Value(value=found[n].value, settings=(found[n],)) for n in SHAPE if n in found}


def cluster_of(reading: Reading, given: Given) -> Cluster | None:
    """The cluster that is given; a count that is not given is that of the reading."""
    from meshwright.api import cluster
    from meshwright.frameworks.jobs import stated_gpus, stated_per_node

    gpus, nodes = given.gpus, given.nodes
    if gpus is None or not isinstance(gpus, str) or gpus.endswith(".toml"):
        return None if gpus is None else cluster(gpus, nodes=nodes or 1)
    name, _, count = gpus.partition(":")
    total = stated_gpus(reading)
    if nodes is not None or (count and total is None):
        stated_nodes = reading.value("num_nodes")
        written = stated_nodes if isinstance(stated_nodes, int) and stated_nodes > 0 else 1
        return cluster(gpus, nodes=nodes or written)
    if total is None:
        return None
    per_node = int(count) if count.isdigit() else (stated_per_node(reading) or min(8, total))
    per_node = max(min(per_node, total), 1)
    built = cluster(f"{name}:{per_node}", nodes=-(-total // per_node))
    return replace(built, num_gpus=total)


# The line that sums it up


def _heads(linted: Linted) -> Mapping[str, float]:
    """Memory and time of one step, where what they hang on is stated.

    A plan that some rule refuses before memory is judged has none that is over the device's.
    """
    from meshwright.rules.costed import heads
    from meshwright.rules.uncounted import ON_THE_DEVICE

    drafted = linted.drafted
    if not drafted.is_sized:
        return {}
    found = heads(linted.judged, drafted.missing)
    over = found.get("peak_gib", 0) * GIB > drafted.job.cluster.gpu.memory_bytes
    told = any(f.code in ON_THE_DEVICE for f in linted.findings)
    refused = _has_errors(linted.findings) and not told
    return {} if over and refused and "gpu" not in drafted.missing else found


def _summary(reading: Reading, linted: Linted, numbers: Mapping[str, Any]) -> str:
    """ "megatron-lm, 64 GPUs: tp 4 x pp 8 x dp 2; 61.2 of 80.0 GiB; 6.10 s a step"."""
    job, missing = linted.drafted.job, linted.drafted.missing
    plan = job.plan
    axes = {name: int(getattr(plan, name)) for name in ("tp", "pp", "cp", "ep")}
    mesh = " x ".join(f"{name} {size}" for name, size in axes.items() if size > 1)
    if "num_gpus" not in missing:
        mesh = f"{mesh} x dp {int(plan.dp)}" if mesh else f"dp {int(plan.dp)}"
    head = reading.config.framework.name
    if "num_gpus" not in missing:
        head += f", {job.cluster.num_gpus} {'' if 'gpu' in missing else job.cluster.gpu.name} GPUs"
    parts = [f"{' '.join(head.split())}: {mesh or 'no model parallelism'}"]
    peak, step = numbers.get("peak_gib"), numbers.get("step_time_s")
    if isinstance(peak, int | float):
        room = f"{job.cluster.gpu.memory_bytes / GIB:.1f}"
        needs = f"needs {peak:.1f} GiB a GPU"
        parts.append(needs if "gpu" in missing else f"{peak:.1f} of {room} GiB")
    if isinstance(step, int | float):
        parts.append(f"{step:.3g} s a step")
    return "; ".join(parts)
