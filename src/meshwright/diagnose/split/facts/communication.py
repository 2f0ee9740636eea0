"""Communication of the window beside compute, by what it carries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.classes import WAITING
from meshwright.diagnose.split.collectives import message_bytes
from meshwright.diagnose.split.facts.kernels import alike, slower
from meshwright.diagnose.split.intervals import clip, subtract, total, within
from meshwright.diagnose.split.work import COMMUNICATION, COMPUTE
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import Bools, View

DISPATCHING = re.compile(r"deep_?ep|\bep::|nvshmem|dispatch|combine", re.IGNORECASE)
SHARDED = re.compile(r"FSDP|fully_?shard|zero_?3|all_?gather_param|fetch_sub_module", re.IGNORECASE)
GATHERING = re.compile(r"all_?gather", re.IGNORECASE)
SMALL_BYTES = 2**20


def communication_facts(view: View) -> dict[str, float]:
    """Figures of communication; none where there is none."""
    mine = view.within & (view.work.kind == COMMUNICATION)
    if not mine.any():
        return {}
    device = view.trace.device
    length = device.end_ns - device.start_ns
    found = {
        "collective_calls": float(mine.sum()),
        "collective_median_us": float(np.median(length[mine])) / 1000,
        "under_comm_us": total(clip(view.work.overlap, *view.window)) / 1000,
    }
    return found | _slowed(view) | _small(view, mine) | _kinds(view, mine)


def _slowed(view: View) -> dict[str, float]:
    """Compute kernels beside communication against the same ones alone."""
    device = view.trace.device
    length = device.end_ns - device.start_ns
    beside = within(view.work.communication, device.start_ns, device.end_ns)
    computing = view.kernel & (view.work.kind == COMPUTE)
    ratio = slower(
        alike(view), length, computing & (2 * beside > length), computing & (beside == 0)
    )
    return {} if ratio is None else {"under_comm_slowdown": ratio}


def _small(view: View, mine: Bools) -> dict[str, float]:
    """Collectives of less than a MiB, where the trace tells sizes."""
    message = view.trace.device.message[mine]
    sizes = [message_bytes(m) for m in view.trace.messages]
    told = np.array([-1 if size is None else size for size in (*sizes, None)])[message]
    if (told < 0).all():
        return {}
    return {
        "small_collectives": float(((told >= 0) & (told < SMALL_BYTES)).sum()),
        "collective_bytes": float(told[told >= 0].sum()),
    }


def _kinds(view: View, mine: Bools) -> dict[str, float]:
    """Waits of expert dispatch, and gathers of parameters, as far as nothing hides them."""
    found = {}
    dispatching = mine & view.named(DISPATCHING)
    if dispatching.any():
        found["dispatch_wait_us"] = _exposed_us(view, dispatching & view.named(WAITING))
    sharded = view.marks(SHARDED, Host.ANNOTATION, Host.OPERATOR)
    if sharded:
        gathers = mine & (view.named(GATHERING) | _gathers(view))
        found["gather_exposed_us"] = _exposed_us(view, gathers)
    return found


def _gathers(view: View) -> Bools:
    """Which device events have the message of a gather: on ROCm all kernels have one name."""
    told = [bool(GATHERING.search(m.collective)) for m in view.trace.messages]
    return np.array([*told, False], dtype=np.bool_)[view.trace.device.message]


def _exposed_us(view: View, events: Bools) -> float:
    return total(subtract(view.spans(events), view.work.compute)) / 1000
