"""What lies beside a trace of operations and says how the run was parallel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_BYTES = 1 << 16
NUMBER = re.compile(r"\d{1,9}")


def meta_beside(path: str | Path) -> Mapping[str, str]:
    """The entries of meta-*.yaml in the trace's folder, as text; {} where there is none.

    Of several files, the one that shares its ending with the trace: meta-ST.yaml beside
    timeline-ST.json.gz.
    """
    found = sorted(Path(path).parent.glob("meta*.y*ml"))
    if not found:
        return {}
    name = Path(path).name.split(".")[0].partition("-")[2]
    own = [f for f in found if f.stem.partition("-")[2] == name]
    chosen = own[0] if own else found[0] if len(found) == 1 else None
    return _entries(chosen) if chosen is not None else {}


def size_of(meta: Mapping[str, Any], *names: str) -> int:
    """A size that the entries state under one of the names; 0 where they do not."""
    for name in names:
        text = str(meta.get(name, ""))
        if NUMBER.fullmatch(text):
            return int(text)
    return 0


def _entries(path: Path) -> dict[str, str]:
    import yaml

    try:
        if path.stat().st_size > LARGEST_BYTES:
            return {}
        loaded = yaml.safe_load(path.read_text("utf-8", "replace"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(loaded, dict):
        return {}
    return {str(k): str(v) for k, v in loaded.items() if isinstance(v, str | int | float)}
