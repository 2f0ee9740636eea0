"""Names of the further figures of a rank (`Rank.facts`), which rules of causes read.

All are microseconds over the window of `Rank.attribution` unless told otherwise. What a trace
cannot tell is left out rather than 0, and a rule that misses its fact says nothing. "Idle in X" is
time of the device with nothing to do while the host was in X; where idle time has an owner in the
attribution already, it is a portion of that part.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS: Mapping[str, str] = MappingProxyType(
    {
        "kernels": "device kernels in the window (a count)",
        "median_kernel_us": "median length of a compute kernel",
        "loader_in_process_us": "of idle_dataloader: inside _SingleProcessDataLoaderIter",
        "preprocess_us": "of idle late launch: host in preprocess, collate, tokenize, transform, "
        "image or feature extractor frames or annotations",
        "h2d_exposed_us": "of exposed_memory: copies from host to device",
        "h2d_pageable_us": "of exposed_memory: copies from pageable host memory",
        "d2h_exposed_us": "of exposed_memory: copies from device to host",
        "h2d_calls": "copies from host to device (a count)",
        "sync_calls": "calls that wait for the device: cudaDeviceSynchronize, "
        "cudaStreamSynchronize, cudaEventSynchronize, aten::item, aten::_local_scalar_dense "
        "(a count, nested ones once)",
        "sync_idle_us": "of idle late launch and latency: gaps whose launch came after such a wait "
        "that ended in the gap or began in the work before it",
        "malloc_calls": "cudaMalloc, hipMalloc and their like (a count)",
        "free_calls": "cudaFree, hipFree and their like (a count)",
        "long_gap_us": "of idle late launch and latency: gaps of more than a millisecond each",
        "optimizer_kernels": "kernels launched inside Optimizer.step (a count)",
        "optimizer_device_us": "device time of these kernels (union)",
        "optimizer_idle_us": "idle in Optimizer.step",
        "optimizer_host_us": "operators on the CPU's tensors in Optimizer.step (CPUAdam, offload)",
        "recompute_us": "device time of forward kernels launched inside the backward pass by "
        "checkpointing (CheckpointFunctionBackward and their like)",
        "unfused_attention_us": "softmax kernels and the batched products beside them",
        "unfused_norm_us": "pow, mean, rsqrt, and mul kernels of norms that are not one kernel",
        "loss_us": "log_softmax, nll_loss, cross-entropy kernels, forward and backward",
        "fp32_matmul_us": "matrix products in fp32 without TF32",
        "checkpoint_us": "idle in torch.save, DCP save, state_dict frames or annotations",
        "gc_us": "idle in Python's garbage collection",
        "compile_us": "idle in compilation, autotuning or lazy loading (dynamo, inductor, triton, "
        "cudnn benchmark, cuModuleLoad)",
        "evaluation_us": "idle in evaluation or validation frames or annotations",
        "logging_us": "idle in logging frames or annotations (tensorboard, wandb, print)",
        "graph_launches": "cudaGraphLaunch, hipGraphLaunch (a count)",
        "graph_wait_us": "idle time that a kernel of a graph ended, launched before the gap began",
        "under_comm_us": "compute with communication beside it",
        "under_comm_slowdown": "mean length of kernels beside communication over that of the same "
        "kernels alone (a ratio, weighted by time)",
        "kernel_drift": "length of the same kernels in the last third of the window over that in "
        "the first (a ratio, weighted by time)",
        "dispatch_wait_us": "exposed notify and wait kernels of DeepEP and its like",
        "grad_reduce_tail_us": "exposed reductions of gradients after the last kernel of backward",
        "gather_exposed_us": "exposed all-gathers of parameters (FSDP, ZeRO-3)",
        "loader_calls": "batches asked of the data loader (a count, whole trace)",
        "loader_median_us": "median time that a batch was asked for",
        "loader_longest_us": "the longest",
        "sync_us": "the host in calls that wait for the device",
        "malloc_us": "the host in the allocator's calls to the driver",
        "copy_calls_blocked_us": "the host in copies that kept it for over 100 us",
        "d2h_calls": "copies from device to host (a count)",
        "h2d_bytes": "bytes copied from host to device",
        "d2h_bytes": "bytes copied from device to host",
        "h2d_pageable_calls": "copies from pageable host memory (a count)",
        "matmul_us": "matrix products",
        "fp8_matmul_us": "matrix products in fp8, by the names of kernels",
        "tf32_matmul_us": "in TF32",
        "bf16_matmul_us": "in bf16",
        "fp16_matmul_us": "in fp16",
        "optimizer_fused_kernels": "of optimizer_kernels: of many tensors each (a count)",
        "optimizer_calls": "calls of Optimizer.step (a count, whole trace)",
        "backward_device_us": "compute launched by the backward pass",
        "collective_calls": "communication kernels (a count)",
        "collective_median_us": "median length of a communication kernel",
        "small_collectives": "of collective_calls: of less than a MiB (a count)",
        "collective_bytes": "bytes of messages, where the trace tells them",
        "profiler_us": "idle in the profiler's own work",
        "step_variation": "standard deviation over mean of the device's steps (a ratio)",
        "first_step_over_rest": "the first step over the median of the others (a ratio)",
        "launch_queue_depth": "median number of queued launches when a device event begins",
        "launch_to_start_us": "median time from a launch to its start on the device",
        "allocations": "allocations of device memory (a count, whole trace)",
        "allocated_peak_bytes": "most device memory allocated at once",
        "reserved_at_peak_bytes": "device memory that the allocator held then",
        "reserved_peak_bytes": "most device memory that the allocator held",
        "devices": "devices with work in the file (a count)",
        "without_launch_share": "share of device time whose launch is not in the trace",
    }
)
