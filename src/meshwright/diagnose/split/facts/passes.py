"""Forward, backward and the optimizer, by the operators that launched the kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.intervals import (
    Spans,
    clip,
    inside,
    intersect,
    subtract,
    total,
    union,
)
from meshwright.diagnose.split.work import COMMUNICATION, COMPUTE, names_like
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import View
    from meshwright.diagnose.trace.columns import Longs

BACKWARD = re.compile(r"^autograd::engine::evaluate_function: ")
# What only a forward pass calls; in a backward pass it is there because of checkpointing.
FORWARD = re.compile(
    r"^aten::(linear|layer_norm|native_layer_norm|rms_norm|group_norm|batch_norm|embedding"
    r"|scaled_dot_product_attention|_scaled_dot_product_\w+_attention(_for_cpu)?|conv[123]d"
    r"|convolution|gelu|silu|relu|relu_|softmax|dropout|max_pool2d|native_batch_norm)$"
    r"|^(torch/utils/checkpoint\.py.*: (unpack_hook|recompute_fn|inner))",
)
FOREACH = re.compile(r"multi_?tensor|fused_?adam|fused_?optim", re.IGNORECASE)
ON_HOST = re.compile(r"cpu_?adam|cpu_?adagrad|cpu_?lion|ds_adam", re.IGNORECASE)
REDUCING = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)


def pass_facts(view: View) -> dict[str, float]:
    """Figures of the passes; what the trace's operators do not tell is left out."""
    return _optimizer(view) | _backward(view)


def _optimizer(view: View) -> dict[str, float]:
    spans = view.host.optimizer.spans
    if not spans:
        return {}
    kernels = view.launched_in(spans) & view.kernel
    found = {
        "optimizer_kernels": float(kernels.sum()),
        "optimizer_fused_kernels": float((kernels & view.named(FOREACH)).sum()),
        "optimizer_device_us": view.lasted_us(kernels),
        "optimizer_idle_us": total(intersect(view.all_idle(), spans)) / 1000,
        "optimizer_calls": float(view.host.optimizer.count),
    }
    on_host = view.marks(ON_HOST, Host.OPERATOR, Host.ANNOTATION, Host.PYTHON)
    if on_host:
        found["optimizer_host_us"] = total(clip(intersect(on_host, spans), *view.window)) / 1000
    return found


def _backward(view: View) -> dict[str, float]:
    backward = view.marks(BACKWARD, Host.OPERATOR)
    if not backward:
        return {}
    again = recomputed(view, backward)
    kernels = view.launched_in(backward) & (view.work.kind == COMPUTE)
    found = {
        "recompute_us": view.lasted_us(kernels & view.launched_in(again)),
        "backward_device_us": view.lasted_us(kernels),
    }
    tail = _reduction_tail_ns(view, kernels)
    return found if tail is None else found | {"grad_reduce_tail_us": tail / 1000}


def recomputed(view: View, backward: Spans) -> Spans:
    """When the host ran a forward pass again inside the backward pass.

    In each node of the backward pass, from the first to the last operator that only forward
    passes call: both of PyTorch's kinds of checkpointing run a block's forward at one go.
    """
    trace, operators = view.trace, view.trace.operators
    rows = np.flatnonzero(operators.kind != Host.ANNOTATION)
    rows = rows[names_like(trace.names, operators.name[rows], FORWARD)]
    rows = rows[inside(backward, operators.start_ns[rows])]
    start, end = operators.start_ns[rows], operators.end_ns[rows]
    node = np.searchsorted(backward.start, start, "right") - 1
    first = np.full(len(backward.start), np.iinfo(np.int64).max)
    last = np.full(len(backward.start), np.iinfo(np.int64).min)
    np.minimum.at(first, node, start)
    np.maximum.at(last, node, end)
    held = last > first
    return union(first[held], last[held])


def _reduction_tail_ns(view: View, kernels: Longs) -> int | None:
    """Exposed reductions after the last kernel of each step's backward pass."""
    device, steps = view.trace.device, view.steps
    reducing = (view.work.kind == COMMUNICATION) & view.named(REDUCING)
    if not reducing.any() or not len(steps):
        return None
    last = np.full(len(steps), np.iinfo(np.int64).max)
    done = np.flatnonzero(kernels & (steps.of_event >= 0))
    ends = np.zeros(len(steps), dtype=np.int64)
    np.maximum.at(ends, steps.of_event[done], device.end_ns[done])
    last[ends > 0] = ends[ends > 0]
    of = steps.of_event[reducing]
    start = np.maximum(device.start_ns[reducing], np.where(of >= 0, last[np.maximum(of, 0)], 0))
    kept = (of >= 0) & (device.end_ns[reducing] > start)
    tail = union(start[kept], device.end_ns[reducing][kept])
    return total(clip(subtract(tail, view.work.compute), *view.window))
