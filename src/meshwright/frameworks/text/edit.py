"""Changes to one setting of a file that keep its comments and layout.

Every edit is tried on the text and the result read again: it is given only if the setting then has
the value that was asked for and every other setting still has its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Edit
from meshwright.frameworks.setting import UNKNOWN, Setting, Source
from meshwright.frameworks.text.inserting import gathered, insertions
from meshwright.frameworks.text.parse import parse
from meshwright.frameworks.text.replacing import replacements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BY_HAND = "edit it by hand"


def replace_value(setting: Setting, text_value: Any) -> Edit:
    """The edit that gives a setting another value, a text or a typed value.

    A variable that only this setting uses is changed where it is assigned; else the place that
    names it. MeshwrightError where no edit changes this setting alone.
    """
    source = setting.source
    before = _stated(source)
    position = _position(setting, before)
    for span, text in replacements(setting, text_value):
        edit = Edit(file=source.file, start=span.start, end=span.end, text=text)
        if position is None or _changes_only(source, edit, before, position, text_value):
            return edit
    raise MeshwrightError(f"{setting.spelled} cannot be changed alone here", hint=_BY_HAND)


def remove(setting: Setting) -> Edit:
    """The edit that takes a setting out; MeshwrightError where cutting would break the file."""
    source, whole = setting.source, setting.whole
    before = _stated(source)
    position = _position(setting, before)
    edit = Edit(file=source.file, start=whole.start, end=whole.end, text="")
    if whole.start < whole.end and position is not None:
        after = _settings(source, edit)
        kept = [item for item in before if item.key != setting.key]
        if after is not None and _same(kept, [s for s in after if not _is_left_over(s, setting)]):
            return edit
    raise MeshwrightError(f"{setting.spelled} cannot be taken out alone here", hint=_BY_HAND)


def insert(source: Source, name: str, value: Any, near: Setting | None = None) -> Edit:
    """The edit that adds a setting, after `near` or where its kin stand.

    A table as the value of a tree's key is added with all that is in it.

    MeshwrightError where the file has no place for it.
    """
    before = _stated(source)
    for at, text in insertions(source, name, value, near=near, settings=before):
        edit = Edit(file=source.file, start=at, end=at, text=text)
        after = _settings(source, edit)
        if after is None:
            continue
        added = [s for s in after if at <= s.key.start < at + len(text)]
        rest = [s for s in after if not at <= s.key.start < at + len(text)]
        if _are(added, _leaves(name, value)) and _same(before, rest):
            return edit
    raise MeshwrightError(f"no place to add {name}", hint=f"add it by hand: {name} {value}")


def insert_all(
    source: Source, values: Mapping[str, Any], near: Setting | None = None
) -> tuple[Edit, ...]:
    """The edits that add several settings, in the order in which they are to be applied.

    Settings of one table that does not exist yet become one block. MeshwrightError where the file
    has no place for one of them.
    """
    whole = gathered(source, values)
    edits = tuple(insert(source, name, value, near) for name, value in whole.items())
    wanted = {leaf for name, value in whole.items() for leaf in _leaves(name, value)}
    after = _settings(source, *edits)
    if after is None or not wanted <= {_plain(s.name) for s in after}:
        raise MeshwrightError(f"no place to add {', '.join(whole)} together", hint=_BY_HAND)
    return edits


def _leaves(name: str, value: Any) -> dict[str, Any]:
    """What a setting states, by plain name: itself, or the entries of a table."""
    if not isinstance(value, dict) or not value:
        return {_plain(name): value}
    inner = (_leaves(f"{name}.{key}", below) for key, below in value.items())
    return {leaf: found for leaves in inner for leaf, found in leaves.items()}


def _are(added: Sequence[Setting], wanted: Mapping[str, Any]) -> bool:
    """Whether settings are those that were to be added, and nothing else."""
    names = [_plain(s.name) for s in added]
    right = all(
        n in wanted and _is_value(s.value, wanted[n]) for n, s in zip(names, added, strict=True)
    )
    return right and {*names} == {*wanted}


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits; MeshwrightError where two of them overlap or leave the text."""
    ordered = sorted(edits, key=lambda e: (e.start, e.end))
    result: list[str] = []
    at = 0
    for edit in ordered:
        if not at <= edit.start <= edit.end <= len(text):
            raise MeshwrightError(
                f"two edits overlap at character {edit.start}",
                hint="apply one, check again, then the other",
            )
        result += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*result, text[at:]])


def compatible(edits: Iterable[Edit]) -> tuple[tuple[Edit, ...], tuple[Edit, ...]]:
    """Edits that can be applied at once, the first of each overlap, and those left for later."""
    kept: list[Edit] = []
    later: list[Edit] = []
    for edit in edits:
        clash = any(
            (e.start < edit.end and edit.start < e.end) or e.start == edit.start for e in kept
        )
        (later if clash else kept).append(edit)
    return tuple(kept), tuple(later)


@lru_cache(maxsize=8)
def _stated(source: Source) -> tuple[Setting, ...]:
    """The settings of a file before any edit, read once for all edits of it."""
    return parse(source).settings


def _position(setting: Setting, settings: Sequence[Setting]) -> int | None:
    """Which of the settings of a file this is; None for a fact of the launch or a remark."""
    for number, item in enumerate(settings):
        if (item.spelled, item.key, item.where) == (setting.spelled, setting.key, setting.where):
            return number
    return None


def _settings(source: Source, *edits: Edit) -> tuple[Setting, ...] | None:
    """The settings after edits; None where the file can then no longer be read."""
    changed = Source(file=source.file, text=apply(source.text, edits), syntax=source.syntax)
    try:
        return parse(changed).settings
    except InvalidInput:
        return None


def _changes_only(
    source: Source, edit: Edit, before: Sequence[Setting], position: int, value: Any
) -> bool:
    after = _settings(source, edit)
    if after is None or len(after) != len(before):
        return False
    key = before[position].key  # of a list that two commands take there are several
    pairs = list(zip(before, after, strict=True))
    return all(a.name == b.name for a, b in pairs) and all(
        _is_value(b.value, value) if a.key == key else a.value is b.value or a.value == b.value
        for a, b in pairs
    )


def _same(before: Sequence[Setting], after: Sequence[Setting]) -> bool:
    return len(before) == len(after) and all(
        a.name == b.name and (a.value is b.value or a.value == b.value)
        for a, b in zip(before, after, strict=True)
    )


def _is_value(found: Any, wanted: Any) -> bool:
    """Whether a value that was read is the one that was to be written."""
    if found is UNKNOWN:
        return False
    if isinstance(found, str) or isinstance(wanted, str):
        return _text(found) == _text(wanted)
    if isinstance(found, list) and isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(_is_value, found, wanted))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def _text(value: Any) -> str:
    from meshwright.frameworks.text.written import plain_text

    text = plain_text(value)
    return text.lower() if text.lower() in ("true", "false", "null", "none") else text


def _is_left_over(found: Setting, removed: Setting) -> bool:
    """An empty table that held nothing but the removed setting."""
    return found.value in (None, {}, []) and removed.name.startswith(found.name + ".")


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
