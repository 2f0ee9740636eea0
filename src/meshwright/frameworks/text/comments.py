"""Where the comments of a text stand, whatever its syntax."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Span

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Source

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_HASH = pattern(
    rf"(?P<string>{_STRING})|(?:(?<=\s)|^|(?<=[,;\]}}]))#(?P<said>[^\n]*)", re.MULTILINE
)
_JSON = pattern(
    rf"(?P<string>{_STRING})|#(?P<said>[^\n]*)|//(?P<line>[^\n]*)|/\*(?P<block>(?:[^*]|\*(?!/))*)\*/"
)
_DIRECTIVE = pattern(r"!|SBATCH|PBS|BSUB|COBALT|\s*(?:no[q]a|type:|shellcheck|pylint|fmt:|ruff:)")
_MOST = 1000


def comments_of(source: Source) -> tuple[Span, ...]:
    """The words of every comment, without the sign that opens it; directives are left out."""
    pattern = _JSON if source.syntax == "json" else _HASH
    found: list[Span] = []
    for match in pattern.finditer(source.text):
        if match.lastgroup == "string" or len(found) >= _MOST:
            continue
        start, end = match.span(match.lastgroup or 0)
        if not _DIRECTIVE.match(source.text, start, end):
            found.append(Span(start, end))
    return tuple(found)
