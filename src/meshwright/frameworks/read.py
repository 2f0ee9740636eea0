"""From files to readings: parse, recognize, resolve against the table, interpret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.locate import read_text as read_file_text
from meshwright.frameworks import complaints
from meshwright.frameworks.framework import Framework, all_frameworks
from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.reading import Config, Reading, table_values
from meshwright.frameworks.saved import saved_values
from meshwright.frameworks.setting import UNKNOWN, Parsed, Setting, Source, Value
from meshwright.frameworks.text import parse_source, syntax_of
from meshwright.frameworks.versions import split_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.base.finding import Finding
    from meshwright.frameworks.field import Field, Table

LEAST_SURE = 0.2  # below it a source is read as of no known framework
FAIRLY_SURE = 0.5  # ... below it the framework must know most of the settings
DEEPEST_REFERENCE = 3
_COMPOSING = ("_target_", "_convert_", "_recursive_", "_partial_", "_args_")
GENERIC = "generic"


def read_files(
    paths: Sequence[str | Path],
    *,
    framework: str = "",
    version: str = "",
    texts: Mapping[str, str] | None = None,
) -> list[Reading]:
    """The readings of files, those that belong together as one.

    A file that another one refers to, or that a framework is known to run with, becomes a part of
    it. `texts` has what counts instead of the content of a file, by name. Raises InvalidInput for a
    file that cannot be read.
    """
    parsed = [parse_source(source_of(path, texts)) for path in paths]
    chosen = [recognized(p, framework) for p in parsed]
    roots, parts = _grouped(parsed, chosen)
    return [
        read_parsed(
            parsed[i],
            chosen[i],
            version=version,
            beside=[(parsed[j], chosen[j]) for j in parts[i]],
            texts=texts,
        )
        for i in roots
    ]


def read_text(text: str, *, file: str = "", framework: str = "", version: str = "") -> Reading:
    """The reading of a text; `file` tells the syntax by its ending, where it has one."""
    source = Source(file=file, text=text, syntax=syntax_of(file, text))
    parsed = parse_source(source)
    return read_parsed(parsed, recognized(parsed, framework), version=version)


def source_of(path: str | Path, texts: Mapping[str, str] | None = None) -> Source:
    """The text of a file, or the one that counts instead, and its syntax."""
    given = texts.get(str(path)) if texts else None
    text = read_file_text(path) if given is None else given
    return Source(file=str(path), text=text, syntax=syntax_of(str(path), text))


def recognized(parsed: Parsed, name: str = "") -> Framework:
    """The framework called `name`, or else the one that a source most surely belongs to."""
    if name:
        return by_name(name)
    ranked = sorted(all_frameworks(), key=lambda f: -f.recognizes(parsed))
    best = ranked[0]
    sure = best.recognizes(parsed)
    if sure >= FAIRLY_SURE or (sure >= LEAST_SURE and _knows_most(best, parsed)):
        return best
    return by_name(GENERIC)


def _knows_most(framework: Framework, parsed: Parsed) -> bool:
    """Whether a framework's table has at least half of the settings of a source."""
    known = sum(framework.table.find(s.spelled) is not None for s in parsed.settings)
    return 2 * known >= len(parsed.settings)


def sureness(parsed: Parsed) -> float:
    """How surely a source is a training configuration at all, 0 to 1."""
    return max(f.recognizes(parsed) for f in all_frameworks())


def read_parsed(
    parsed: Parsed,
    framework: Framework,
    *,
    version: str = "",
    beside: Iterable[tuple[Parsed, Framework]] = (),
    depth: int = 0,
    texts: Mapping[str, str] | None = None,
) -> Reading:
    """The reading of a parsed source, with the sources that stand beside it as parts."""
    if not version and framework.version_of is not None:
        version = framework.version_of(parsed)
    version, below = split_version(version, framework)
    parts = [read_parsed(p, f, depth=depth + 1, texts=texts) for p, f in beside]
    followed, missing = _followed(parsed, framework, depth, texts)
    config, left = resolve(parsed, framework, version)
    inner, unknown = _companions(parsed, framework, left)
    config = replace(
        config,
        below=below,
        parts=(*parts, *followed, *inner),
        unknown=tuple(unknown),
        findings=(*config.findings, *missing, *_unknown_findings(config, unknown)),
    )
    values = saved_values(config) | table_values(config)
    values |= framework.interpret(config, values)
    return Reading(config=config, values=values)


def on_machine(reading: Reading, counts: Mapping[str, int]) -> Reading:
    """The reading as it means on so many GPUs and nodes, where the files do not tell.

    `counts` are variables: num_gpus, num_nodes, gpus_per_node.
    """
    known = {name: Value(value=n) for name, n in counts.items() if reading.value(name) is None}
    whole = reading.value("num_nodes") is not None and reading.value("gpus_per_node") is not None
    if not known or whole or reading.value("num_gpus") is not None:
        return reading
    config = replace(reading.config, launch={**reading.config.launch, **known})
    values = saved_values(config) | table_values(config)
    values |= config.framework.interpret(config, values)
    return replace(reading, config=config, values=values)


