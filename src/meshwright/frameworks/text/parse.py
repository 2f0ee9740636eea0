"""One source of any syntax, parsed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.locate.document import malformed
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.frameworks.setting import Parsed, Source

_MOST_CHARACTERS = 2 * 2**20


def parse(source: Source) -> Parsed:
    """What a source states, with what its comments say of the launch where nothing else does."""
    if len(source.text) > _MOST_CHARACTERS:
        raise malformed(source.file, "longer than any configuration", hint="name another file")
    parsed = _parser(source.syntax)(source)
    if source.syntax in ("shell", "overrides") and "{" in source.text:
        from meshwright.frameworks.text.inline import opened

        parsed = replace(parsed, settings=opened(parsed.settings))
    return with_remarks(parsed)


def with_remarks(parsed: Parsed) -> Parsed:
    """`parsed` with the facts of its comments; a command or a setting outweighs a comment."""
    from meshwright.frameworks.text.machine import multiplied
    from meshwright.frameworks.text.remarks import read_remarks

    remarks = read_remarks(parsed.source)
    stated = {name: value for name, value in parsed.launch.items() if value.value is not UNKNOWN}
    return replace(
        parsed,
        launch=multiplied({**parsed.launch, **remarks.launch, **stated}),
        programs=tuple(dict.fromkeys((*parsed.programs, *remarks.programs))),
        remarked=tuple(remarks.settings),
    )


def _parser(syntax: str) -> Callable[[Source], Parsed]:
    """The parser of one syntax, imported only when it is needed."""
    if syntax == "shell":
        from meshwright.frameworks.text.shell.script import parse_shell

        return parse_shell
    if syntax == "overrides":
        from meshwright.frameworks.text.shell.script import parse_overrides

        return parse_overrides
    if syntax == "python":
        from meshwright.frameworks.text.python import parse_python

        return parse_python
    from meshwright.frameworks.text.tree import parse_tree

    return parse_tree
