"""What can be wrong with a configuration as a text, before its meaning is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Edit, Finding, Severity
from meshwright.base.names import is_typo, likeness, question
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Container

    from meshwright.frameworks.field import Field, Table
    from meshwright.frameworks.setting import Setting

_SLIP = 0.87  # likeness of a name to the one that it is a slip of
_MOST_LONGER = 3  # letters too many
_REFUSING = frozenset({"megatron-lm", "mindspeed", "torchtitan"})
_OF_TRANSFORMERS = frozenset({"hf-trainer", "llama-factory"})
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
    "CFG203": "Statement of a file that an option outweighs",
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


def unknown_key(setting: Setting, table: Table, *, stated: Container[str] = ()) -> Finding:
    """CFG101: a likely slip of the pen is a warning, a name that is like none only a note.

    Where one name alone is a letter or two away, the finding carries the edit that renames the key,
    unless that name is `stated` as well; where the framework refuses what it does not know, it is
    an error.
    """
    near = table.nearest(setting.spelled)
    slips = [name for name in near if _is_slip(setting.spelled, name)]
    typos = [name for name in near if is_typo(setting.spelled, name)]
    meant = typos[0] if len(typos) == 1 else ""
    severity, consequence = _refusal(setting, table.framework, meant) if meant else (None, "")
    mild = Severity.WARNING if slips or meant else Severity.INFO
    found = complaint(
        "CFG101",
        setting.replace(where=setting.key),
        f"{table.framework} has no {shown(setting.spelled)}",
        severity=mild if severity is None else severity,
        label="unknown",
        hint=question(typos or slips or near)
        if near
        else "it is kept as it stands, and not judged",
        consequence=consequence,
    )
    return found.replace(edits=_renamed(setting, meant) if meant and meant not in stated else ())


def _refusal(setting: Setting, framework: str, meant: str) -> tuple[Severity, str]:
    """How a framework takes a misspelt key, and what it says.

    Megatron-LM's parser wants whole names (megatron/training/arguments.py, allow_abbrev=False), the
    one of transformers takes the beginning of a name (hf_argparser.py). DeepSpeed only looks up the
    keys of its top level (runtime/config.py); what it says of those below is rule DAT232's.
    """
    is_argument = setting.spelled.startswith("--")
    if framework == "deepspeed" and not is_argument:
        return Severity.WARNING, "ignored in silence" if "." not in setting.spelled else ""
    if framework in _OF_TRANSFORMERS:
        return _refusal_of_transformers(setting, meant)
    if framework in _REFUSING and is_argument:
        return Severity.ERROR, f"error: unrecognized arguments: {setting.spelled}"
    return Severity.WARNING, ""


def _refusal_of_transformers(setting: Setting, meant: str) -> tuple[Severity, str]:
    """What HfArgumentParser says of arguments, a dataclass of keywords; a file may be another's."""
    if setting.spelled.startswith("--"):
        if meant.lstrip("-").startswith(setting.spelled.lstrip("-")):
            return Severity.WARNING, ""
        refused = "ValueError: Some specified arguments are not used by the HfArgumentParser"
        return Severity.ERROR, f"unrecognized arguments; {refused}"
    if setting.source.syntax == "python":
        return Severity.ERROR, "TypeError: unexpected keyword argument"
    return Severity.WARNING, ""


def _renamed(setting: Setting, name: str) -> tuple[Edit, ...]:
    """The edit that gives a key its right name, with the separators that its writer uses."""
    source, key = setting.source, setting.key
    wrong, right = (n.rpartition(".")[2].lstrip("-") for n in (setting.spelled, name))
    right = right.replace("_", "-") if "-" in wrong and "_" not in wrong else right
    right = right.replace("-", "_") if "_" in wrong and "-" not in wrong else right
    text = source.text[key.start : key.end]
    if text.count(wrong) != 1:
        return ()
    start = key.start + text.index(wrong)
    end = start + len(wrong)
    return (Edit(file=source.file, start=start, end=end, text=right, safe=True),)


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
