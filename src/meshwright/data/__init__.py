"""From raw text to packed shards: clean, without duplicates, the same for any number of workers.

    from meshwright import data

    settings = data.read_build("config.toml")       # or data.Build(sources=..., output=..., ...)
    manifest = data.build(settings, workers=8)      # again after any interruption: it goes on
    rows = data.open_folder("shards", "train")      # rows of tokens, mapped into memory

Stages of restartable units: scan (read, repair, filter, keys), link, shingle and decide
(duplicates), tokenize, arrange (split, mix, shuffle) and emit (packed rows as Megatron's .bin and
.idx with a pack plan), then documents.parquet and a manifest.
Nothing here needs torch but `loader.dataset`, and nothing but `meshwright.base` is imported. Public
names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "Build": "meshwright.data.settings",
    "Folder": "meshwright.data.shards.folder",
    "Manifest": "meshwright.data.shards.manifest",
    "Progress": "meshwright.data.work.progress",
    "build": "meshwright.data.building",
    "dry_run": "meshwright.data.dry",
    "open_folder": "meshwright.data.shards.folder",
    "parse_build": "meshwright.data.reading",
    "plan_job": "meshwright.data.building",
    "read_build": "meshwright.data.reading",
    "read_manifest": "meshwright.data.shards.manifest",
    "stats": "meshwright.data.shards.stats",
    "verify": "meshwright.data.shards.verify",
    "write_build": "meshwright.data.reading",
}
__all__ = [
    "Build",
    "Folder",
    "Manifest",
    "Progress",
    "build",
    "dry_run",
    "open_folder",
    "parse_build",
    "plan_job",
    "read_build",
    "read_manifest",
    "stats",
    "verify",
    "write_build",
]

if TYPE_CHECKING:
    from meshwright.data.building import build, plan_job
    from meshwright.data.dry import dry_run
    from meshwright.data.reading import parse_build, read_build, write_build
    from meshwright.data.settings import Build
    from meshwright.data.shards.folder import Folder, open_folder
    from meshwright.data.shards.manifest import Manifest, read_manifest
    from meshwright.data.shards.stats import stats
    from meshwright.data.shards.verify import verify
    from meshwright.data.work.progress import Progress


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
