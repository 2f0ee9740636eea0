"""From what a run is told to the engine of this rank, with its first values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meshwright.base.errors import InvalidInput
from meshwright.plan.file import parse_job
from meshwright.plan.plan import ContextParallel
from meshwright.train.assemble import Blueprint, assemble
from meshwright.train.engine import Engine
from meshwright.train.mesh import Mesh
from meshwright.train.model.beginning import beginning
from meshwright.train.model.configuration import configuration_from_keys
from meshwright.train.model.initial import initialize
from meshwright.train.model.weights import load
from meshwright.train.numbers import numbers_of, uniform
from meshwright.train.settings import Run, Spec

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.train.tables import Table

PLAN_FILE = "plan.toml"  # in the folder of a run


def job_of(spec: Spec) -> Job:
    """The job of a run."""
    return parse_job(spec.plan_toml, file=PLAN_FILE, folder=spec.run.out)


def blueprint_of(spec: Spec, job: Job) -> Blueprint:
    """What is built, by the job and the run."""
    run, plan = spec.run, job.plan
    numbers = numbers_of(plan) if run.dtype is None else uniform(getattr(torch, run.dtype))
    return Blueprint(
        config=configuration_from_keys(spec.config),
        model=job.model,
        plan=plan,
        numbers=numbers,
        seq_len=job.workload.seq_len,
        cp_slices=slices_for(plan),
        experts="eager" if numbers.compute is torch.float64 else "grouped_mm",
        compile=run.compile or bool(plan.compile),
    )


def slices_for(plan: Plan) -> str:
    """How rows are cut over cp.

    Ring and all-gather have even work with head and tail; all-to-all gives every rank whole rows.
    """
    is_whole = int(plan.context_parallel) == ContextParallel.ULYSSES
    return "contiguous" if is_whole else "zigzag"


def engine_of(
    job: Job, *, device: torch.device, seed: int = 0, weights: str | None = None
) -> Engine:
    """The engine of a job on this rank, for a loop of one's own.

    Parameters are random by `seed`, or from a folder of safetensors. All ranks of the default
    process group, which are those of the plan, call this. InvalidInput where the weights are of
    another model.
    """
    began = beginning(job.model, weights=weights)
    if began.findings:
        raise InvalidInput(began.findings)
    run = Run(steps=0, out="", seed=seed, weights=weights)
    spec = Spec(plan_toml="", config=dict(began.keys), run=run)
    return build(blueprint_of(spec, job), run, device=device)


def build(
    blueprint: Blueprint, run: Run, *, device: torch.device, table: Table | None = None
) -> Engine:
    """The engine of this rank, its parameters random by the run's seed or from its weights.

    `table` replaces the plan's schedule. All ranks of the default process group call this.
    """
    mesh = Mesh(blueprint.plan, device_type=device.type)
    stages = assemble(blueprint, mesh)
    if run.weights is None:
        initialize(stages, blueprint.config, seed=run.seed, device=_home(blueprint.plan, device))
    else:
        home = _home(blueprint.plan, device)
        load(stages, run.weights, device=home, seed=run.seed)
    return Engine(stages, mesh, blueprint, device=device, table=table)


def _home(plan: Plan, device: torch.device) -> torch.device:
    """Where parameters are kept between steps."""
    return torch.device("cpu") if plan.offload_params else device
