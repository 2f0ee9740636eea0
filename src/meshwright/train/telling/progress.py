"""Times steps and makes their records; the first rank hands them on."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.train.flops import utilization
from meshwright.train.telling.record import Record
from meshwright.train.telling.summary import Course, Summary, write_summary
from meshwright.train.telling.teller import Teller

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from meshwright.train.agreement import Heard
    from meshwright.train.feeding.feeder import Fed, Feeder
    from meshwright.train.keeping import Began, Keeper
    from meshwright.train.settings import Spec
    from meshwright.train.step import Outcome

DONE, STOPPED = "done", "stopped"


class Progress:
    """The course of a run from where it began; only the first rank tells of it."""

    def __init__(
        self,
        spec: Spec,
        *,
        began: Began,
        is_first: bool,
        world_size: int,
        positions: int,
        attempt: int,
        facts: Mapping[str, Any],
    ) -> None:
        self._spec, self._began, self._step = spec, began, began.step
        self._world_size, self._positions, self._attempt = world_size, positions, attempt
        self._course = Course()
        self._first_step_s: float | None = None
        self._began_s = self._lap_s = time.perf_counter()
        self._teller: Teller | None = None
        if is_first:
            self._teller = Teller(spec.run, expected=spec.expected, facts=facts, step=began.step)
            self._say_where()

    def measured(
        self, step: int, *, outcome: Outcome, fed: Fed, heard: Heard, share: float
    ) -> Record:
        """The record of a step that ends now; `share` is that of the peak learning rate."""
        step_s = self._lap()
        world_size, expected = self._world_size, self._spec.expected
        if self._first_step_s is None and self._spec.started_s and not self._attempt:
            self._first_step_s = time.time() - self._spec.started_s
        return Record(
            step=step,
            loss=_finite(outcome.loss),
            learning_rate=share * self._spec.run.recipe.learning_rate,
            grad_norm=_finite(outcome.norm),
            updated=outcome.updated,
            first_sample=fed.first_sample,
            last_sample=fed.last_sample,
            tokens=self._positions,
            labels=outcome.tokens,
            step_s=step_s,
            tokens_per_s=self._positions / step_s,
            tokens_per_s_per_device=self._positions / step_s / world_size,
            mfu=utilization(expected, tokens=self._positions, seconds=step_s, devices=world_size),
            memory_bytes=heard.memory_bytes,
            data_wait_s=heard.wait_s,
            time_s=time.time(),
            attempt=self._attempt,
        )

    def evaluated(self, record: Record, loss: float) -> Record:
        """With the loss of an evaluation that ends now."""
        return replace(record, evaluation_loss=_finite(loss), evaluate_s=self._lap())

    def saved(self, record: Record) -> Record:
        """With the time that a checkpoint has held training up until now."""
        return replace(record, save_s=self._lap())

    def forget(self) -> None:
        """What took time until now belongs to no step: a trace was written."""
        self._lap()

    def tell(self, record: Record) -> None:
        """Hands a record on."""
        self._step = record.step
        self._course.add(record)
        if self._teller is not None:
            step_s = self._course.step_s or record.step_s
            left_s = (self._spec.run.steps - record.step) * step_s
            self._teller.tell(record, left_s=left_s)

    def _lap(self) -> float:
        """Seconds since the last call."""
        now_s = time.perf_counter()
        passed_s, self._lap_s = now_s - self._lap_s, now_s
        return passed_s

    def _say_where(self) -> None:
        """Says where a run goes on, and which checkpoints were passed by."""
        if self._teller is None:
            return
        for finding in self._began.damage:
            self._teller.say(f"passed by: {finding.one_line()}")
        if self._began.folder is not None:
            self._teller.say(f"resumed from {self._began.folder}, {self._began.step} steps done")

    def finish(self, *, feeder: Feeder, keeper: Keeper, device: str) -> None:
        """Writes what the run came to."""
        if self._teller is None:
            return
        run, course, expected = self._spec.run, self._course, self._spec.expected
        summary = Summary(
            ended=DONE if self._step >= run.steps else STOPPED,
            step=self._step,
            steps=run.steps,
            steps_here=course.steps,
            resumed_from=self._began.step,
            loss=course.last.loss if course.last else None,
            first_loss=course.first.loss if course.first else None,
            evaluation_loss=course.evaluation_loss,
            tokens=course.tokens,
            consumed_samples=feeder.consumed,
            epochs=feeder.source.epochs_after(feeder.consumed),
            world_size=self._world_size,
            device=device,
            seconds=time.perf_counter() - self._began_s,
            first_step_s=self._first_step_s,
            step_s=course.step_s,
            tokens_per_s=course.tokens_per_s,
            mfu=self._mean_mfu(),
            data_wait_share=course.wait_share,
            memory_bytes=course.memory_bytes,
            predicted_step_s=expected.step_s if expected else None,
            predicted_bytes=expected.peak_bytes if expected else None,
            updates_left_out=course.left_out,
            checkpoints=tuple(saved.step for saved in keeper.saved),
            checkpoint_stall_s=sum(saved.stall_s for saved in keeper.saved),
        )
        write_summary(summary, Path(run.out))

    def _mean_mfu(self) -> float | None:
        """Over the timed steps."""
        course = self._course
        return utilization(
            self._spec.expected,
            tokens=course.timed * self._positions,
            seconds=course.timed_s,
            devices=self._world_size,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._teller is not None:
            self._teller.close()


def _finite(value: float) -> float | None:
    """The value, None where JSON has no word for it."""
    return value if math.isfinite(value) else None
