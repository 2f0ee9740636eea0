"""Saves while training goes on: copied to the host, then written by a thread, one at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from meshwright import __version__
from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.shards.hashed import creating
from meshwright.train.checkpoint.folders import name_of, prune, tidy
from meshwright.train.checkpoint.interval import Every
from meshwright.train.checkpoint.manifest import MANIFEST, File, Manifest, Options, encoded
from meshwright.train.checkpoint.random import random_state
from meshwright.train.checkpoint.storage import FolderWriter, Notes, SavePlanning, Staged, sync
from meshwright.train.model.share import boxes_of, part_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from torch import Tensor

    from meshwright.train.checkpoint.index import Index
    from meshwright.train.checkpoint.state import State

_LIBRARIES = ("torch", "transformers", "safetensors")


class SaveFailed(MeshwrightError):  # noqa: N818 - says what happened
    """A checkpoint could not be written; older ones are untouched. `full` where space ran out."""

    def __init__(self, step: int, reason: str, *, full: bool = False) -> None:
        self.step = step
        self.full = full
        hint = (
            "free some space, or keep fewer checkpoints" if full else "see that it can be written"
        )
        super().__init__(f"the checkpoint of step {step} could not be written: {reason}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that was written: `stall_s` training stood still for it, of `total_s`."""

    step: int
    folder: Path
    bytes: int  # on the disk; 0 on other ranks than 0
    stall_s: float
    total_s: float
    removed: tuple[int, ...]  # steps whose checkpoints made room


class Saver:
    """Writes checkpoints of a run into `folder`, which all ranks see; every rank makes one.

    `keep` newest ones are kept, and every step that `keep_every` divides. When one cannot be
    written, the next `save` or `wait` raises `SaveFailed` on all ranks.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 3,
        keep_every: int | None = None,
        every: Every | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.keep, self.keep_every = keep, keep_every
        self.every = every or Every()
        self.saved: list[Saved] = []
        self.waits = 0  # saves that were due while another one was still being written
        self.waited_s = 0.0
        self.next_step: int | None = None
        self._group = dist.new_group(backend="gloo")  # of its own: a thread uses it
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[Saved] | None = None
        self._buffers: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._clock: tuple[int, float] | None = None  # step and time that steps are timed from
        if dist.get_rank() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            tidy(self.folder)

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after `step` steps: the same on all ranks.

        Steps are timed between calls, so this is called after every step.
        """
        if self._clock is None:
            self._clock = (step, time.monotonic())
        if self.next_step is None:
            self.next_step = step - 1 + self.every.first()
        return step >= self.next_step

    def save(self, state: State, step: int, facts: Mapping[str, Any]) -> None:
        """Starts to save; returns when the state has been copied and may change.

        Waits for the save before, if that still runs. `facts` is what JSON can hold: plan, degrees,
        configuration, tokens, seeds, state of the loader.
        """
        text = _json(facts)
        began = time.monotonic()
        self._settle(counted=True)
        staged = self._stage(state)
        stall_s = time.monotonic() - began
        self._plan_next(step, began=began, stall_s=stall_s)
        notes = Notes(values=state.values, groups=state.groups)
        self._running = self._thread.submit(
            self._write, staged, notes, step=step, facts=text, stall_s=stall_s
        )
        self._clock = (step, time.monotonic())

    def wait(self) -> None:
        """Waits until the save that runs is done; `SaveFailed` where it failed."""
        self._settle(counted=False)

    def close(self) -> None:
        """Waits, and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _settle(self, *, counted: bool) -> None:
        """Takes in the outcome of the save that runs, if one does."""
        if self._running is None:
            return
        running, self._running = self._running, None
        began = time.monotonic()
        self.waits += counted and not running.done()
        try:
            self.saved.append(running.result())
        finally:
            self.waited_s += (time.monotonic() - began) if counted else 0.0

    def _stage(self, state: State) -> dict[str, Staged]:
        """Copies of this rank's blocks in host memory, which is used again by the next save."""
        tensors = {**state.tensors, **random_state()}
        staged = {}
        for name, tensor in tensors.items():
            part = part_of(tensor)
            blocks = tuple(
                (box.start, self._copied((name, box.start), box.of(part)))
                for box in boxes_of(tensor)
            )
            staged[name] = Staged(shape=tuple(tensor.shape), dtype=tensor.dtype, blocks=blocks)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return staged

    def _copied(self, key: tuple[str, tuple[int, ...]], block: Tensor) -> Tensor:
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape != block.shape or buffer.dtype != block.dtype:
            pinned = block.device.type == "cuda"
            buffer = torch.empty(block.shape, dtype=block.dtype, pin_memory=pinned)
            self._buffers[key] = buffer
        return buffer.copy_(block, non_blocking=True)

    def _plan_next(self, step: int, *, began: float, stall_s: float) -> None:
        """Sets the next step to save at from the slowest rank's times."""
        since_step, since = self._clock or (step, began)
        step_s = (began - since) / (step - since_step) if step > since_step else 0.0
        slowest = torch.tensor([stall_s, step_s], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self._group)
        self.next_step = step + self.every.steps_between(
            stall_s=float(slowest[0]), step_s=float(slowest[1]), ranks=dist.get_world_size()
        )

    # In the thread

    def _write(
        self, staged: dict[str, Staged], notes: Notes, *, step: int, facts: str, stall_s: float
    ) -> Saved:
        """Writes a checkpoint under another name and gives it its own when it is whole."""
        began = time.monotonic()
        place = self.folder / name_of(step)
        part = place.with_name(f"{place.name}.tmp")
        planner = SavePlanning(notes)
        sizes: list[int] = []

        def finish(_: Index, files: dict[str, File]) -> None:
            manifest = _manifest(planner.notes, step=step, facts=facts, files=files)
            _finish(part, place, manifest)
            sizes.append(sum(file.bytes for file in files.values()))

        writer = FolderWriter(part, finish)
        writer.planner = planner
        is_first = dist.get_rank() == 0
        try:
            if is_first:
                shutil.rmtree(part, ignore_errors=True)
            dcp.save(staged, storage_writer=writer, planner=planner, process_group=self._group)
        except BaseException as error:
            if is_first:
                shutil.rmtree(part, ignore_errors=True)
            raise _failed(step, error) from None
        removed = self._prune(step) if is_first else []
        return Saved(
            step=step,
            folder=place,
            bytes=sum(sizes),
            stall_s=stall_s,
            total_s=stall_s + time.monotonic() - began,
            removed=tuple(removed),
        )

    def _prune(self, newest: int) -> list[int]:
        try:
            return prune(self.folder, newest=newest, keep=self.keep, keep_every=self.keep_every)
        except OSError:  # the new one is good; what cannot be removed shows when space runs out
            return []


