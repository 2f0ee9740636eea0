"""Everything that a run needs before its first step, put together for one rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from meshwright import __version__
from meshwright.base.noun import dataclass
from meshwright.data.shards.names import TOKENIZER
from meshwright.plan.job import num_microbatches
from meshwright.plan.words import plan_words
from meshwright.train.agreement import Agreement
from meshwright.train.building import blueprint_of, build, job_of
from meshwright.train.evaluation import Evaluation
from meshwright.train.feeding.feeder import Feeder
from meshwright.train.feeding.opening import open_training, shape_of
from meshwright.train.guard import Watchman
from meshwright.train.keeping import Began, Keeper
from meshwright.train.optimizer import Optimizers
from meshwright.train.optimizer import build as build_optimizers
from meshwright.train.tables import read_table
from meshwright.train.telling.profiling import Profiling
from meshwright.train.telling.progress import Progress

if TYPE_CHECKING:
    import torch

    from meshwright.plan.job import Job
    from meshwright.train.engine import Engine
    from meshwright.train.settings import Feed, Run, Spec
    from meshwright.train.tables import Table
    from meshwright.train.watch.heart import Heart


@dataclass(frozen=True, kw_only=True)
class Training:
    """The parts of a run on one rank, and where it begins."""

    run: Run
    engine: Engine
    optimizers: Optimizers
    feeder: Feeder
    evaluation: Evaluation
    keeper: Keeper
    agreement: Agreement
    watchman: Watchman
    profiling: Profiling
    progress: Progress
    heart: Heart
    began: Began


def prepare(spec: Spec, *, device: torch.device, heart: Heart, attempt: int) -> Training:
    """Builds all parts, and restores the last checkpoint where the run goes on from one."""
    job, run = job_of(spec), spec.run
    batch_size = job.workload.global_batch_size
    engine = build(blueprint_of(spec, job), run, device=device, table=_table(run, job))
    optimizers = build_optimizers(engine, run.recipe)
    shape = shape_of(engine, global_batch_size=batch_size, seed=run.seed)
    feeder = Feeder(
        open_training(run.feed, shape),
        device=device,
        global_batch_size=batch_size,
        prefetch=run.feed.prefetch,
    )
    facts = facts_of(spec, job)
    keeper = Keeper(run, engine=engine, optimizers=optimizers, feeder=feeder, facts=facts)
    with heart.phase("loading"):
        began = keeper.begin(wanted=run.resume or attempt > 0)
    progress = Progress(
        spec,
        began=began,
        is_first=dist.get_rank() == 0,
        world_size=dist.get_world_size(),
        positions=batch_size * job.workload.seq_len,
        attempt=attempt,
        facts=facts,
    )
    return Training(
        run=run,
        engine=engine,
        optimizers=optimizers,
        feeder=feeder,
        evaluation=Evaluation(engine, run.feed, shape, steps=run.steps),
        keeper=keeper,
        agreement=Agreement(),
        watchman=Watchman(run.guard),
        profiling=Profiling(spec, device=device, rank=dist.get_rank()),
        progress=progress,
        heart=heart,
        began=began,
    )


def facts_of(spec: Spec, job: Job) -> dict[str, Any]:
    """What a checkpoint and a board say of the run, as plain values."""
    return {
        "meshwright": __version__,
        "model": job.model.name,
        "config": spec.config,
        "plan": plan_words(job.plan),
        "seq_len": job.workload.seq_len,
        "global_batch_size": job.workload.global_batch_size,
        "seed": spec.run.seed,
        "steps": spec.run.steps,
        "data": spec.run.feed.source,
        "tokenizer": _tokenizer(spec.run.feed),
    }


def _table(run: Run, job: Job) -> Table | None:
    """The operations that replace the plan's schedule, if the run names some."""
    if run.schedule_table is None:
        return None
    return read_table(run.schedule_table, job.plan, microbatches=int(num_microbatches(job)))


def _tokenizer(feed: Feed) -> str | None:
    """Where the vocabulary of the data lies, for who exports the weights."""
    built = Path(feed.source) / TOKENIZER
    return str(built) if built.is_dir() else feed.tokenizer
