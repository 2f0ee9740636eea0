"""What every rule has in common: its code, its page and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.base.finding import Severity

CODE = pattern(r"(DAT|MOD|CMP|COM)[1-3]\d\d")


@dataclass(eq=False, slots=True, kw_only=True)
class Constraint:
    """One constraint of the guidelines. `code` and `title` name it; `condition` says when it fires.

    `section` is that of the guidelines ("4.1" data partitioning ... "7.3" communication resources).
    `scope` is "all" or the frameworks and versions that demand it, as in
    "megatron-core>=0.16; torchtitan". `confidence` is "run" (seen to happen), "read" (in the
    source), "doc", "paper", "arithmetic" or "heuristic". The docstring of `condition` is its page.
    """

    code: str
    title: str
    severity: Severity
    section: str
    source: str
    scope: str
    confidence: str
    condition: Callable[..., Any]

    @property
    def is_general(self) -> bool:
        """True when the rule holds whatever the framework."""
        return self.scope == "all"

    @property
    def doc(self) -> str:
        """The rule's page: what goes wrong and why, then the examples."""
        return cleandoc(self.condition.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the page, in one line."""
        return " ".join(self.doc.split("\n\n")[0].split())
