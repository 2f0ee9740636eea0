"""Small searches that the tests of this folder share."""

from __future__ import annotations

from collections import Counter

import numpy as np

from meshwright.api import cluster, load_model, options, workload
from meshwright.plan.job import Job
from meshwright.search.legality import groups, levels
from meshwright.search.space import length, space
from meshwright.search.sweep import Aim, _legal_rows, sweep


def search(
    model="llama-3-8b",
    *,
    gpus="H100:8",
    nodes=1,
    seq_len=4096,
    batch=64,
    pins=None,
    bans=None,
    exhaustive=False,
):
    """A job and its space."""
    the_model, the_cluster = load_model(model), cluster(gpus, nodes=nodes)
    work = workload(seq_len=seq_len, global_batch=batch)
    settings = options(pins or {}, bans or {}, exhaustive=exhaustive)
    job = Job(model=the_model, cluster=the_cluster, workload=work, plan=settings.base)
    return job, space(the_model, the_cluster, work, settings)


def swept(job, the_space, *, share=1.0, **asked):
    """The sweep of a space, with this share of the GPU's memory."""
    limit = job.cluster.gpu.memory_bytes * share
    block = {"block": asked.pop("block")} if "block" in asked else {}
    return sweep(job, the_space, aim=Aim(limit_bytes=limit, **asked), **block)


def legal_groups(job, the_space):
    """Every group of legal plans, with the rows that it comes from."""
    rules = levels(the_space)
    rows = _legal_rows(job, the_space, slice(0, length(the_space.mesh)), rules, Counter())
    return rows, groups(job, the_space, rows, rules, Counter())


def plan_in(group, base, place):
    """The plan at a place (outer, inner, row) of a group, as scalars."""
    fields = {}
    for table, index in zip((group.outer, group.inner, group.rows), place, strict=True):
        fields |= {name: column[index].item() for name, column in table.items()}
    return base.replace(**fields)


def places(group, count, seed=0):
    """Random places in a group."""
    rng = np.random.default_rng(seed)
    return [tuple(int(rng.integers(size)) for size in group.shape) for _ in range(count)]
