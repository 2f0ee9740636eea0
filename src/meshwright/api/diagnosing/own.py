"""The plan that a trace carries: those of `meshwright train` say under which one they ran."""

from __future__ import annotations

import base64
import binascii
import tomllib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.diagnose.rank import Rank
    from meshwright.plan.job import Job

_KEY = "plan_toml_base64"
_LIMIT = 1_000_000  # bytes


def own_job(ranks: Iterable[Rank]) -> Job | None:
    """The job of the first trace that carries one; None where none does, or it is no plan.

    A trace is somebody's text: a plan that names files outside of its run's folder is none.
    """
    for rank in ranks:
        text = (rank.meta.own or {}).get(_KEY)
        if isinstance(text, str) and len(text) <= _LIMIT:
            return _parsed(text, Path(rank.file))
    return None


def _parsed(text: str, trace: Path) -> Job | None:
    from meshwright.plan.file import parse_job

    try:
        plan = base64.b64decode(text, validate=True).decode()
        if not all(map(_is_inside, _files(tomllib.loads(plan)))):
            return None
        return parse_job(plan, folder=trace.absolute().parent.parent)
    except (binascii.Error, ValueError, MeshwrightError, OSError, RecursionError):
        return None


def _files(value: Any) -> list[str]:
    """Every value under a key "file", at any depth."""
    if isinstance(value, list):
        return [name for item in value for name in _files(item)]
    if not isinstance(value, dict):
        return []
    own = [str(v) for k, v in value.items() if k == "file"]
    return own + [name for item in value.values() for name in _files(item)]


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
