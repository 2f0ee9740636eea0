"""What the host did: who of it keeps the device waiting, by the names of its events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.split.intervals import NOTHING, Spans, subtract, total, union
from meshwright.diagnose.split.work import names_like
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Calls, Longs, Operators, Trace

DATALOADER = re.compile(r"^enumerate\(DataLoader\)")
# Where PyTorch's own mark is missing: Lightning's and programs' marks, then frames.
OTHER_LOADERS = re.compile(
    r"^\W*(data_?load(er|ing)|(load|get|next|fetch)_?(data|batch)|batch[_-]?generator|data_?wait)\W*\d*$"
    r"|dataloader_next|TrainingEpochLoop\]\.train_data",
    re.IGNORECASE,
)
LOADER_FRAMES = re.compile(
    r"torch/utils/data/dataloader\.py\(\d+\): __next__|\(\d+\): (get_batch|next_batch|load_batch)$"
)
OPTIMIZER = re.compile(r"^Optimizer\.step")
SYNC = re.compile(r"Synchronize(Stream|Device|Event)?(WithTimeout)?(_ptsz|_v\d+)?$")
# Of device memory: pinning memory of the host (cudaHostAlloc) is no allocator of the device's.
MALLOC = re.compile(r"^(cuda|hip|mu)Malloc|^(cu|hip)Mem(Alloc|Create|Map|SetAccess|AddressReserve)")
FREE = re.compile(r"^(cuda|hip|mu)Free|^(cu|hip)Mem(Free|Unmap|Release)")

# Marks and operators, then Python frames ("file.py(line): function"), of what else may hold the
# device up. A frame says so by its function or by its file.
PHASES = {
    "preprocess": (
        r"pre_?process|collat(e|ion)|tokeniz|augment",
        r": \w*(pre_?process|collate|tokeniz|augment)\w*$|: _?batch_encode\w*$|: _?encode_plus$"
        r"|: (load|read|decode|open)_(image|video|audio|jpe?g)\w*$"
        r"|/(image_processing|feature_extraction|tokenization)_\w+\.py|torchvision/transforms/"
        r"|albumentations/",
    ),
    "checkpoint": (
        r"^\W*checkpoint\W*(#|$)|(save|sav|writ)(e|ing)?\w*[_ .:]?checkpoint"
        r"|checkpoint\w*[_ .:](save|write|saving)|torch\.save|\bdcp[._: ](async_)?save",
        r"torch/serialization\.py\(\d+\): save|distributed/checkpoint/\w+\.py\(\d+\): (async_)?save"
        r"|safetensors/\S+: save|: _?save_checkpoint$|: _?save_model$",
    ),
    "evaluation": (
        r"^\W*(evaluat(e|ion)|eval|validat(e|ion))(_\w+)?\b",
        r": (evaluate|validate|validation_step|evaluation_loop|evaluation_step)$",
    ),
    "profiler": (
        r"^\W*profiler?[._: ](stop|step|export)",
        r"torch/profiler/profiler\.py\(\d+\): (stop|_?stop_trace|_transit_action|start_trace)$"
        r"|torch/profiler/profiler\.py\(\d+\): export",
    ),
    "gc": (r"^\W*(gc|garbage[_ ]collect\w*)\b", r"<built-in function collect>|\bgc\.py\("),
    "compile": (
        r"^\W*(torch\.?_?dynamo|compile_fx|dynamo_timed|inductor_compile|triton_?compile|autotun)",
        r"torch/_dynamo/convert_frame|torch/_inductor/(compile_fx|codecache|async_compile|scheduler)"
        r"|triton/(compiler|runtime/autotuner|runtime/jit)\S*: (compile|_bench|do_bench)",
    ),
    "logging": (
        r"^\W*(log(ging)?|log_metrics|print)\b",
        r"torch/utils/tensorboard/|\bwandb/|\bmlflow/|logging/__init__\.py|: log_metrics$"
        r"|<built-in function print>",
    ),
}
COMPILE_CALLS = re.compile(r"^(cu|hip)(Module|Library)(Load|GetFunction)|Link(Create|Complete)")
_PHASES = {
    name: (re.compile(marks, re.IGNORECASE), re.compile(frames))
    for name, (marks, frames) in PHASES.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """Host events of one sort: their rows, and the moments of any of them."""

    rows: Longs
    spans: Spans

    @property
    def count(self) -> int:
        """How many events."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """What the host did that the device may wait for.

    `phases` are the moments of each of `PHASES` on the threads that work for the device; a phase
    that the trace does not name is left out.
    """

    dataloader: Doing
    sync_calls: Doing
    malloc: Doing
    free: Doing
    malloc_free: Doing
    optimizer: Doing
    phases: Mapping[str, Spans]


def host_of(trace: Trace) -> HostWork:
    """What the host did in a trace."""
    malloc, free = _calls(trace, MALLOC), _calls(trace, FREE)
    both = np.concatenate((malloc.rows, free.rows))
    return HostWork(
        dataloader=_loading(trace),
        sync_calls=_calls(trace, SYNC),
        malloc=malloc,
        free=free,
        malloc_free=_doing(trace.calls, both),
        optimizer=_doing(trace.operators, marked(trace, OPTIMIZER)),
        phases=_phases(trace),
    )


def named(trace: Trace, pattern: re.Pattern[str], *kinds: Host) -> Longs:
    """Rows of the host's events of these kinds whose names match."""
    operators = trace.operators
    rows = np.flatnonzero(np.isin(operators.kind, kinds))
    return rows[names_like(trace.names, operators.name[rows], pattern)]


