"""The critical path of a rank, as kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.trace.columns import Left

# Kinds of stretches: what the path went through.
COMPUTE = "compute"
COMMUNICATION = "communication"  # as long as the fastest of its like took
COMMUNICATION_WAIT = "communication_wait"  # what a collective took longer than that
MEMORY = "memory_copy"
LOADING = "data_loading"  # the host in the data loader, or in preprocessing
HOST = "host"  # the host between calls
LAUNCH = "host_launch"  # the host in a call that launches
LATENCY = "launch_latency"  # from a call to the start of what it launched
SYNCHRONIZATION = "synchronization"  # from the end of the device's work to the host's going on
ALLOCATION = "malloc"
DEPENDENCY = "device_dependency"  # the device waits, and no row of the trace says for what
KINDS = (
    COMPUTE,
    COMMUNICATION,
    COMMUNICATION_WAIT,
    MEMORY,
    LOADING,
    HOST,
    LAUNCH,
    LATENCY,
    SYNCHRONIZATION,
    ALLOCATION,
    DEPENDENCY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One stretch of the path: what kind of work (one of `KINDS`) and its name in the trace."""

    kind: str
    name: str
    start_us: float  # since the window began
    dur_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The chain of work and waits that the window's length hangs on; its parts sum to the window.

    The window are `steps` device-following steps, `first_step` the first of them (the whole span of
    the device where nothing marks steps). `by_kind_us` sums the path over the window by kind.
    `what_if_us` says how long a step would take on this rank if something took no time, by a replay
    of all else: "communication", "communication_wait" (collectives as fast as the fastest of their
    like), "group <name>" (collectives of a process group), "memory_copy", "data_loading" and what
    else the trace names of the host ("checkpoint", "gc", "compile", "evaluation", "logging",
    "profiler"), "host_launch" (all of the host's work but loading), "host_pauses" (pauses of at
    least a millisecond between calls), "synchronization", "malloc". A key is there where the window
    has such time; `step_us` is the mean step that they are to be held against.
    """

    window_us: float
    by_kind_us: Mapping[str, float]
    what_if_us: Mapping[str, float]
    longest: tuple[Stretch, ...]  # the longest stretches
    steps: int = 1
    first_step: str = ""
    step_us: float = 0.0
    left: tuple[Left, ...] = ()
