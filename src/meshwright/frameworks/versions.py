"""Versions as users state them: of the framework itself, or of what it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Framework

Below = tuple[tuple[str, str], ...]
_ITEM = pattern(r"(?:([A-Za-z][\w-]*)\s*(?:==|=|\s)\s*)?v?(\d[\w.]*)")
_ALIKE = {  # released together, under one number
    "megatron-core": ("megatron-core", "megatron-lm"),
    "megatron-lm": ("megatron-core", "megatron-lm"),
}


def split_version(text: str, framework: Framework) -> tuple[str, Below]:
    """The framework's own version, and those of packages below it by name.

    "0.15" is its own, "megatron-core 0.15" or "4.1, megatron-core==0.15" name what they mean.
    """
    own = ""
    below: dict[str, str] = {}
    for part in text.split(","):
        found = _ITEM.fullmatch(part.strip())
        if found is None:
            own = own or part.strip()
            continue
        name, version = (found[1] or "").lower(), found[2]
        if name in framework.below:
            alike = _ALIKE.get(name, (name,))
            below |= {n: version for n in alike if n in framework.below}
        elif name in ("", framework.name, *framework.scopes, *framework.aliases):
            own = version
    return own, tuple(below.items())