def _json(facts: Mapping[str, Any]) -> str:
    """The facts as text, before anything is written."""
    try:
        return json.dumps(dict(facts), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MeshwrightError(f"facts of a checkpoint must be plain: {error}") from None


def _manifest(notes: list[Notes], *, step: int, facts: str, files: dict[str, File]) -> Manifest:
    return Manifest(
        tool=f"meshwright {__version__}",
        step=step,
        world_size=dist.get_world_size(),
        facts=json.loads(facts),
        optimizers=_options(notes),
        libraries={"python": platform.python_version(), **_versions()},
        files=files,
    )


def _options(notes: list[Notes]) -> list[Options]:
    """The optimizers' groups of all ranks, those with the same options together."""
    found: dict[str, tuple[str, dict[str, Any], dict[str, None]]] = {}
    for group in (group for note in notes for group in note.groups):
        key = json.dumps([group.kind, group.options], sort_keys=True)
        _, _, names = found.setdefault(key, (group.kind, group.options, {}))
        names.update(dict.fromkeys(group.names))
    return [Options(kind=k, options=o, names=tuple(sorted(n))) for k, o, n in found.values()]


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _finish(part: Path, place: Path, manifest: Manifest) -> None:
    """The last file, then the name by which the checkpoint counts."""
    with creating(part / MANIFEST) as file:
        file.write(encoded(manifest))
    sync(part)
    if place.exists():  # the same step once more, as after a resume from an older one
        gone = place.with_name(f"{place.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        place.rename(gone)
        part.rename(place)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        part.rename(place)
    sync(place.parent)


def _failed(step: int, error: BaseException) -> SaveFailed:
    """What went wrong on the rank that it went wrong on."""
    causes = [error]
    failures = getattr(error, "failures", None)
    if failures:  # DCP's CheckpointException: (exception, traceback) by rank
        causes = [cause[0] for cause in failures.values()]
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return SaveFailed(step, "no space is left on the device", full=True)
    first = causes[0]
    reason = getattr(first, "strerror", None) or " ".join(str(first).split()) or repr(first)
    return SaveFailed(step, reason)
