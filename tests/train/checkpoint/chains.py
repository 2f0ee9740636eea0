"""A run that goes on under another plan after every step, beside one that never stopped."""

from __future__ import annotations

import logging
from typing import Any

import torch._dynamo  # noqa: F401 - an optimizer does, which would cost every forked rank 5 s
import torch.distributed as dist

from meshwright.plan.plan import Plan, Recompute, Schedule
from meshwright.train.checkpoint import Every, Saver, latest, restore, state_of
from meshwright.train.model.tiny import tiny_config
from meshwright.train.optimizer import build
from meshwright.train.settings import Recipe
from meshwright.train.step import train_step
from meshwright.train.verify.comparing import engine_of, micro_batches
from meshwright.train.verify.islands import wide
from meshwright.train.verify.reference import Batch, batches

ROWS, SEQ_LEN, CLIP_NORM = 8, 16, 0.5

PLANS = {  # all of 4 ranks
    "fsdp4": Plan(dp=4, zero_stage=3),
    "tp2 fsdp2": Plan(tp=2, dp=2, zero_stage=3, sequence_parallel=True),
    "pp2 fsdp2": Plan(pp=2, vpp=2, dp=2, zero_stage=3),
    "tp2 pp2 v": Plan(pp=2, tp=2, schedule=int(Schedule.ZB_V), sequence_parallel=False),
    "cp2 fsdp2": Plan(cp=2, dp=2, zero_stage=1, recompute=int(Recompute.FULL)),
    "ep2 hsdp": Plan(dp=4, ep=2, dp_replicate=2, zero_stage=3),
    "ep4 tp2": Plan(dp=2, tp=2, ep=4, zero_stage=3),
    "ep2 etp2": Plan(dp=4, ep=2, etp=2, zero_stage=2),
    "pp2 ep2": Plan(pp=2, dp=2, ep=2, vpp=2, zero_stage=3),
}
DENSE = ("fsdp4", "tp2 pp2 v", "cp2 fsdp2", "pp2 fsdp2", "tp2 fsdp2")
ROUTED = ("ep2 hsdp", "ep2 etp2", "pp2 ep2", "ep4 tp2")


def chain(family: str, names: tuple[str, ...], folder: str) -> list[float]:
    """The losses of a run that saves after every step and goes on under the next plan."""
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    config = tiny_config(family, layers=4)
    data = _data(config, len(names))
    losses = []
    with wide():
        for step, name in enumerate(names):
            # another seed each time: nothing but the checkpoint can carry values over
            engine = engine_of(config, PLANS[name], seq_len=SEQ_LEN, seed=step)
            optimizers = build(engine, Recipe(learning_rate=1e-2))
            if step:
                _go_on(engine, optimizers, folder, step)
            losses.append(_step(engine, optimizers, data[step]))
            saver = Saver(folder, every=Every(steps=1), keep=2)
            state = state_of(engine.stages, optimizers.parts)
            saver.save(state, step + 1, {"config": config.to_dict()})
            saver.close()
    return losses


def resumed_alone(family: str, folder: str, *, step: int) -> float:
    """The loss of one more step on one rank."""
    config = tiny_config(family, layers=4)
    with wide():
        engine = engine_of(config, Plan(), seq_len=SEQ_LEN, seed=99)
        optimizers = build(engine, Recipe(learning_rate=1e-2))
        _go_on(engine, optimizers, folder, step)
        return _step(engine, optimizers, _data(config, step + 1)[step])


def straight(family: str, steps: int, *, plan: Plan | None = None) -> list[float]:
    """The losses of the run that never stops, on one rank."""
    config = tiny_config(family, layers=4)
    with wide():
        engine = engine_of(config, plan or Plan(), seq_len=SEQ_LEN, seed=0)
        optimizers = build(engine, Recipe(learning_rate=1e-2))
        return [_step(engine, optimizers, batch) for batch in _data(config, steps)]


def _go_on(engine: Any, optimizers: Any, folder: str, step: int) -> None:
    found = latest(folder, group=dist.group.WORLD)
    assert found.folder is not None
    restored = restore(found.folder, engine.stages, optimizers.parts, is_verified=True)
    assert restored.step == step


def _data(config: Any, steps: int) -> list[Batch]:
    return batches(config, rows=ROWS, seq_len=SEQ_LEN, steps=steps)


def _step(engine: Any, optimizers: Any, batch: Batch) -> float:
    outcome = train_step(engine, optimizers, micro_batches(engine, batch), clip_norm=CLIP_NORM)
    assert outcome.updated
    return outcome.loss
