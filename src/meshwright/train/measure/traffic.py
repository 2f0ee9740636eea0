"""Every collective of this rank: calls and bytes by phase, axis and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from meshwright.base.noun import dataclass
from meshwright.train.adapters.collectives import collective_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.train.adapters.collectives import Call


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lane:
    """Where traffic flows: the phase of the step, the axis of the mesh, the kind of collective."""

    phase: str
    axis: str
    collective: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Calls of one rank, and bytes of the full tensors that they took or gave."""

    calls: float = 0
    bytes: float = 0

    def __add__(self, other: Flow) -> Flow:
        return Flow(calls=self.calls + other.calls, bytes=self.bytes + other.bytes)


class TrafficTracker(TorchDispatchMode):
    """Counts collectives while it is entered; groups of one rank move nothing and do not count.

    `phase` names the part of the step that runs. `seen(call, arguments)` is called for each.
    """

    def __init__(self, seen: Callable[[Call, Any], None] | None = None) -> None:
        super().__init__()
        self.phase = ""
        self.flows: dict[Lane, Flow] = {}
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        call = collective_of(func, args, named, result)
        if call is not None and call.group_size > 1:
            lane = Lane(phase=self.phase, axis=axis_of(call.group), collective=call.kind)
            flow = Flow(calls=1, bytes=call.size_bytes)
            self.flows[lane] = self.flows.get(lane, Flow()) + flow
            if self._seen:
                self._seen(call, args)
        return result


def axis_of(description: str) -> str:
    """The axis of the mesh that a process group's description names, "world" of the default one."""
    return "world" if description == "default_pg" else description.removeprefix("mesh_")


def by_axis(flows: Mapping[Lane, Flow]) -> dict[tuple[str, str], Flow]:
    """Flows by axis and collective, all phases together."""
    total: dict[tuple[str, str], Flow] = {}
    for lane, flow in flows.items():
        key = (lane.axis, lane.collective)
        total[key] = total.get(key, Flow()) + flow
    return total
