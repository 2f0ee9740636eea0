"""What was given, sorted by what it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.diagnose.trace.layout import find_traces, layout_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.diagnose.trace.columns import Left

HINT = "give files of torch.profiler (.json, .json.gz) or folders of them: meshwright diagnose DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Files by what they are; `left` are those that nothing can be read from."""

    kineto: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    metrics: tuple[Path, ...] = ()
    snapshots: tuple[Path, ...] = ()
    nccl_logs: tuple[Path, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def count(self) -> int:
        """Files that something can be read from."""
        lists = (self.kineto, self.pipelines, self.metrics, self.snapshots, self.nccl_logs)
        return sum(map(len, lists))


def sorted_files(
    paths: Iterable[str | Path] | str | Path,
    *,
    nccl_logs: Iterable[str | Path],
    snapshots: Iterable[str | Path],
) -> Given:
    """Files and those below folders, by their layout; InvalidInput where nothing can be read.

    What is given as a log or a snapshot is taken for one whatever it looks like. Pickles go to the
    reader of snapshots and what looks like nothing to that of traces, which say what is wrong.
    """
    given = _checked(paths, "path")
    found, left = find_traces(given)
    kinds: dict[str, list[Path]] = {}
    for path in found:
        kinds.setdefault(layout_of(path), []).append(path)
    logs, snaps = _checked(nccl_logs, "NCCL log"), _checked(snapshots, "memory snapshot")
    sorts = Given(
        kineto=_unique([*kinds.get("kineto", ()), *kinds.get("unknown", ())]),
        pipelines=_unique([*kinds.get("operations", ()), *kinds.get("iterations", ())]),
        metrics=_unique(kinds.get("metrics", ())),
        snapshots=_unique([*kinds.get("snapshot", ()), *kinds.get("pickle", ()), *snaps]),
        nccl_logs=_unique([*kinds.get("nccl-log", ()), *logs]),
        left=tuple(left),
    )
    if not sorts.count:
        raise _nothing([str(p) for p in (*given, *logs, *snaps)], sorts.left)
    return sorts


def _checked(paths: object, noun: str) -> list[Path]:
    """Paths that exist, or are patterns; MeshwrightError for what is no path."""
    listed = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(listed, list | tuple) or not all(isinstance(p, str | Path) for p in listed):
        raise MeshwrightError(f"{noun} {shown(paths)} is not possible", hint="give paths, as [...]")
    return [Path(path) for path in listed]


def _unique(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


def _nothing(given: Sequence[str], left: Sequence[Left]) -> InvalidInput:
    """The error where there is nothing to diagnose."""
    where = ", ".join(given) or "nothing"
    seen = [Finding(message=one.reason, file=one.what, hint=HINT) for one in left]
    return InvalidInput(seen or [Finding(message=f"no trace was found in {where}", hint=HINT)])
