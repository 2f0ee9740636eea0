"""What stands between a plan and the GPU's memory, and between a search and its first plan.

The nearest misses with what would admit them, the smallest set of pins and bans to relax, and the
number of GPUs that would do.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from meshwright.cost.predict import evaluate
from meshwright.plan.plan import Recompute, RecomputeModule
from meshwright.plan.words import word
from meshwright.rules.rule import check, mask, pruning_rules
from meshwright.search.result import GIB, Miss, Relaxation
from meshwright.search.space import length, space, take
from meshwright.search.sweep import MEMORY_CODE, Aim, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.base.finding import Finding
    from meshwright.cost.calibration import Calibration
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.search.kept import Kept
    from meshwright.search.space import Options, Space
    from meshwright.search.sweep import Sweep

MAX_GROWTH = 1024  # times the GPUs asked for, before giving up on a minimum
MAX_GPUS = 1 << 20
WORTH_SAYING = 1e-3  # gain in step time below which a miss is not called faster
SAMPLE = 4096  # candidates looked at for the least illegal one
SHOWN = 3
MAX_SET = 2  # pins and bans relaxed together, before all of them are


def misses(
    job: Job, outcome: Sweep, settings: Options, limit_bytes: float, *, calibration: Calibration
) -> tuple[Miss, ...]:
    """Legal plans that do not fit, nearest first: such as would win, if any plan fits."""
    kept, front = outcome.misses, outcome.frontier
    if kept is None:
        return ()
    order = np.lexsort((kept.step_s, kept.upper_bytes))
    if front is not None:
        order = order[kept.step_s[order] < front.step_s[0]]
    return tuple(
        _miss(job, kept, index, settings, limit_bytes, outcome=outcome, calibration=calibration)
        for index in order[:SHOWN]
    )


def _miss(
    job: Job,
    kept: Kept,
    index: int,
    settings: Options,
    limit_bytes: float,
    *,
    outcome: Sweep,
    calibration: Calibration,
) -> Miss:
    """One plan of the misses with what would admit it."""
    one = job.with_plan(plan_at(settings.base, kept, index))
    over = float(kept.upper_bytes[index]) - limit_bytes
    step = float(kept.step_s[index])
    words = f"{over / GIB:.1f} GiB more memory per GPU would admit it"
    if outcome.frontier is not None:
        gain = float(outcome.frontier.step_s[0]) / step - 1
        if gain >= WORTH_SAYING:
            words += f", {100 * gain:.1f}% faster than the fastest that fits"
    elif found := remedies(one, limit_bytes, calibration):
        words += f", or {found[0]}"
    return Miss(
        job=one,
        upper_bytes=float(kept.upper_bytes[index]),
        over_bytes=over,
        step_time_s=step,
        remedy=words,
    )


def plan_at(base: Plan, kept: Kept, index: int) -> Plan:
    """Plan number `index` of a kept set, as scalars."""
    return base.replace(**{name: column[index].item() for name, column in kept.fields.items()})


def remedies(job: Job, limit_bytes: float, calibration: Calibration) -> list[str]:
    """Single changes of one plan, pinned or not, that are legal and make it fit; fastest first."""
    found = []
    for changes in _stronger(job.plan):
        other = job.with_plan(job.plan.replace(**changes))
        if check(other, pruning_rules()):
            continue
        cost = evaluate(other, calibration)
        if float(cost.upper_bytes) <= limit_bytes:
            found.append((float(cost.step_s), _wording(changes)))
    return [words for _, words in sorted(found)]


def _stronger(plan: Plan) -> list[Mapping[str, Any]]:
    """Changes of one plan that save memory: a field by one step, recompute and offload whole."""
    changes: list[Mapping[str, Any]] = []
    if plan.recompute == Recompute.NONE:
        norms = int(RecomputeModule.NORM)
        changes.append({"recompute": int(Recompute.SELECTIVE), "recompute_modules": norms})
    if plan.recompute != Recompute.FULL or plan.recompute_layers:
        changes.append({"recompute": int(Recompute.FULL), "recompute_layers": 0})
    if plan.micro_batch_size > 1 and plan.micro_batch_size % 2 == 0:
        changes.append({"micro_batch_size": int(plan.micro_batch_size) // 2})
    changes += [{"zero_stage": z} for z in range(int(plan.zero_stage) + 1, 4) if z != 2]
    if plan.offload_optimizer < 1:
        changes.append({"offload_optimizer": 1.0})
    if not plan.sequence_parallel:
        changes.append({"sequence_parallel": True})
    return changes


def _wording(changes: Mapping[str, Any]) -> str:
    """Changes as a user types them."""
    shown = {n: v for n, v in changes.items() if n != "recompute_layers"}
    texts = {n: word(n, value) for n, value in shown.items()}
    return " with ".join(
        f"{n} = {', '.join(v) if isinstance(v, list) else v}" for n, v in texts.items()
    )


def refusals(job: Job, candidates: Space) -> tuple[Finding, ...]:
    """What the rules have against the candidate that breaks fewest of them, from a sample.

    For a space without a legal plan. The first options stand for all; empty for an empty space.
    """
    mesh, batch = candidates.mesh, candidates.batch
    if not (length(mesh) and length(batch) and candidates.num_options):
        return ()
    pairs = np.linspace(0, length(mesh) * length(batch) - 1, SAMPLE).astype(np.int64)
    left, right = np.divmod(np.unique(pairs), length(batch))
    first = {n: c[0].item() for n, c in (candidates.inner | candidates.outer).items()}
    rows = take(mesh, left) | take(batch, right)
    base = candidates.settings.base.replace(**first)
    fired = mask(job.with_plan(base.replace(**rows)), pruning_rules())
    broken = sum(np.broadcast_to(m, len(left)).astype(np.int64) for m in fired.values())
    least = int(np.argmin(broken))
    plan = base.replace(**{n: c[least].item() for n, c in rows.items()})
    return tuple(check(job.with_plan(plan), pruning_rules()))


def relaxations(
    job: Job, settings: Options, *, limit_bytes: float, calibration: Calibration
) -> tuple[Relaxation, ...]:
    """The smallest sets of pins and bans whose removal admits plans, the most admitting first.

    Sets of one, then of `MAX_SET`, then all of them; empty when not even that admits a plan.
    """
    names = [("pin", n) for n in settings.pins] + [("ban", n) for n in settings.bans]
    sizes = [*range(1, min(MAX_SET, len(names)) + 1)]
    sizes += [len(names)] if len(names) > MAX_SET else []
    for size in sizes:
        trials = [
            _trial(job, s, settings, limit_bytes, calibration) for s in combinations(names, size)
        ]
        if admitted := [trial for trial in trials if trial.admits]:
            return tuple(sorted(admitted, key=lambda r: (-r.admits, r.constraint)))
    return ()


def _trial(
    job: Job,
    dropped: tuple[tuple[str, str], ...],
    settings: Options,
    limit_bytes: float,
    calibration: Calibration,
) -> Relaxation:
    """How many plans fit without these pins and bans; a free field goes back to its default."""
    pins = {n: v for n, v in settings.pins.items() if ("pin", n) not in dropped}
    bans = {n: v for n, v in settings.bans.items() if ("ban", n) not in dropped}
    defaults = type(settings.base)()
    freed = {n: getattr(defaults, n) for kind, n in dropped if kind == "pin"}
    relaxed = replace(settings, pins=pins, bans=bans, base=settings.base.replace(**freed))
    outcome = sweep(
        job,
        space(job.model, job.cluster, job.workload, relaxed),
        aim=Aim(limit_bytes=limit_bytes, keep=1),
        calibration=calibration,
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    example = plan_at(relaxed.base, outcome.best, 0) if outcome.best is not None else None
    words = " and the ".join(f"pin {n}" if kind == "pin" else f"ban on {n}" for kind, n in dropped)
    return Relaxation(constraint=words, admits=outcome.feasible, example=example)


def minimum_gpus(
    job: Job,
    settings: Options,
    outcome: Sweep,
    *,
    memory_share: float,
    calibration: Calibration,
) -> int | None:
    """The fewest GPUs on which a plan fits, of 2^k and 3 * 2^k nodes beyond those asked for.

    None when memory was not what stood in the way, or when even many times the GPUs do not help.
    """
    if not outcome.rejected[MEMORY_CODE]:
        return None
    per_node = job.cluster.gpus_per_node
    nodes = 1 << (job.cluster.num_nodes.bit_length() - 1)
    last = min(job.cluster.num_nodes * MAX_GROWTH, MAX_GPUS // per_node)
    while nodes <= last:
        for several in (nodes, nodes * 3 // 2 if nodes > 1 else nodes):
            if several > job.cluster.num_nodes and _fits(
                job, several * per_node, settings, memory_share, calibration
            ):
                return several * per_node
        nodes *= 2
    return None


def _fits(
    job: Job, num_gpus: int, settings: Options, memory_share: float, calibration: Calibration
) -> bool:
    """Whether any plan fits on this many GPUs."""
    cluster = replace(job.cluster, num_gpus=num_gpus)
    outcome = sweep(
        replace(job, cluster=cluster),
        space(job.model, cluster, job.workload, settings),
        aim=Aim(limit_bytes=cluster.gpu.memory_bytes * memory_share, keep=1, any_fits=True),
        calibration=calibration,
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.feasible > 0
