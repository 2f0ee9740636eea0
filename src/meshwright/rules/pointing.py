"""Findings that point: a label at every value involved, the fix in the framework's own words.

A rule speaks of variables; the reading knows which settings state them. What changes a plan is
found by writing the job before and after in the framework's words and comparing the two.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.base.words import shown
from meshwright.plan.words import FIELDS, word
from meshwright.rules.rule import all_rules, as_numpy, check
from meshwright.rules.same import Same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from meshwright.base.finding import Edit, Finding, Label
    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Rule

_MOST_LABELS = 6
_FEW = 2  # choices
_ALWAYS_ASKED = frozenset({"framework", "version", "environment"})


def pointed(
    rule: Rule, finding: Finding, reading: Reading, drafted: Drafted, *, edits: bool = True
) -> Finding:
    """The finding of a general rule, placed, with its fix in the framework's words.

    Without `edits` the fix is told and not worked out: the file is not parsed again.
    """
    looked_at = (*rule.reads, *_mentioned(rule.condition), *_mentioned(rule.describe))
    names = rule.points or looked_at
    finding = _placed(finding, reading, names).replace(
        confidence=rule.confidence, source=rule.source
    )
    return _with_plan_fix(finding, rule, reading, drafted, edits=edits)


def pointed_demand(
    finding: Finding,
    reading: Reading,
    looked_at: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    safe: bool,
    edits: bool = True,
) -> Finding:
    """The finding of a demand, placed at what it looked at, with the edits of its fix."""
    finding = _placed(finding, reading, (*changes, *looked_at))
    if not changes:
        return finding
    hint = "; ".join(_spelled(reading, name, value) for name, value in changes.items())
    finding = finding.replace(hint=finding.hint or hint, key=next(iter(changes)))
    pairs = [_own_words(reading, name, value) for name, value in changes.items()]
    if not edits or None in pairs:
        return finding
    return finding.replace(edits=_edits(reading, dict(p for p in pairs if p), safe=safe))


# Places


def _mentioned(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """Names of attributes that a function mentions."""
    code = getattr(function, "__code__", None)
    return tuple(code.co_names) if code is not None else ()


def _placed(finding: Finding, reading: Reading, names: Iterable[str]) -> Finding:
    """The finding at the first value involved, with a label at each."""
    labels = _labels(reading, names)
    if not labels:
        return finding.replace(file=_first_file(reading), line=0, column=0)
    first = labels[0]
    return finding.replace(labels=labels, file=first.file, line=first.line, column=first.column)


def _first_file(reading: Reading) -> str:
    sources = reading.config.sources
    return sources[0].file if sources else ""


def _labels(reading: Reading, names: Iterable[str]) -> tuple[Label, ...]:
    """One label per setting that states one of the variables, in the order of the names."""
    found: dict[tuple[str, int, int], Label] = {}
    for name in dict.fromkeys(names):
        if name in _ALWAYS_ASKED:
            continue
        for setting in reading.settings_of(name):
            label = setting.label(_says(reading, name, setting))
            found.setdefault((label.file, label.line, label.column), label)
    return tuple(found.values())[:_MOST_LABELS]


def _says(reading: Reading, name: str, setting: Setting) -> str:
    """What a setting says of a variable; where several state it together, what it says itself."""
    value = reading.values[name]
    if len(value.settings) > 1:
        field = reading.config.framework.table.find(setting.spelled, reading.config.version)
        own = field.variable if field is not None else ""
        if own != name:
            return f"{own or setting.spelled} = {shown(setting.value)}"
    return f"{name} = {shown(value.value)}"


# Fixes


def _with_plan_fix(
    finding: Finding, rule: Rule, reading: Reading, drafted: Drafted, *, edits: bool
) -> Finding:
    """The finding with the hint and the edits of the rule's own fix, where it has one."""
    job = as_numpy(drafted.job)
    offered = rule.suggest(job) if rule.suggest else {}
    offered = {name: values for name, values in offered.items() if values}
    if not offered:
        return finding
    hint = "; ".join(
        " or ".join(_spelled(reading, name, word(name, value)) for value in values)
        for name, values in offered.items()
    )
    finding = finding.replace(hint=hint)
    if not edits:
        return finding
    difference = _plan_difference(reading, drafted, _silencing(rule, drafted, offered))
    return finding.replace(edits=_edits(reading, difference, safe=False))


