"""Checkpoints of a run: when one is written, what it says beside tensors, and going on from it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.train.checkpoint import Every, Saver, latest, restore, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

    from meshwright.train.checkpoint import Saved
    from meshwright.train.engine import Engine
    from meshwright.train.feeding.feeder import Feeder
    from meshwright.train.optimizer import Optimizers
    from meshwright.train.settings import Run, Saving

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """Where a run begins: after `step` steps, from the checkpoint in `folder` if there is one."""

    step: int = 0
    folder: Path | None = None
    damage: tuple[Finding, ...] = ()


class Keeper:
    """Saves and restores the run of this rank; a context manager that ends the saver's thread."""

    def __init__(
        self,
        run: Run,
        *,
        engine: Engine,
        optimizers: Optimizers,
        feeder: Feeder,
        facts: Mapping[str, Any],
    ) -> None:
        self._run, self._facts = run, dict(facts)
        self._engine, self._optimizers, self._feeder = engine, optimizers, feeder
        self._saved_at = NEVER
        self._saver = _saver(run.out, run.saving)
        if self._saver is not None and not optimizers.can_be_saved:
            raise InvalidInput([_unsaved()])

    @property
    def saved(self) -> list[Saved]:
        """Checkpoints written so far, those that are still being written left out."""
        return self._saver.saved if self._saver else []

    def begin(self, *, wanted: bool) -> Began:
        """Goes on from the newest whole checkpoint of the run, if it is wanted and there is one."""
        if not wanted:
            return Began()
        found = latest(self._run.out, group=dist.group.WORLD)
        if found.folder is None:
            if found.damage:
                raise InvalidInput(found.damage, hint="start again in another folder: --out DIR")
            return Began()
        restored = restore(
            found.folder, self._engine.stages, self._optimizers.parts, is_verified=True
        )
        self._feeder.restore(_mapping(restored.facts, "feed"))
        self._optimizers.restore(_mapping(restored.facts, "optimizers"))
        self._saved_at = restored.step
        return Began(step=restored.step, folder=found.folder, damage=found.damage)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after so many steps; to be asked after every step."""
        return self._saver is not None and self._saver.due(step)

    def save(self, step: int) -> None:
        """Writes a checkpoint, behind the next steps where the run says so."""
        if self._saver is None or step == self._saved_at:
            return
        facts = self._facts | {
            "feed": self._feeder.state(),
            "optimizers": self._optimizers.state(),
        }
        self._saver.save(state_of(self._engine.stages, self._optimizers.parts), step, facts)
        self._saved_at = step
        if not self._run.saving.asynchronous:
            self._saver.wait()

    def finish(self, step: int) -> None:
        """Saves the end of the run where that is wanted, and waits until all is written."""
        if self._saver is None:
            return
        if self._run.saving.last:
            self.save(step)
        self._saver.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._saver is None:
            return
        with contextlib.suppress(*((MeshwrightError,) if kind else ())):  # the first error counts
            self._saver.close()


def _unsaved() -> Finding:
    return Finding(
        message="states of the 8-bit optimizer cannot be saved",
        key="plan.optimizer",
        value="adam-8bit",
        hint='--checkpoint-every -1 --no-save-last, or plan.optimizer = "adam"',
    )


def _saver(out: str, saving: Saving) -> Saver | None:
    if saving.every_steps == NEVER and not saving.last:
        return None
    steps = saving.every_steps if saving.every_steps > 0 else None
    every = Every(steps=1 << 62 if saving.every_steps == NEVER else steps, mtbf_s=saving.mtbf_s)
    return Saver(out, keep=saving.keep, keep_every=saving.keep_every or None, every=every)


def _mapping(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the facts; nothing where it is none."""
    part = facts.get(name)
    return part if isinstance(part, dict) else {}
