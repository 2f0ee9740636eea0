"""The split of a step: parts in which every microsecond of the device is once, mean over ranks.

Parts are those of the attributions of all steps, as the step of median length has them. Compute is
shared out by the time of its kernels and communication by what each collective has exposed, since
kernels that ran at once cannot be told apart by subtraction.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.case import case_of, part_share
from meshwright.diagnose.ranks import rank_step_us
from meshwright.diagnose.split.classes import class_of
from meshwright.diagnose.split.collectives import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.rank import Collective, Rank

OWNERS = {  # parts of an attribution in words
    "exposed_memory": "copies that nothing hides",
    "idle_dataloader": "waiting for the data loader",
    "idle_host_late_launch": "host launched late",
    "idle_launch_latency": "launch latency",
    "idle_malloc_free": "allocating device memory",
    "idle_checkpoint": "writing a checkpoint",
    "idle_profiler": "the profiler itself",
    "idle_device_dependency": "waiting for other work of the device",
    "idle_back_to_back_under_5us": "gaps under 5 us between kernels",
    "idle_unknown_launch_not_in_trace": "launch not in the trace",
    "idle_tail_after_last_kernel": "after the last kernel",
    "bubble": "bubble of the schedule",
    "uneven": "waiting for slower stages and for transfers",
}
CLASSES = {
    "gemm": "matrix products",
    "conv": "convolutions",
    "copy_layout": "layout copies",
    "triton": "triton kernels",
}
KINDS = ("compute", "communication", "copies", "idle")
_KIND = {"compute": "compute", "exposed_comm": "communication", "exposed_memory": "copies"}
_NO_COMPUTE = frozenset({"comm", "memory"})  # classes of kernels
_LONGEST_US = 1e15  # thirty years: what is longer, or no number, is no step
_TINY = 0.0005  # of the step: parts below it stand together


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a step: one of `KINDS`, what or whose it is, how long, its share of the step."""

    kind: str
    name: str
    us: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Parts that sum to `step_us`; `is_step` is false where the traces mark no steps."""

    step_us: float
    parts: tuple[Part, ...]
    ranks: int
    steps: int
    is_step: bool

    def us_of(self, kind: str) -> float:
        """Microseconds of one kind."""
        return sum(part.us for part in self.parts if part.kind == kind)


def split_of(evidence: Evidence) -> Split | None:
    """The split of the evidence's step, or None where no time is accounted for."""
    case = case_of(evidence)
    if not 0 < case.step_us < _LONGEST_US:
        return None
    found = [(kind, name, us) for kind, name, us in _parted(case) if 0 < us < _LONGEST_US]
    found.sort(key=lambda one: (KINDS.index(one[0]), -one[2]))
    if not found:
        return None
    return Split(
        step_us=case.step_us,
        parts=tuple(
            Part(kind=kind, name=name, us=us, share=us / case.step_us) for kind, name, us in found
        ),
        ranks=len(case.ranks),
        steps=case.steps,
        is_step=all(rank.device_steps or rank.cpu_steps for rank in case.ranks),
    )


def rank_parts(rank: Rank) -> Mapping[str, float]:
    """Microseconds of one step of a rank by kind; empty where its time is not accounted for."""
    whole = rank.attribution
    if whole is None or not whole.window_us:
        return {}
    step_us = rank_step_us(rank)
    kinds = dict.fromkeys(KINDS, 0.0)
    for name in whole.parts_us:
        kinds[_KIND.get(name, "idle")] += step_us * part_share(whole, name)
    return kinds


def _parted(case: Case) -> Iterator[tuple[str, str, float]]:
    """Parts by kind and owner: compute by class of kernel, communication by axis or group."""
    for name, us in case.parts_us.items():
        if name == "compute":
            yield from (("compute", *one) for one in _shared(us, _classes(case)))
        elif name == "exposed_comm":
            yield from (("communication", *one) for one in _shared(us, _lines(case)))
        else:
            words = OWNERS.get(name, name.removeprefix("idle_").replace("_", " "))
            yield _KIND.get(name, "idle"), words, us


def _shared(us: float, weights: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """A time shared out by weights; what is tiny goes to "other"."""
    total = sum(weights.values())
    if total <= 0:
        yield "all", us
        return
    small = {n for n, weight in weights.items() if weight < _TINY * total or n == "other"}
    for name in weights.keys() - small:
        yield name, us * weights[name] / total
    yield "other", us * sum(weights[name] for name in small) / total


def _classes(case: Case) -> Mapping[str, float]:
    """Kernel time by class in words."""
    found: dict[str, float] = defaultdict(float)
    for rank in case.ranks:
        for name, us in _told_apart(rank).items():
            if name not in _NO_COMPUTE:
                found[CLASSES.get(name, name.replace("_", " "))] += max(us, 0.0)
    return found


def _told_apart(rank: Rank) -> Mapping[str, float]:
    """Kernel time by class, where kernels of class "other" have that of their finer kind."""
    found = defaultdict(float, rank.kernel_class_sum_us)
    for one in rank.top_kernels:
        if one.kind in CLASSES and one.kind != "other" and class_of(one.name) == "other":
            moved = min(one.sum_us, found["other"])
            found["other"] -= moved
            found[one.kind] += moved
    return found


def _lines(case: Case) -> Mapping[str, float]:
    """Exposed time of collectives by axis, else by group, and of what no collective names."""
    found: dict[str, float] = defaultdict(float)
    for rank in case.ranks:
        for one in rank.collectives:
            label = label_of(one.collective, one.kernel)
            found[f"{whose(one)} {label}".strip()] += max(one.exposed_us, 0.0)
    named = sum(found.values())
    exposed = sum(rank.gpu_span.exposed_comm_us for rank in case.ranks if rank.gpu_span)
    if exposed > named:
        found["unnamed"] += exposed - named
    return found


def whose(one: Collective) -> str:
    """The axis of a collective, else the description or the name of its group."""
    described = one.pg_desc if one.pg_desc != "undefined" else ""
    return one.axis or described or (f"group {one.pg_name}" if one.pg_name else "")
