"""Tells every place of the steps of a run; only the first rank does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.train.telling.boards import open_boards
from meshwright.train.telling.line import line_of
from meshwright.train.telling.metrics import METRICS, Metrics, cut_after

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self, TextIO

    from meshwright.train.settings import Expected, Run
    from meshwright.train.telling.record import Record

_CLEAR = "\x1b[K"  # to the end of the line


class Teller:
    """Progress line, metrics.jsonl and boards of a run that goes on after `step` steps."""

    def __init__(
        self,
        run: Run,
        *,
        expected: Expected | None,
        facts: Mapping[str, Any],
        step: int,
        stream: TextIO | None = None,
    ) -> None:
        self._run, self._expected = run, expected
        self._stream = sys.stderr if stream is None else stream
        path = Path(run.out) / METRICS
        cut_after(path, step=step)
        self._metrics = Metrics(path)
        self._boards = open_boards(run, facts, step=step)
        self._first = step + 1
        self._in_line = False

    def tell(self, record: Record, *, left_s: float) -> None:
        """One step, everywhere; `left_s` is the time to go."""
        self._metrics.add(record)
        for board in self._boards:
            board.add(record)
        if self._run.telling.in_place or self._is_shown(record):
            self._show(record, left_s)

    def say(self, text: str) -> None:
        """A line of its own."""
        print("\n" * self._in_line + text, file=self._stream, flush=True)
        self._in_line = False

    def close(self) -> None:
        """Closes every place."""
        if self._in_line:
            print(file=self._stream, flush=True)
        self._metrics.close()
        for board in self._boards:
            board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_shown(self, record: Record) -> bool:
        """The first step and the last, every so many, and what is unlike the others."""
        every = max(self._run.telling.every_steps, 1)
        is_end = record.step in (self._first, self._run.steps)
        odd = not record.updated or record.evaluation_loss is not None
        return is_end or odd or record.step % every == 0

    def _show(self, record: Record, left_s: float) -> None:
        steps, expected = self._run.steps, self._expected
        line = line_of(record, steps=steps, left_s=left_s, expected=expected)
        if self._run.telling.in_place and record.evaluation_loss is None:
            print(f"\r{line}{_CLEAR}", end="", file=self._stream, flush=True)
            self._in_line = True
        else:
            start = f"\r{_CLEAR}" if self._in_line else ""
            print(start + line, file=self._stream, flush=True)
            self._in_line = False
