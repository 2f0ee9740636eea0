"""The training loop: short enough to read, and to replace by your own.

Everything that it calls is public: `preparing.prepare` puts the parts together, `Feeder` gives
micro-batches, `train_step` makes an update of them, `Keeper` keeps checkpoints, `Progress` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.train import garbage
from meshwright.train.memory import peak_bytes
from meshwright.train.optimizer.rates import rate
from meshwright.train.preparing import prepare
from meshwright.train.step import train_step
from meshwright.train.telling.profiling import EVALUATING, FEEDING, SAVING, mark

if TYPE_CHECKING:
    import torch

    from meshwright.train.preparing import Training
    from meshwright.train.settings import Spec
    from meshwright.train.watch.heart import Heart
    from meshwright.train.watch.signals import Stop


def train(spec: Spec, *, device: torch.device, heart: Heart, stop: Stop, attempt: int = 0) -> bool:
    """Trains as the specification says, on every rank of the default process group.

    Goes on from the last checkpoint where the run says so, and in every attempt but the first.
    True when all steps are done, False when it was asked to stop before.
    """
    t = prepare(spec, device=device, heart=heart, attempt=attempt)
    step, is_stopped = t.began.step, False
    with garbage.held_off(), t.feeder, t.evaluation, t.keeper, t.progress, t.profiling:
        while step < t.run.steps and not is_stopped:
            step += 1
            heart.step(step)
            is_stopped = _step(t, step, device=device, is_asked=stop.asked)
            garbage.collect_at(step)
        with heart.phase("saving"):
            t.keeper.finish(step)
        t.progress.finish(feeder=t.feeder, keeper=t.keeper, device=device.type)
    return step >= t.run.steps


def _step(t: Training, step: int, *, device: torch.device, is_asked: bool) -> bool:
    """One step with all that belongs to it; True when any rank was asked to stop."""
    t.profiling.before(step)
    share = rate(t.run.recipe, step=step - 1, steps=t.run.steps)
    t.optimizers.scale_learning_rate(share)
    with mark(FEEDING):
        fed = t.feeder.next()
    t.agreement.say(stop=is_asked, wait_s=fed.wait_s, memory_bytes=peak_bytes(device))
    outcome = train_step(
        t.engine, t.optimizers, fed.micro_batches, clip_norm=t.run.recipe.clip_norm
    )
    heard = t.agreement.hear()
    measured = t.progress.measured(step, outcome=outcome, fed=fed, heard=heard, share=share)
    t.watchman.check(outcome, step=step)
    if t.evaluation.is_due(step):
        with t.heart.phase("evaluating"), mark(EVALUATING):
            measured = t.progress.evaluated(measured, t.evaluation.loss())
    if t.keeper.is_due(step) or heard.stop:
        with t.heart.phase("saving"), mark(SAVING):
            t.keeper.save(step)
            measured = t.progress.saved(measured)
    if t.profiling.after(step):
        t.progress.forget()
    t.progress.tell(measured)
    return heard.stop