def marked(trace: Trace, pattern: re.Pattern[str]) -> Longs:
    """Rows of PyTorch's own marks: annotations, in some releases operators."""
    rows = named(trace, pattern, Host.ANNOTATION)
    return rows if len(rows) else named(trace, pattern, Host.OPERATOR)


def _loading(trace: Trace) -> Doing:
    """Data loading by PyTorch's mark, else by programs' own marks, else by frames."""
    rows = marked(trace, DATALOADER)
    if len(rows) == 0:
        rows = named(trace, OTHER_LOADERS, Host.ANNOTATION)
    if len(rows) == 0:
        rows = _working(trace, named(trace, LOADER_FRAMES, Host.PYTHON))
    return _doing(trace.operators, rows)


def _calls(trace: Trace, pattern: re.Pattern[str]) -> Doing:
    return _doing(trace.calls, np.flatnonzero(names_like(trace.names, trace.calls.name, pattern)))


def _doing(events: Operators | Calls, rows: NDArray[np.int64]) -> Doing:
    return Doing(rows=rows, spans=union(events.start_ns[rows], events.end_ns[rows]))


def _phases(trace: Trace) -> dict[str, Spans]:
    """The moments of each phase that the trace names."""
    operators = trace.operators
    held = {}
    for name, (marks, frames) in _PHASES.items():
        rows = np.concatenate(
            (
                named(trace, marks, Host.ANNOTATION),
                _working(trace, named(trace, frames, Host.PYTHON)),
            )
        )
        spans = union(operators.start_ns[rows], operators.end_ns[rows])
        if spans:
            held[name] = spans
    loads = _calls(trace, COMPILE_CALLS).spans
    if loads:
        spans = held.get("compile", NOTHING)
        starts = np.concatenate((spans.start, loads.start))
        held["compile"] = union(starts, np.concatenate((spans.end, loads.end)))
    return held


def _working(trace: Trace, rows: Longs) -> Longs:
    """Those of the frames that run on threads that make calls or run operators.

    Loader threads and watchers have frames too, and hold nobody up.
    """
    operators = trace.operators
    busy = np.unique(trace.calls.thread)
    if len(busy) == 0:
        busy = np.unique(operators.thread[operators.kind == Host.OPERATOR])
    ours = np.isin(operators.thread[rows], busy)
    return rows[ours] if ours.any() else rows[:0]


def host_record(host: HostWork, busy: Spans) -> dict[str, dict[str, float]]:
    """`Rank.cpu`: count and union of each sort that the trace has; `busy` is the device."""
    found = {
        name: {"count": doing.count, "union_us": total(doing.spans) / 1000}
        for name in ("dataloader", "sync_calls", "malloc_free", "optimizer")
        if (doing := getattr(host, name)).count
    }
    if "dataloader" in found:
        beside = total(subtract(host.dataloader.spans, busy)) / 1000
        found["dataloader"]["gpu_idle_during_us"] = beside
    return found
