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
_EXPORTED = ("cuda_", "nccl_", "nvte_", "torch_nccl_")  # variables of a launch's environment
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
    spelled = (_spelled(reading, name, value) for name, value in changes.items())
    hint = " and ".join(words for words in spelled if words)
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
    hint = _advice(rule, reading, drafted, offered)
    finding = finding.replace(hint=hint)
    if not edits:
        return finding
    difference = _plan_difference(reading, drafted, _silencing(rule, drafted, offered))
    return finding.replace(edits=_edits(reading, difference, safe=False))


def _advice(
    rule: Rule, reading: Reading, drafted: Drafted, offered: Mapping[str, tuple[Any, ...]]
) -> str:
    """What is offered, in the framework's words: alternatives, or what must be set together.

    What the framework has no setting for is left out; "" where nothing is left, or a part of what
    belongs together is missing.
    """
    told = {
        name: [_told(reading, drafted, name, value) for value in values]
        for name, values in offered.items()
    }
    firsts = {name: values[0] for name, values in offered.items()}
    singles = [{name: value} for name, values in offered.items() for value in values]
    alone = len(offered) == 1 or any(_is_silent(rule, drafted, c) for c in singles)
    if alone or not _is_silent(rule, drafted, firsts):
        return " or ".join(dict.fromkeys(w for words in told.values() for w in words if w))
    parts = [words[0] for words in told.values()]
    return " and ".join(dict.fromkeys(parts)) if all(parts) else ""


def _told(reading: Reading, drafted: Drafted, name: str, value: Any) -> str:
    """One change of a job as the framework spells it, "" where it has no setting for it."""
    own = word(name, value)
    pair = _own_words(reading, name, own)
    if pair is not None and _is_sayable(reading, name, pair):
        return _as_typed(*pair)
    changes = _plan_difference(reading, drafted, {name: value})
    stated = reading.config.settings
    gone = {f for f, new in changes.items() if _is_removal(f, new) and f not in stated}
    return " and ".join(_as_typed(f, new) for f, new in changes.items() if f not in gone)


def _is_sayable(reading: Reading, variable: str, pair: tuple[str, Any]) -> bool:
    """Whether a field takes the plan's word, and the file does not state it by another field."""
    name, value = pair
    field = reading.config.framework.table.find(name, reading.config.version)
    settings = reading.config.settings
    elsewhere = any(s.name in settings for s in reading.settings_of(variable))
    if elsewhere and name not in settings:
        return False
    if field is None or not isinstance(value, str):
        return True
    return value in field.choices


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
    rules = [r for r in all_rules() if not r.predictive]
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
    different = {
        n: after.get(n)
        for n in names
        if before.get(n) != after.get(n)
        and _is_demanded(reading, changes, n, is_new=n in after and not before.get(n))
    }
    if _leaves_a_table(reading, before, after, different):
        return {}
    return {**dict.fromkeys(_overruled(reading, changes, different)), **different}


def _leaves_a_table(
    reading: Reading,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    different: Mapping[str, Any],
) -> bool:
    """Whether a stated table, as that of FSDP, would stand beside the one that takes its place."""
    tables = {n.partition(".")[0] for n in before if "." in n}
    gone = tables - {n.partition(".")[0] for n in after}
    return any(n.partition(".")[0] in gone and n not in different for n in reading.config.settings)


def _is_demanded(reading: Reading, changes: Mapping[str, Any], name: str, *, is_new: bool) -> bool:
    """Whether a change of plan demands that a setting differ: it says a changed variable.

    What comes with a change (`is_new`), as the entries of a table that turns a feature on, stays
    unless it says another variable or is stated. Run length, padding or precision, which are only
    written otherwise than their user says them, are left alone.
    """
    from meshwright.frameworks.jobs import SHAPE

    field = reading.config.framework.table.find(name, reading.config.version)
    variable = field.variable if field is not None else ""
    if variable in changes:
        return True
    stated = reading.config.settings.get(name)
    if stated is not None:
        return any(s.name == name for v in changes for s in reading.settings_of(v))
    return is_new and variable not in {*SHAPE, *FIELDS}


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
    if pair is None and variable.startswith(_EXPORTED):
        name = variable.upper()
        return f"unset {name}" if value is None else f"export {name}={value}"
    if pair is None and reading.config.framework.express is not None:
        return ""
    return _as_typed(*(pair or (variable, value)))


def _is_removal(name: str, value: Any) -> bool:
    return value is None or (value is False and name.startswith("--"))


def _as_typed(name: str, value: Any) -> str:
    """A field with its value, or its removal, as it is typed."""
    if _is_removal(name, value):
        return f"remove {name}"
    if value is True and name.startswith("--"):
        return f"add {name}"
    is_list = isinstance(value, list) and all(isinstance(o, str) for o in value)
    text = "+".join(value) if is_list else value
    return f"{name} {text}" if name.startswith("--") else f"{name} = {_literal(text)}"


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edits(reading: Reading, changes: Mapping[str, Any], *, safe: bool) -> tuple[Edit, ...]:
    """The edits that give fields their values (None removes one); none where one cannot be made."""
    from meshwright.frameworks.text.edit import insert_all

    settings = reading.config.settings
    stated = {name: value for name, value in changes.items() if name in settings}
    new = {n: v for n, v in changes.items() if n not in settings and not _is_absent(n, v)}
    last = next(reversed(list(settings.values())), None)
    try:
        made = [_edit(settings[name], value) for name, value in stated.items()]
        made += insert_all(reading.config.sources[0], new, last) if new else ()
    except MeshwrightError:
        return ()
    return tuple(replace(edit, safe=safe) for edit in made if edit is not None)


def _edit(setting: Setting, value: Any) -> Edit | None:
    """The edit that gives a stated field its value, None where it has it."""
    from meshwright.frameworks.text import edit

    if _is_absent(setting.name, value):
        return edit.remove(setting)
    is_flag = setting.name.startswith("--") and value is True
    return None if is_flag else edit.replace_value(setting, value)


def _is_absent(name: str, value: Any) -> bool:
    """Whether a field has its value by not being stated, as a flag that is off."""
    return value is None or (value is False and name.startswith("--"))
