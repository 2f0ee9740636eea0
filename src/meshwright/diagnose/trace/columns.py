"""What a trace file holds, as columns: one noun for device events, host operators, calls.

Times are nanoseconds since `Trace.origin_ns`, exact in every era: files state microseconds since
1970, since the quarter began, or since boot. Names are numbers into `Trace.names`, messages of
collectives into `Trace.messages`, shapes of operators into `Trace.shapes`; -1 means that the file
does not say. Rows of every table are sorted by their start, then by their end from last to first.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Ints = NDArray[np.int32]
    Bytes = NDArray[np.int8]
    Doubles = NDArray[np.float64]


class Device(IntEnum):
    """What a device did: category of a device event."""

    KERNEL = 0
    COPY = 1  # memcpy
    SET = 2  # memset


class Host(IntEnum):
    """What the host did: category of a host event."""

    OPERATOR = 0  # cpu_op
    ANNOTATION = 1  # user_annotation: ProfilerStep#7, enumerate(DataLoader)#..., Optimizer.step#...
    PYTHON = 2  # python_function
    OVERHEAD = 3  # the profiler's own work: buffers asked for and flushed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvents:
    """Kernels, copies and sets on devices; all columns have one length.

    `correlation` joins the call that launched it (`Calls.correlation`), `external` the operator
    that asked for it (`Operators.external`). `message` is that of a collective, `seq` its number in
    its process group. `bytes` is what a copy moved.
    """

    start_ns: Longs
    end_ns: Longs
    name: Ints
    kind: Bytes  # Device
    device: Ints
    stream: Ints
    correlation: Longs
    external: Longs
    message: Ints
    seq: Longs
    bytes: Longs

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls of the runtime and the driver on the host: launches, copies, allocations, waits."""

    start_ns: Longs
    end_ns: Longs
    name: Ints
    thread: Ints  # number of (process, thread) in the order of appearance
    correlation: Longs
    external: Longs

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Operators, annotations and long Python frames on the host."""

    start_ns: Longs
    end_ns: Longs
    name: Ints
    kind: Bytes  # Host
    thread: Ints
    external: Longs
    message: Ints
    seq: Longs
    shape: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Annotations as drawn on the timeline of a device. They are no work."""

    start_ns: Longs
    end_ns: Longs
    name: Ints
    device: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """What the allocator did, where memory was profiled: bytes gained (or freed, negative)."""

    at_ns: Longs
    bytes: Longs
    allocated_bytes: Longs  # in all after it; -1 unknown
    reserved_bytes: Longs
    device: Ints  # number of the device; -1 is the host's memory

    def __len__(self) -> int:
        return len(self.at_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a collective says of itself; "" and -1 where it does not.

    `collective` is PyTorch's word ("allreduce", "_allgather_base"); sizes are numbers of elements
    of `dtype` ("Float", "BFloat16") that go in and come out on one rank.
    """

    collective: str = ""
    group: str = ""  # process group name
    description: str = ""
    ranks: str = ""  # as printed, cut to 30 ranks by PyTorch
    group_size: int = -1
    dtype: str = ""
    in_elements: int = -1
    out_elements: int = -1
    source_rank: int = -1  # of a send or receive
    target_rank: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes and types of an operator's inputs, as recorded."""

    dims: tuple[Any, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group of the run; `ranks` are all of its members, in order."""

    name: str
    description: str
    ranks: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What the file says of the run. None, "" or empty where it does not.

    `base_ns` is what must be added to `Trace.origin_ns` for nanoseconds since 1970 (0 where the
    file counts from there itself). `own` is the file's "meshwright" entry: traces of `meshwright
    train` say there which device computed and what the plan was.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None
    gpu: str | None = None
    gpus: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    host: str = ""
    base_ns: int = 0
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    own: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Events, bytes or files that an analysis left out: how many, the time they stood for, why."""

    what: str
    count: int
    time_us: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's trace file as columns.

    `facts` tells what was counted and not kept, and is no loss of device time: Python frames too
    short to matter ("python_frames_short", "python_frames_short_us"), events apart by category.
    """

    file: str
    file_bytes: int
    json_bytes: int  # after decompression, as far as it was read
    events: int  # of every phase that the file holds
    bad_events: int  # that could not be read as events
    origin_ns: int
    names: tuple[str, ...]
    messages: tuple[Message, ...]
    shapes: tuple[Shape, ...]
    device: DeviceEvents
    calls: Calls
    operators: Operators
    allocations: Allocations
    meta: Meta
    left: tuple[Left, ...] = ()
    spans: Spans | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
