"""What a step would take if some operations took what they usually take.

The method is that of arXiv 2505.05713 (equations 1, 4 and 5; checked against the figures published
with its artifact): in the ideal step every compute takes the mean of its kind over all workers,
microbatches and steps, every transfer the median of its kind; slowdown is the actual step over the
ideal one, both replayed without gaps, mean over steps. A share of the slowdown is explained by a
group of operations as far as it goes away when only they become ideal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.pipeline.alike import (
    alike_microbatches,
    alike_stages,
    of_other_stages,
    of_other_workers,
)
from meshwright.diagnose.pipeline.graph import COMPUTES, SYNCED, graph_of
from meshwright.diagnose.pipeline.replay import steps_us, work_us

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.pipeline.graph import Graph
    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.table import Table

    Mask = NDArray[np.bool_]

LOCAL = (*COMPUTES, "gc", "optimizer")  # kinds that a worker does alone
SLOWEST = 0.03  # share of the workers that "the slowest" means
STAGES_SHOWN = 16
WORKERS_SHOWN = 4
SUSPECTS = 32  # stages, and data-parallel ranks, that are looked at one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A run that can be replayed: its table, graph, work and the ideal work, [nodes, dps, steps].

    `kinds` and `stages` are those of the nodes, `actual_us` the replayed steps.
    """

    table: Table
    graph: Graph
    work: Floats
    ideal: Floats
    kinds: NDArray[np.str_]
    stages: NDArray[np.int64]
    actual_us: Floats

    def with_(self, where: Mask, other: Floats) -> Floats:
        """Steps in which the work of some operations is another, shape [steps]."""
        return steps_us(self.graph, np.where(where, other, self.work))

    def back(self, where: Mask) -> Floats:
        """Steps in which everything is ideal but some operations as they were."""
        return steps_us(self.graph, np.where(where, self.work, self.ideal))

    def computes(self) -> Mask:
        """Which operations are computes, shape [nodes, 1, 1]."""
        found: Mask = np.isin(self.kinds, COMPUTES)[:, None, None]
        return found

    def worker(self, pp: int, dp: int) -> Mask:
        """Which operations are those of a worker, `dp` being an index, [nodes, dps, 1]."""
        own: Mask = (self.stages == pp)[:, None] & (np.arange(len(self.table.dps)) == dp)
        return own[:, :, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """How much of the slowdown a group of operations explains; times are seconds of a step.

    `tori` the actual step, `tideal` the ideal one, `trem` the actual one with the group ideal,
    `tadd` the ideal one with the group as it was; `rem` and `add` are the shares that follow.
    """

    trem: float
    tadd: float
    tori: float
    tideal: float
    rem: float
    add: float


def has_computes(table: Table) -> bool:
    """Whether there is something to replay."""
    return any(node.kind in COMPUTES for node in table.nodes)


def replay_of(table: Table) -> Replay | None:
    """The run made ready; None without computes, and where their order contradicts itself."""
    graph = graph_of(table) if has_computes(table) else None
    if graph is None:
        return None
    work = work_us(table, graph)
    kinds = np.array([node.kind for node in table.nodes])
    return Replay(
        table=table,
        graph=graph,
        work=work,
        ideal=_ideal(work, kinds),
        kinds=kinds,
        stages=np.array([node.pp for node in table.nodes], dtype=np.int64),
        actual_us=steps_us(graph, work),
    )


def slowdown(run: Replay) -> float | None:
    """Actual over ideal step, mean over steps."""
    ideal = float(steps_us(run.graph, run.ideal).mean())
    return float(run.actual_us.mean()) / ideal if ideal > 0 else None


def explained(run: Replay, where: Mask) -> Explained:
    """What some operations explain of the slowdown."""
    ori, ideal = run.actual_us.mean(), steps_us(run.graph, run.ideal).mean()
    rem, add = run.with_(where, run.ideal).mean(), run.back(where).mean()
    lost = float(ori - ideal) or math.inf
    return Explained(
        trem=float(rem) / 1e6,
        tadd=float(add) / 1e6,
        tori=float(ori) / 1e6,
        tideal=float(ideal) / 1e6,
        rem=float(ori - rem) / lost,
        add=float(add - ideal) / lost,
    )


def last_stage(run: Replay) -> Explained:
    """What the last stage explains: Ms."""
    return explained(run, (run.stages == run.stages.max())[:, None, None])


def slowest_workers(run: Replay) -> tuple[tuple[int, int], ...]:
    """(pp, dp index) of the 3 percent of the workers that slow the ideal step most, at least one.

    A worker's score is the lesser of what its stage and its data-parallel rank do to the ideal
    step when only they are as they were.
    """
    stages, dps = _suspects(run)
    by_stage = {s: run.back((run.stages == s)[:, None, None]).mean() for s in stages}
    column = np.arange(len(run.table.dps))[None, :, None]
    by_dp = {d: run.back(column == d).mean() for d in dps}
    scored = sorted((-min(by_stage[s], by_dp[d]), s, d) for s in stages for d in dps)
    workers = len(set(run.stages.tolist())) * len(run.table.dps)
    return tuple((s, d) for _, s, d in scored[: math.ceil(SLOWEST * workers)])


def _suspects(run: Replay) -> tuple[list[int], list[int]]:
    """The stages and data-parallel ranks that compute most, as many as are worth a replay."""
    own = run.computes()[:, 0, 0]
    stages = sorted(set(run.stages.tolist()))
    work = run.work[own].sum(axis=2)
    by_stage = [float(work[run.stages[own] == stage].sum()) for stage in stages]
    by_dp = np.max([work[run.stages[own] == stage].sum(axis=0) for stage in stages], axis=0)
    most_stages = np.argsort(by_stage)[::-1][:SUSPECTS]
    most_dps = np.argsort(by_dp)[::-1][:SUSPECTS]
    return sorted(stages[n] for n in most_stages), sorted(map(int, most_dps))


def of_workers(run: Replay, workers: tuple[tuple[int, int], ...]) -> Explained:
    """What these workers explain: Mw."""
    where = np.zeros((len(run.kinds), len(run.table.dps), 1), dtype=bool)
    for pp, dp in workers:
        where |= run.worker(pp, dp)
    return explained(run, where)


def what_ifs_us(run: Replay, slowest: tuple[tuple[int, int], ...]) -> dict[str, float]:
    """Change in words -> median step with it, microseconds, gaps between operations kept.

    What the replay does not explain of the measured step (hosts that launch late) stays as it is.
    """
    computes = run.computes()
    stages = sorted(set(run.stages.tolist()))
    out = {"every operation at the mean of its kind": steps_us(run.graph, run.ideal)}
    for pp in stages if 1 < len(stages) <= STAGES_SHOWN else ():
        own = (run.stages == pp)[:, None, None] & computes
        name = "last stage" if pp == stages[-1] else f"stage {pp}"
        out[f"{name} as fast as the rest"] = run.with_(own, of_other_stages(run, run.work, pp))
    out |= _of_slowest(run, slowest)
    out["stages alike"] = run.with_(computes, alike_stages(run, run.work))
    out["microbatches alike"] = run.with_(computes, alike_microbatches(run, run.work))
    free = np.zeros_like(run.work)
    messages = np.char.endswith(run.kinds, ("-send")) | np.char.endswith(run.kinds, "-recv")
    shared = np.isin(run.kinds, SYNCED)
    for name, which in (("pp", messages), ("dp", shared)):
        if which.any():
            out[f"{name} communication free"] = run.with_(which[:, None, None], free)
    if len(stages) > 1:
        out["no pipeline bubble"] = _without_bubble(run)
    gap = np.median(run.table.span_us) - np.median(run.actual_us)
    return {
        "no gaps between operations": float(np.median(run.actual_us)),
        **{name: max(float(np.median(us) + gap), 0.0) for name, us in out.items()},
    }


def _of_slowest(run: Replay, slowest: tuple[tuple[int, int], ...]) -> dict[str, Floats]:
    """Steps with slow workers as fast as the other ranks of their stage, one by one and at once."""
    if len(run.table.dps) < 2:
        return {}
    computes = run.computes()
    out: dict[str, Floats] = {}
    every = run.work.copy()
    for pp, dp in slowest:
        own, usual = run.worker(pp, dp) & computes, of_other_workers(run, run.work, pp, dp)
        every = np.where(own, usual, every)
        if len(out) < WORKERS_SHOWN:
            name = f"worker pp {pp} dp {run.table.dps[dp]} at the median"
            out[name] = run.with_(own, usual)
    if len(slowest) > 1:
        out[f"the {len(slowest)} slowest workers at the median"] = steps_us(run.graph, every)
    return out


def _ideal(work: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Every operation at the mean (computes) or the median (the others) of its kind."""
    ideal = np.empty_like(work)
    for kind in set(kinds.tolist()):
        own = kinds == kind
        ideal[own] = work[own].mean() if kind in LOCAL else np.median(work[own])
    return ideal


def _without_bubble(run: Replay) -> Floats:
    """Steps whose pipeline takes only what its busiest worker computes, shape [steps]."""
    computes = run.computes()[:, 0, 0]
    busy = np.stack(
        [
            run.work[computes & (run.stages == s)].sum(axis=0).max(axis=0)
            for s in sorted(set(run.stages.tolist()))
        ]
    ).max(axis=0)
    table = run.table
    first = table.start_us[computes].min(axis=(0, 1))
    last = table.end_us[computes].max(axis=(0, 1))
    shorter: Floats = run.actual_us - np.maximum(last - first - busy, 0.0)
    return shorter
