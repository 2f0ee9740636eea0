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


@lru_cache(maxsize=1)
def layouts() -> Mapping[str, Layout]:
    """Every model_type with a layout, from the files of this folder."""
    files = sorted(path.stem for path in Path(__path__[0]).glob("[!_]*.py"))
    modules = [importlib.import_module(f"{__name__}.{file}") for file in files]
    return {kind: layout for m in modules for kind, layout in getattr(m, "FAMILIES", {}).items()}
