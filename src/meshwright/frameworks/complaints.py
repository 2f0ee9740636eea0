"""What can be wrong with a configuration as a text, before its meaning is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.base.names import likeness, question
from meshwright.base.words import shown

if TYPE_CHECKING:
    from meshwright.frameworks.field import Field, Table
    from meshwright.frameworks.setting import Setting

_SLIP = 0.87  # likeness of a name to the one that it is a slip of
_MOST_LONGER = 3  # letters too many
CODES = {
    "CFG101": "Unknown key",
    "CFG102": "Value of the wrong type",
    "CFG103": "Value that is none of the choices",
    "CFG104": "Key stated twice",
    "CFG105": "Key that this version does not have",
    "CFG106": "Value that cannot be read without running the script",
    "CFG108": "File that is referred to and not there",
    "CFG109": "Value that no plan can hold",
    "CFG201": "Rules that could not be judged",
    "CFG202": "Distance from the best plan",
    "CFG211": "Claim of bytes per parameter that is off",
    "CFG212": "Claim of activations that is off",
    "CFG213": "Claim of a bandwidth that tensor parallelism does not have",
    "CFG214": "Claim of peak memory that is off",
    "CFG215": "Claim of a peak rate that the device does not have",
    "CFG216": "Claim of a utilization that is over another peak",
    "CFG301": "Setting that the other framework has no place for",
    "CFG302": "Plan that the other framework cannot run",
    "CFG303": "Plan that changes with the other framework's habits",
    "CFG304": "Plan that the other framework runs out of memory with",
}


def complaint(
    code: str,
    setting: Setting,
    message: str,
    *,
    severity: Severity = Severity.WARNING,
    label: str = "here",
    hint: str = "",
    consequence: str = "",
) -> Finding:
    """A finding of one of `CODES` about a setting."""
    mark = setting.label(label)
    return Finding(
        code=code,
        message=message,
        severity=severity,
        file=mark.file,
        line=mark.line,
        column=mark.column,
        key=setting.name,
        value=setting.value,
        hint=hint,
        labels=(mark,),
        consequence=consequence,
    )


def unknown_key(setting: Setting, table: Table) -> Finding:
    """CFG101: a likely slip of the pen is a warning, a name that is like none only a note."""
    near = table.nearest(setting.spelled)
    slips = [name for name in near if _is_slip(setting.spelled, name)]
    return complaint(
        "CFG101",
        setting,
        f"{table.framework} has no {shown(setting.spelled)}",
        severity=Severity.WARNING if slips else Severity.INFO,
        label="unknown",
        hint=question(slips or near) if near else "it is kept as it stands, and not judged",
    )


def _is_slip(spelled: str, name: str) -> bool:
    """Whether one name is the other with a few letters wrong, in the same group.

    What only has a word in front is rather an option of the program's own.
    """
    (group, _, leaf), (other_group, _, other) = spelled.rpartition("."), name.rpartition(".")
    alike = leaf == other or likeness(leaf, other) >= _SLIP
    grouped = group == other_group or likeness(group, other_group) >= _SLIP
    return alike and grouped and len(leaf.lstrip("-")) - len(other.lstrip("-")) <= _MOST_LONGER


def wrong_type(setting: Setting, field: Field, reason: str) -> Finding:
    """CFG102."""
    return complaint(
        "CFG102",
        setting,
        f"{setting.spelled} {shown(setting.value)} {reason}",
        severity=Severity.ERROR,
        label=reason,
        hint=f"the default is {field.default}" if field.default is not None else "",
    )


def no_choice(setting: Setting, field: Field) -> Finding:
    """CFG103."""
    from meshwright.base.names import did_you_mean

    return complaint(
        "CFG103",
        setting,
        f"{setting.spelled} {shown(setting.value)} is none of {', '.join(field.choices)}",
        label="not a choice",
        hint=did_you_mean(setting.value, field.choices),
    )


def stated_twice(earlier: Setting, later: Setting) -> Finding:
    """CFG104: the later statement counts."""
    finding = complaint(
        "CFG104",
        later,
        f"{later.spelled} is stated twice with different values: {shown(earlier.value)}, then "
        f"{shown(later.value)}, which counts",
        label="this one counts",
        hint="remove one of the two",
    )
    return finding.replace(labels=(*finding.labels, earlier.label("overridden")))


def other_version(setting: Setting, field: Field, version: str) -> Finding:
    """CFG105."""
    range_ = " ".join(
        text
        for text in (
            f"from {field.since}" if field.since else "",
            f"up to {field.until}" if field.until else "",
        )
        if text
    )
    return complaint(
        "CFG105",
        setting,
        f"{setting.spelled} exists {range_}, not in {version or 'the newest version'}",
        severity=Severity.WARNING if version else Severity.INFO,
        label=f"{range_} only",
        hint="" if version else "give --framework-version if yours is older",
    )


def missing_file(setting: Setting) -> Finding:
    """CFG108."""
    return complaint(
        "CFG108",
        setting,
        f"{shown(setting.value)} is not there, so that what it says is not known",
        severity=Severity.INFO,
        label="not found",
        hint="give the file beside this one on the command line",
    )
