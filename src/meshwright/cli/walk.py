"""Files of a folder that may be configurations, by their endings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDINGS = frozenset(
    (".sh", ".bash", ".slurm", ".sbatch", ".job", ".json", ".toml", ".yaml", ".yml", ".py")
)
LARGEST_BYTES = 2**19  # of a file that is looked into unasked; vocabularies are larger
FOREIGN = frozenset(
    ("node_modules", "site-packages", "third_party", "third-party", "vendor", "venv", "env")
).union(("__pycache__", "build", "dist", "wandb", "outputs", "checkpoints"))


def candidates(folder: str | Path) -> Iterator[str]:
    """Names of files under a folder that may be configurations, in order.

    Hidden and vendored folders are passed by, links to folders not followed.
    """
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in FOREIGN)
        for name in sorted(files):
            path = os.path.join(parent, name)
            if _ends_well(name) and _is_small_file(path):
                yield os.path.normpath(path)


def _ends_well(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in ENDINGS and not name.startswith(".")


def _is_small_file(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.getsize(path) <= LARGEST_BYTES
    except OSError:
        return False
