"""Evidence in words: what the traces show, where, and under which names."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from meshwright.base.units import format_duration
from meshwright.diagnose.causes.case import class_us, part_share
from meshwright.diagnose.diagnosis import Proof
from meshwright.diagnose.split.collectives import label_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Attribution, Rank

MOST_NAMES = 3
LONGEST_NAME = 120


def time(us: float) -> str:
    """Microseconds in words: "12.3 ms"."""
    return format_duration(us / 1e6)


def of_parts(case: Case, *names: str, what: str, events: Sequence[str] = ()) -> Proof:
    """How much of a step these parts of it are, on which rank most, and in which step of it."""
    us = case.part_us(*names)
    text = f"{what}: {time(us)} a step ({case.share(*names):.1%})"
    worst = max(range(len(case.ranks)), key=lambda n: _share(case.ranks[n].attribution, names))
    rank = case.ranks[worst]
    if len(case.ranks) > 1:
        text += f", most on rank {case.numbers[worst]}: {_share(rank.attribution, names):.1%}"
    step = worst_step(rank, *names)
    at = rank.device_steps[step] if step is not None and step < len(rank.device_steps) else None
    return Proof(
        text=text,
        events=named(events),
        start_us=at.start_us if at else None,
        dur_us=at.dur_us if at else None,
        ranks=(case.numbers[worst],) if len(case.ranks) > 1 else case.numbers,
    )


def worst_step(rank: Rank, *names: str) -> int | None:
    """Position of the step that has most of these parts."""
    shares = [_share(a, names) for a in rank.step_attributions]
    return shares.index(max(shares)) if shares else None


def _share(attribution: Attribution | None, names: Sequence[str]) -> float:
    if attribution is None or attribution.window_us <= 0:
        return 0.0
    return sum(part_share(attribution, name) for name in names)


def of_kernels(case: Case, *kinds: str) -> Proof:
    """Kernel time of these classes in a step, and the longest of these kernels by name."""
    text = f"kernels of class {', '.join(kinds)}: {time(class_us(case, *kinds))} a step"
    found = [k for k in case.ranks[0].top_kernels if k.kind in kinds]
    if found:
        first = found[0]
        text += (
            f"; the longest are {first.count} of {first.kind}, {first.pct_of_kernel_sum:.1f}% of "
            "all kernel time"
        )
    return Proof(text=text, events=named([k.name for k in found]), ranks=case.numbers[:1])


def of_collectives(case: Case, *, axis: str | None = None) -> Proof | None:
    """The collectives (of an axis) that stand exposed longest; None without any."""
    rank = case.ranks[0]
    found = [c for c in rank.collectives if axis is None or c.axis == axis]
    found.sort(key=lambda c: -c.exposed_us)
    if not found:
        return None
    first, names = found[0], [label_of(c.collective, c.kernel) for c in found]
    size = f" of {first.bytes / 1e6:.3g} MB" if first.bytes else ""
    text = (
        f"most exposed: {first.count} x {names[0]}{size}"
        f"{f' over {first.group_size} ranks' if first.group_size > 0 else ''}, median "
        f"{time(first.median_us)}, fastest {time(first.min_us)}, {time(first.exposed_us)} exposed"
    )
    if first.busbw_GBps_at_min:
        text += f"; at best {first.busbw_GBps_at_min:.3g} GB/s on the bus, waiting included"
    return Proof(text=text, events=named(names), ranks=case.numbers[:1])


def named(names: Sequence[str]) -> tuple[str, ...]:
    """The first few distinct names, long ones cut."""
    distinct = list(dict.fromkeys(name for name in names if name))[:MOST_NAMES]
    return tuple(n if len(n) <= LONGEST_NAME else f"{n[: LONGEST_NAME - 3]}..." for n in distinct)


def of_ranks(text: str, ranks: Sequence[int]) -> Proof:
    """A sentence about some ranks."""
    return Proof(text=text, ranks=tuple(ranks))


def some(*proofs: Proof | None) -> tuple[Proof, ...]:
    """Those that there are."""
    return tuple(p for p in proofs if p is not None)


def middle(values: Sequence[float]) -> float:
    """The median, 0 of nothing."""
    return median(values) if values else 0.0
