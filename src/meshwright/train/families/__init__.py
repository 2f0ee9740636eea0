"""Where the families that meshwright trains differ: one file a family or group.

Each file lists its model_types in a mapping `FAMILIES`: model_type -> `Layout`. Adding a family is
adding a file, and its tiny configuration in train/model/tiny.py.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.train.families.layout import Layout

# model_types under which the same architecture is published, and transformers' name for it
_SAME_AS = {"kimi_k2": "deepseek_v3", "qwen2_5": "qwen2", "gemma3": "gemma3_text"}


def model_type_of(family: str) -> str:
    """The model_type that transformers gives a family."""
    return _SAME_AS.get(family, family)


@lru_cache(maxsize=1)
def layouts() -> Mapping[str, Layout]:
    """Every model_type with a layout, from the files of this folder."""
    files = sorted(path.stem for path in Path(__path__[0]).glob("[!_]*.py"))
    modules = [importlib.import_module(f"{__name__}.{file}") for file in files]
    return {kind: layout for m in modules for kind, layout in getattr(m, "FAMILIES", {}).items()}
