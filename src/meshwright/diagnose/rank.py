"""What is kept of a rank once its columns are gone. Field names are those of `diagnose --json`.

Times are microseconds, as in the trace files; shares are percent of the window that they stand in.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.diagnose.path.noun import Path
    from meshwright.diagnose.trace.columns import Left, Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Unions:
    """A window and how long the device spent in it on each kind of work, overlaps counted once.

    `busy_us` is any work at all, `idle_us` the rest. `exposed_comm_us` is communication with no
    compute beside it, `exposed_memory_us` copies with neither compute nor communication.
    """

    name: str = ""
    start_us: float = 0.0
    window_us: float
    compute_us: float
    comm_us: float
    memory_us: float
    overlap_comm_compute_us: float
    exposed_comm_us: float
    exposed_memory_us: float
    busy_us: float
    idle_us: float
    overlap_pct_of_comm: float | None
    compute_pct: float
    exposed_comm_pct: float
    exposed_memory_pct: float
    idle_pct: float
    n_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step by the host's clock (`cpu_dur_us`), and as the device lived it (`dur_us`)."""

    name: str
    start_us: float
    dur_us: float
    cpu_dur_us: float | None = None
    device_events: int = 0
    device_lag_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Every microsecond of a window in exactly one part.

    Parts are "compute", "exposed_comm", "exposed_memory" and idle time by its owner:
    "idle_dataloader", "idle_malloc_free", "idle_host_late_launch", "idle_launch_latency",
    "idle_back_to_back_under_5us", "idle_device_dependency", "idle_unknown_launch_not_in_trace",
    "idle_tail_after_last_kernel"; "idle_checkpoint" and "idle_profiler" where a trace names them.
    """

    window: str  # in words
    window_us: float
    parts_us: Mapping[str, float]
    parts_pct: Mapping[str, float]
    overlapped_comm_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel by its name, over the whole trace."""

    name: str
    kind: str  # class: gemm, attention, elementwise, ...
    sum_us: float
    count: int
    pct_of_kernel_sum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collectives of one kind, group, type and size on one rank.

    `busbw_GBps_at_min` is the rate on the bus in the fastest instance: with one rank only, even
    that may contain waiting.
    """

    collective: str
    pg_name: str
    pg_desc: str
    pg_ranks: str
    group_size: int
    dtype: str
    in_nelems: int
    out_nelems: int
    count: int
    sum_us: float
    min_us: float
    median_us: float
    exposed_us: float
    bytes: int | None
    busbw_GBps_at_median: float | None  # noqa: N815 - the name in the record
    busbw_GBps_at_min: float | None  # noqa: N815
    axis: str = ""  # of the plan: tp, cp, ep, dp, pp; "" unknown
    kernel: str = ""  # name of its kernel, or of the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulShape:
    """Matrix products of one shape: time of all their kernels, and the rate reached."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    dtype: str
    count: int
    kernel_us: float
    tflops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmuls:
    """Matrix products whose shapes the trace recorded."""

    ops: int
    ops_without_kernel: int
    kernel_us: float
    tflop: float
    mean_tflops: float
    shapes: tuple[MatmulShape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Fused attention of one shape: time of all its kernels, forward or backward.

    Whether a mask was causal is not recorded in sizes.
    """

    op: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    dtype: str
    backward: bool
    count: int
    kernel_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedShape:
    """Elementwise operators of one size: bytes that each reads and writes, time of all kernels."""

    op: str
    bytes: int
    count: int
    kernel_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Collective kernels of a rank one by one, in the order of their start.

    Times are nanoseconds since 1970 where the file tells them, else since the file's own origin.
    `signature` is a number into `signatures`, which names kernel and message alike on every rank;
    `stream` that of the device; `exposed_ns` what of it had no compute beside it.
    """

    signatures: tuple[str, ...]
    messages: tuple[Any, ...]  # Message of each signature, or None
    kernels: tuple[str, ...]  # kernel name of each signature
    signature: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    exposed_ns: NDArray[np.int64]
    seq: NDArray[np.int64]  # of its process group, -1 unknown
    stream: NDArray[np.int32]
    step: NDArray[np.int32]  # index into Rank.device_steps, -1 outside


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """What a picture shows of a rank: work on each stream, merged so that it stays small.

    `lane` is a number into `lanes` ("compute", "communication", "memory", "idle: <owner>"), `label`
    into `labels` (name of the longest event in the bar). Times as in `Instances`.
    """

    lanes: tuple[str, ...]
    labels: tuple[str, ...]
    lane: NDArray[np.int32]
    label: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank's trace, accounted for."""

    file: str
    file_bytes: int
    json_bytes: int
    events: int
    device_events: int
    bad_events: int
    meta: Meta
    left: tuple[Left, ...]
    gpu: str | None
    rank: int | None
    world_size: int | None
    backend: str | None
    nccl_version: str | None
    computes_on: str  # "device", or "host" where a run computed on CPUs and the trace shows it
    device_pids: Mapping[str, int] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    gpu_span: Unions | None = None  # None: the trace has no device events
    cpu_steps: tuple[Step, ...] = ()
    step_time_us_median: float | None = None
    step_window: Unions | None = None
    per_step: tuple[Unions, ...] = ()
    device_steps: tuple[Step, ...] = ()
    device_step_time_us_median: float | None = None
    device_events_without_launch_in_trace: int = 0
    device_events_launched_outside_steps: int = 0
    kernel_time_sum_us: float = 0.0
    kernel_class_sum_us: Mapping[str, float] = field(default_factory=dict)
    top_kernels: tuple[Kernel, ...] = ()
    top_operators: tuple[Kernel, ...] = ()  # on the host by own time, where no device worked
    idle_cause: Mapping[str, Any] = field(default_factory=dict)
    cpu: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    collectives: tuple[Collective, ...] = ()
    same_stream_overlap_us: float = 0.0
    attribution: Attribution | None = None
    step_attributions: tuple[Attribution, ...] = ()  # of each device-following step
    gemm: Matmuls | None = None
    attention: tuple[AttentionShape, ...] = ()
    moved: tuple[MovedShape, ...] = ()
    lost_shares_pct: Mapping[str, float] = field(default_factory=dict)
    principal: str = ""
    second: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)  # further figures that causes read
    instances: Instances | None = None
    bars: Bars | None = None
    path: Path | None = None
