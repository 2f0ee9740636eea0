"""Loss on data that is not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meshwright.train.feeding.feeder import Feeder
from meshwright.train.feeding.opening import open_evaluation
from meshwright.train.step import summed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from meshwright.train.engine import Engine
    from meshwright.train.feeding.feeder import Fed
    from meshwright.train.feeding.opening import Shape
    from meshwright.train.settings import Feed


class Evaluation:
    """The same samples every time: the first `evaluate_steps` batches of the source, unshuffled.

    A context manager that stops making batches. Where the run asks for no evaluation it is never
    due.
    """

    def __init__(self, engine: Engine, feed: Feed, shape: Shape, *, steps: int) -> None:
        self._engine, self._feed, self._steps = engine, feed, steps
        self._feeder = _feeder(engine, feed, shape) if feed.evaluate_every else None

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after so many steps; always after the last."""
        every = self._feed.evaluate_every
        return bool(every) and (step % every == 0 or step == self._steps)

    def loss(self) -> float:
        """Mean cross-entropy of the labels that count, over all samples; the same on every rank."""
        share = torch.zeros((), device=self._engine.device, dtype=torch.float64)
        labels = torch.zeros_like(share)
        for fed in self._batches():
            share += self._engine.evaluate(fed.micro_batches)
            labels += fed.labels
        total, count = summed(self._engine, share), summed(self._engine, labels)
        return float(total) / max(float(count), 1.0)

    def _batches(self) -> Iterator[Fed]:
        """All of them, from the first on."""
        if self._feeder is None:
            return
        self._feeder.seek(0)
        while not self._feeder.is_over:
            yield self._feeder.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._feeder is not None:
            self._feeder.close()


def _feeder(engine: Engine, feed: Feed, shape: Shape) -> Feeder:
    size = shape.place.global_batch_size
    source = open_evaluation(feed, shape)
    samples = feed.evaluate_steps * size
    return Feeder(
        source,
        device=engine.device,
        global_batch_size=size,
        prefetch=feed.prefetch,
        end=samples if source.rows is None else min(samples, source.rows),
    )