def _silencing(
    rule: Rule, drafted: Drafted, offered: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """The change among those offered that silences the rule and leaves least to be said."""
    singles = [{name: value} for name, values in offered.items() for value in values]
    together = {name: values[0] for name, values in offered.items()}
    silent = [c for c in (*singles, together) if _is_silent(rule, drafted, c)]
    if len(silent) < _FEW:
        return silent[0] if silent else {}
    return min(silent, key=lambda changes: _left(drafted, changes))


def _is_silent(rule: Rule, drafted: Drafted, changes: Mapping[str, Any]) -> bool:
    try:
        return not bool(rule.condition(as_numpy(changed(drafted.job, changes))))
    except (TypeError, ValueError):
        return False


def _left(drafted: Drafted, changes: Mapping[str, Any]) -> tuple[int, int]:
    """Errors and warnings of the changed job, as far as they need no prediction."""
    rules = [r for r in all_rules() if r.is_general and not r.predictive]
    found = check(changed(drafted.job, changes), rules)
    errors = sum(f.severity is Severity.ERROR for f in found)
    return errors, sum(f.severity is Severity.WARNING for f in found)


def changed(job: Job, changes: Mapping[str, Any]) -> Job:
    """The job with fields of its plan, workload, loading, runtime or recipe changed."""
    work = job.workload
    parts = {
        name: replace(getattr(work, name), **_of(getattr(work, name), changes))
        for name in ("loading", "runtime", "recipe")
    }
    return replace(
        job,
        plan=replace(job.plan, **_of(job.plan, changes)),
        workload=replace(work, **_of(work, changes), **parts),
    )


def _of(noun: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the changes that are fields of a noun."""
    names = {item.name for item in fields(noun)}
    return {name: value for name, value in changes.items() if name in names}


def _plan_difference(
    reading: Reading, drafted: Drafted, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The framework's settings that differ when the plan changes; None removes one."""
    express, version = reading.config.framework.express, reading.config.version
    if express is None or not changes:
        return {}
    try:
        before = _settings(Same(drafted.job), express, version)
        after = express(changed(drafted.job, changes), version).settings
    except MeshwrightError:
        return {}
    names = dict.fromkeys((*before, *after))
    different = {n: after.get(n) for n in names if before.get(n) != after.get(n)}
    return {**dict.fromkeys(_overruled(reading, changes, different)), **different}


def _overruled(
    reading: Reading, changes: Mapping[str, Any], different: Mapping[str, Any]
) -> list[str]:
    """Stated fields that say a changed variable in another way than it will be said."""
    from meshwright.frameworks.jobs import SHAPE

    table = reading.config.framework.table
    stated = [s for name in changes for s in reading.settings_of(name)]
    if any(s.name in different for s in stated):
        return []
    kept = {*SHAPE, *FIELDS} - {*changes}
    known = ((s, table.find(s.spelled, reading.config.version)) for s in stated)
    return [s.name for s, field in known if field is not None and field.variable not in kept]


@lru_cache(maxsize=8)
def _settings(
    same: Same, express: Callable[[Job, str], Expressed], version: str
) -> Mapping[str, Any]:
    """The settings that state a job, worked out once for all findings about it."""
    return express(same.job, version).settings


def _own_words(reading: Reading, variable: str, value: Any) -> tuple[str, Any] | None:
    """A variable's value as a pair of field name and value, None where no field sets it."""
    fields = reading.config.framework.table.of_variable(variable, reading.config.version)
    stated = [f for f in fields if f.name in reading.config.settings]
    chosen = next(iter(stated or fields), None)
    if chosen is None:
        return None
    if chosen.type == "off-flag" and value is not None:
        value = not value
    return (chosen.name, value)


def _spelled(reading: Reading, variable: str, value: Any) -> str:
    """One change in the framework's words: "--tensor-model-parallel-size 4"."""
    pair = _own_words(reading, variable, value)
    name, own = (variable, value) if pair is None else pair
    if own is None or (own is False and name.startswith("--")):
        return f"remove {name}"
    if own is True and name.startswith("--"):
        return f"add {name}"
    text = "+".join(own) if isinstance(own, list) and all(isinstance(o, str) for o in own) else own
    return f"{name} {text}" if name.startswith("--") else f"{name} = {_literal(text)}"


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edits(reading: Reading, changes: Mapping[str, Any], *, safe: bool) -> tuple[Edit, ...]:
    """The edits that give fields their values (None removes one); none where one cannot be made."""
    try:
        made = [_edit(reading, name, value) for name, value in changes.items()]
    except MeshwrightError:
        return ()
    return tuple(replace(edit, safe=safe) for edit in made if edit is not None)


def _edit(reading: Reading, name: str, value: Any) -> Edit | None:
    """The edit that gives one field its value, None where it has it."""
    from meshwright.frameworks.text import edit

    settings = reading.config.settings
    setting = settings.get(name)
    is_flag = name.startswith("--") and isinstance(value, bool)
    if value is None or (is_flag and not value):
        return None if setting is None else edit.remove(setting)
    if setting is None:
        last = next(reversed(list(settings.values())), None)
        return edit.insert(reading.config.sources[0], name, value, last)
    return None if is_flag else edit.replace_value(setting, value)