def resolve(
    parsed: Parsed, framework: Framework, version: str
) -> tuple[Config, tuple[Setting, ...]]:
    """The settings that the framework's table knows, and those that it does not."""
    settings: dict[str, Setting] = {}
    repeated: list[Setting] = []
    left: list[Setting] = []
    findings: list[Finding] = list(parsed.findings)
    for setting in parsed.settings:
        known = framework.table.find(setting.spelled, version)
        if known is None and (positive := _negated(setting, framework.table, version)):
            known, setting = positive, setting.replace(value=False)
        if known is None:
            left.append(setting)
            continue
        value, reason = known.read(setting.value)
        if reason:
            findings.append(complaints.wrong_type(setting, known, reason))
        typed = setting.replace(
            name=setting.spelled if known.name.endswith(".*") else known.name,
            value=UNKNOWN if reason else value,
        )
        if known.choices and isinstance(value, str) and value.lower() not in _lower(known.choices):
            findings.append(complaints.no_choice(typed, known))
        if not known.exists_in(version):
            findings.append(complaints.other_version(typed, known, version))
        earlier = settings.get(typed.name)
        if earlier is not None:
            repeated.append(earlier)
            if earlier.value != typed.value:
                findings.append(complaints.stated_twice(earlier, typed))
        settings[typed.name] = typed
    config = Config(
        framework=framework,
        version=version,
        settings=settings,
        repeated=tuple(repeated),
        launch=parsed.launch,
        programs=parsed.programs,
        remarked=parsed.remarked,
        sources=(parsed.source,),
        findings=tuple(findings),
    )
    return config, tuple(left)


def _negated(setting: Setting, table: Table, version: str) -> Field | None:
    """The yes-or-no field that `--group.no_field` turns off, as parsers of options spell it."""
    group, dot, leaf = setting.spelled.rpartition(".")
    positive = leaf.lstrip("-").removeprefix("no_").removeprefix("no-")
    if setting.value is not True or positive == leaf.lstrip("-"):
        return None
    known = table.find(f"{group}{dot}{positive}", version)
    return known if known is not None and known.type in ("bool", "flag", "off-flag") else None


def _lower(words: Iterable[str]) -> set[str]:
    return {word.lower() for word in words}


def _companions(
    parsed: Parsed, framework: Framework, left: Sequence[Setting]
) -> tuple[list[Reading], list[Setting]]:
    """Settings that a companion's table knows, as readings of it, and those that none knows."""
    readings: list[Reading] = []
    for name in framework.companions:
        companion = by_name(name)
        theirs = [s for s in left if companion.table.find(s.spelled)]
        if theirs:
            part = replace(parsed, settings=tuple(theirs), launch={}, references=(), findings=())
            readings.append(read_parsed(part, companion, depth=DEEPEST_REFERENCE))
            left = [s for s in left if s not in theirs]
    return readings, list(left)


def _followed(
    parsed: Parsed, framework: Framework, depth: int, texts: Mapping[str, str] | None
) -> tuple[list[Reading], list[Finding]]:
    """The readings of files that a source refers to, and a note for each that is not there."""
    readings: list[Reading] = []
    missing: list[Finding] = []
    for reference in parsed.references if depth < DEEPEST_REFERENCE else ():
        path = _found(parsed.source.file, reference.value, texts or {})
        if path is None:
            shipped = framework.shipped(reference) if framework.shipped is not None else None
            readings += [] if shipped is None else [shipped]
            missing += [complaints.missing_file(reference)] if shipped is None else []
            continue
        inner = parse_source(source_of(path, texts))
        readings.append(read_parsed(inner, recognized(inner), depth=depth + 1, texts=texts))
    return readings, missing


def _found(file: str, value: object, texts: Mapping[str, str]) -> Path | None:
    """The file that `value` names, beside `file` or from the working directory."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    if value in texts:
        return Path(value)
    try:
        for path in (Path(file).parent / value, Path(value)):
            if path.is_file():
                return path
    except OSError:
        return None
    return None


def _unknown_findings(config: Config, unknown: Sequence[Setting]) -> list[Finding]:
    """A finding per unknown key; in a framework that is not known, none but that."""
    framework = config.framework
    if framework.name == GENERIC:
        return []
    own = (setting for setting in unknown if not _is_composition(setting.spelled))
    return [complaints.unknown_key(s, framework.table, stated=config.settings) for s in own]


def _is_composition(name: str) -> bool:
    """Whether a key says how a file is put together or what is built of it, as Hydra's do."""
    leaf = name.rpartition(".")[2]
    return name.partition(".")[0] == "defaults" or leaf in _COMPOSING


def _grouped(
    parsed: Sequence[Parsed], chosen: Sequence[Framework]
) -> tuple[list[int], dict[int, list[int]]]:
    """Which sources are read for themselves, and which of the others are parts of each.

    A source is a part of the one that refers to it (which reads it anyway, so it is only left out),
    or of the only one whose framework names its framework as a companion.
    """
    names = [Path(p.source.file).name for p in parsed]
    referred = {Path(str(r.value)).name for p in parsed for r in p.references}
    parts: dict[int, list[int]] = {i: [] for i in range(len(parsed))}
    roots: list[int] = []
    for i, own in enumerate(chosen):
        if names[i] in referred and len(parsed) > 1:
            continue
        hosts = [j for j, f in enumerate(chosen) if j != i and own.name in f.companions]
        if len(hosts) == 1:
            parts[hosts[0]].append(i)
        else:
            roots.append(i)
    return roots, parts
