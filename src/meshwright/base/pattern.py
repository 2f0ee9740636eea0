"""Regular expressions that are compiled when they are first used.

A reader of ten syntaxes has more than a hundred of them, and one file needs a few.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pattern = re.compile
else:

    class pattern:  # noqa: N801 - stands for `re.compile`
        """What `re.compile` makes of the same arguments, made when something of it is asked."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self._text, self._flags = text, flags

        def __getattr__(self, name: str) -> Any:
            """An attribute of the compiled expression, kept."""
            if name.startswith("__"):
                raise AttributeError(name)
            value = getattr(re.compile(self._text, self._flags), name)
            setattr(self, name, value)
            return value
