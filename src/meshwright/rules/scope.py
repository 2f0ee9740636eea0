"""Whether a rule's scope, such as "megatron-core>=0.16; torchtitan@0.3", covers a framework.

`name>=x`, `name<=x` and `name==x` are bounds that were checked; `name@x` means checked at x, other
versions not looked at. Text in brackets is a remark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.field import release

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Framework

HOLDS = "holds"
OLDER = "older"  # only versions before the newest make the demand, and yours is not stated
_REMARK = re.compile(r"\([^()]*\)")
_BOUND = re.compile(r"(>=|<=|==|@|<|>)\s*([\w.*+-]+)")
_NAME = re.compile(r"[A-Za-z][\w-]*")


def applies(scope: str, framework: Framework, version: str) -> str | None:
    """`HOLDS`, `OLDER` or None for a framework at a version ("" where none is stated)."""
    verdicts = [_item(item, framework, version) for item in _REMARK.sub("", scope).split(";")]
    if HOLDS in verdicts:
        return HOLDS
    return OLDER if OLDER in verdicts else None


def _item(item: str, framework: Framework, version: str) -> str | None:
    """The verdict of one item of a scope."""
    named = _NAME.match(item.strip())
    if named is None:
        return None
    name = named.group().lower()
    if name in framework.scopes or name == framework.name:
        own = version
    elif name in framework.below:
        own = ""
    else:
        return None
    bounds = _BOUND.findall(item)
    if all(_within(own or _newest(name, framework), op, bound, own) for op, bound in bounds):
        return HOLDS
    return None if own else OLDER


def _newest(name: str, framework: Framework) -> str:
    """The newest version that was looked at; of a package below, one that is newer than any."""
    return framework.newest if name in framework.scopes or name == framework.name else "9999"


def _within(version: str, operator: str, bound: str, stated: str) -> bool:
    """Compares to the precision of the bound, so that 0.19.2 == 0.19 and 0.19.2 <= 0.19."""
    if operator == "@" or (operator == "==" and not stated):
        return True
    right = release(bound)
    left = release(version)[: len(right)]
    if not right:
        return True
    outcomes = {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}
    return outcomes.get(operator, left == right)
