"""Categories of events, of every era and maker, and what each is to an analysis.

Words are those of Kineto's `ActivityType.cpp`, of PyTorch 1.9's exporter (capitalized) and of the
plug-ins for ROCm, XPU, MTIA, HPU and private devices.
"""

from __future__ import annotations

from enum import IntEnum

from meshwright.diagnose.trace.columns import Device, Host


class Part(IntEnum):
    """Where events of a category go."""

    DEVICE = 0
    CALL = 1
    HOST = 2
    SPAN = 3  # annotations drawn on the device's timeline: no work
    APART = 4  # known, and no part of the time: flows, the profiler's own spans, markers


DEVICE = {
    "kernel": Device.KERNEL,
    "Kernel": Device.KERNEL,
    "hpu_op": Device.KERNEL,
    "mtia_ccp_events": Device.KERNEL,  # or copies and waits: `CONTROL` and `is_copy` tell
    "gpu_memcpy": Device.COPY,
    "Memcpy": Device.COPY,
    "gpu_memset": Device.SET,
    "Memset": Device.SET,
}
CALLS = (
    "cuda_runtime",
    "cuda_driver",
    "Runtime",
    "hip_runtime",
    "hip_driver",
    "xpu_runtime",
    "xpu_driver",
    "mtia_runtime",
    "glow_runtime",
    "privateuse1_runtime",
    "privateuse1_driver",
)
HOST = {
    "cpu_op": Host.OPERATOR,
    "Operator": Host.OPERATOR,  # or an annotation: PyTorch 1.9 does not tell them apart
    "user_annotation": Host.ANNOTATION,
    "python_function": Host.PYTHON,
    "overhead": Host.OVERHEAD,
}
SPANS = ("gpu_user_annotation",)
APART = (
    "Trace",
    "ac2g",
    "async",
    "async_cpu_to_gpu",
    "async_gpu",
    "fwdbwd",
    "cuda_sync",
    "cuda_event",
    "cuda_profiler_range",
    "cpu_instant_event",
    "collective_comm",
    "external_correlation",
    "mtia_counters",
    "gpu_pm_counter",
)

CONTROL = ("mtia_ccp_events",)  # categories of a control processor, which waits as well
_WAITS = ("event_wait", "event_record")

PARTS: dict[str, tuple[Part, int]] = {
    **{word: (Part.DEVICE, kind) for word, kind in DEVICE.items()},
    **dict.fromkeys(CALLS, (Part.CALL, 0)),
    **{word: (Part.HOST, kind) for word, kind in HOST.items()},
    **dict.fromkeys(SPANS, (Part.SPAN, 0)),
    **dict.fromkeys(APART, (Part.APART, 0)),
}


def is_wait(name: str) -> bool:
    """Whether a control processor's event is no work."""
    return name in _WAITS


def is_copy(name: str) -> bool:
    """Whether a control processor's event is a copy."""
    return name.startswith("dma_")


def is_annotation(name: str) -> bool:
    """Whether an event of PyTorch 1.9's "Operator" category was asked for by the user's code."""
    return "#" in name
