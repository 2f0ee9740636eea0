"""meshwright's own loop, all of it: feeding, agreement, metrics, guard, beats, progress.

    python train_meshwright.py CASE.json

Turns are taken where a step begins, in the heart; what a rank does before is `worker.main`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import train_turns as turns

from meshwright.train import loop, worker
from meshwright.train.settings import Spec, read_spec
from meshwright.train.telling.metrics import METRICS, read_metrics
from meshwright.train.watch.heart import VARIABLE, Heart
from meshwright.train.watch.signals import Stop


class Paced(Heart):
    """A heart that waits for our turn, and reads losses from metrics.jsonl when it is over."""

    def begin(self, turn: turns.Turns, spec: Spec) -> None:
        """Takes turns from now on."""
        self._pace, self._read = turn, Path(spec.run.out) / METRICS
        self._seen = 0

    def step(self, number: int) -> None:
        """Step `number` begins."""
        if self._pace.is_over:
            losses = [fields["loss"] for fields in read_metrics(self._read)]
            self._pace.losses, self._seen = losses[self._seen :], len(losses)
        self._pace.tick()
        super().step(number)


def main() -> None:
    case = turns.Case(sys.argv[1])
    worker.warm([case.spec])
    turn = turns.begin(case.ranks)
    spec = read_spec(Path(case.spec))
    beats = Path(spec.run.out) / "beats"
    beats.mkdir(parents=True, exist_ok=True)
    os.environ[VARIABLE] = str(beats)
    heart = Paced.here()
    assert isinstance(heart, Paced)
    heart.begin(turn, spec)
    stop = Stop()
    device = worker.join(spec.run)
    loop.train(spec, device=device, heart=heart, stop=stop)


if __name__ == "__main__":
    main()
