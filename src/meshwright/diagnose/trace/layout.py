"""What a file is, by its first bytes, and the files that an analysis is given."""

from __future__ import annotations

import os
import re
import stat
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.source import first_bytes, refuse, word_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Layout = Literal[
    "kineto", "operations", "iterations", "metrics", "snapshot", "nccl-log", "pickle", "unknown"
]
_HEAD = 1 << 16
_FAR_HEAD = 1 << 24  # metadata of thousands of ranks may stand before the first event
_MOST_FILES = 100_000
_SPACE = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_OPERATION = re.compile(rb'"cat"\s*:\s*"(?:forward|backward)-|"(?:model_chunk|mb_id)"\s*:')
_ITERATION = re.compile(rb'\{\s*"-?\d+"\s*:\s*\{[^{}]*"(?:fwd|bwd|total|memory)')
_KINETO = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo|traceName)"\s*:')
_SNAPSHOT = re.compile(rb'"(?:device_traces|segments|block_pools|external_annotations)"\s*:')
_NCCL = re.compile(rb"\bNCCL (?:INFO|WARN|TRACE|version)\b")
_METRIC = frozenset(("step", "step_s", "loss", "tokens_per_s", "iteration", "event", "kind"))
_SUFFIXES = (".json", ".json.gz", ".jsonl", ".trace", ".trace.gz", ".pickle", ".pkl")
_OF_RUN = "run.json"  # lies in every folder of `meshwright train`, with these beside and below it
_RUN_FILES = frozenset((_OF_RUN, "config.json", "summary.json", "manifest.json", "tensors.json"))
_LOGS = (".log", ".txt", ".out", ".err")


def layout_of(path: str | Path) -> Layout:
    """What a file is.

    "kineto" a profiler's trace, "operations" a pipeline's bare array of forward-compute and its
    kin, "iterations" a dictionary of iterations with fwd_start, "metrics" lines of JSON with steps,
    "snapshot" PyTorch's memory snapshot, "nccl-log" what NCCL_DEBUG writes. Whoever reads a file
    says what is wrong with one of these; files that cannot be opened are "unknown".
    """
    try:
        head = first_bytes(path, _HEAD)
        layout = _of_text(head)
        if layout == "unknown" and head.lstrip(_SPACE + _MARK)[:1] == b"{" and len(head) == _HEAD:
            layout = _of_object(first_bytes(path, _FAR_HEAD).lstrip(_SPACE + _MARK))
    except InvalidInput as refused:
        return "pickle" if "it is a pickle" in str(refused) else "unknown"
    return layout


def _of_text(head: bytes) -> Layout:
    if word_of(head) == "pickle" or (word_of(head) == "zip archive" and b"/data.pkl" in head):
        return "pickle"
    text = head.lstrip(_SPACE + _MARK)
    if text.startswith(b"{"):
        return _of_object(text)
    if text.startswith(b"["):
        return _of_array(text)
    return "nccl-log" if _NCCL.search(head) else "unknown"


def _of_array(text: bytes) -> Layout:
    """What a bare array holds; an empty one may be an empty trace."""
    if _OPERATION.search(text):
        return "operations"
    if b'"device_traces"' in text or b'"total_size"' in text:
        return "snapshot"
    return "kineto" if _EVENT.search(text) or text[1:].lstrip(_SPACE)[:1] == b"]" else "unknown"


def _of_object(text: bytes) -> Layout:
    if found := _EVENTS.search(text):
        return "operations" if _OPERATION.search(text, found.end()) else "kineto"
    if _ITERATION.match(text):
        return "iterations"
    if _is_metrics(text):
        return "metrics"
    if _KINETO.search(text) or b'"traceEvents"' in text:
        return "kineto"
    return "snapshot" if _SNAPSHOT.search(text) else "unknown"


def _is_metrics(text: bytes) -> bool:
    """Whether the first line is an object that speaks of a step, and not the whole file."""
    line, _, _ = text.partition(b"\n")
    try:
        first = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    named = isinstance(first, dict) and _METRIC & first.keys()
    return bool(named) and ("step" in first or "iteration" in first or "event" in first)


def find_traces(paths: Sequence[str | Path]) -> tuple[list[Path], list[Left]]:
    """Files to analyze from files, folders and patterns, each once, and what was left out.

    Files of a folder or pattern come in natural order (rank 2 before rank 10); of a folder those
    that hold no trace are left out and told, but for what `meshwright train` keeps beside traces.
    Raises `InvalidInput` for what does not exist.
    """
    found: dict[Path, Path] = {}
    left: list[Left] = []
    for path in paths:
        for file in _below(path, left):
            found.setdefault(_place(file), file)
    return list(found.values()), left


def _below(path: str | Path, left: list[Left]) -> list[Path]:
    """The files that one argument names."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        matched = glob(str(path), recursive=True) if has_magic(str(path)) else []
        if not matched:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            refuse(path, reason, hint="check the path", message=f"no such trace: {reason}")
        return [f for m in sorted(matched, key=natural) for f in _below(m, left)]
    return _in_folder(Path(path), left) if stat.S_ISDIR(mode) else [Path(path)]


def _in_folder(folder: Path, left: list[Left]) -> list[Path]:
    """The files below a folder that can be analyzed."""
    kept = []
    for path in sorted(_files(folder), key=natural):
        layout = layout_of(path)
        log = path.name.lower().endswith(_LOGS)
        if layout == "nccl-log" or (layout != "unknown" and not log):
            kept.append(path)
        elif not log and not _is_of_run(path, folder):
            reason = "it holds no events of a profiler"
            left.append(Left(what=str(path), count=1, time_us=0.0, reason=reason))
    return kept


def _is_of_run(path: Path, folder: Path) -> bool:
    """Whether a file is one that `meshwright train` keeps in its folder, and that times nothing."""
    return path.name in _RUN_FILES and any(
        place.is_relative_to(folder) and (place / _OF_RUN).is_file()
        for place in (path.parent, path.parent.parent)
    )


def _files(folder: Path) -> Iterator[Path]:
    """Files that may hold traces, by their names."""
    seen = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in files:
            if name.lower().endswith(_SUFFIXES + _LOGS) and not name.startswith("."):
                yield Path(root, name)
                seen += 1
                if seen >= _MOST_FILES:
                    return


def _place(path: Path) -> Path:
    """Where a file really is, so that it is analyzed once."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def natural(path: str | Path) -> list[tuple[int, int | str]]:
    """A key that sorts numbers in names by their size."""
    parts: Iterable[str] = re.split(r"(\d+)", str(path))
    return [(0, int(p)) if p.isdecimal() else (1, p) for p in parts if p]
