"""What is known to constrain parallel plans, and how far meshwright checks it.

One CSV file a class of rules: code, title, status, reason. The status is

- "general": holds for any stack, and is implemented; the reason names the rule where its code
  differs,
- "framework": demanded by the framework named in the reason alone, and held by demands of that code
  in `rules.framework`,
- "needs": general, but waits for what the reason names,
- "own": a rule or a demand that came to the catalogue later, from reports and from our own figures.
"""

from __future__ import annotations

import re
from functools import cache

from meshwright.base.noun import dataclass
from meshwright.base.rows import rows_of
from meshwright.base.shipped import shipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One constraint; `rule` is the code of the rule that holds it, "" where none does."""

    code: str
    title: str
    status: str
    reason: str

    @property
    def rule(self) -> str:
        """The rule that implements the entry."""
        if self.status not in ("general", "own"):
            return ""
        other = re.match(r"by ([A-Z]{3}\d{3})\b", self.reason)
        return other[1] if other else self.code


@cache
def catalogue() -> tuple[Entry, ...]:
    """All entries, by code."""
    names = (f.name for f in shipped(__name__).iterdir() if f.name.endswith(".csv"))
    rows = [row for name in names for row in rows_of(__name__, name)]
    return tuple(Entry(**row) for row in sorted(rows, key=lambda row: row["code"]))
