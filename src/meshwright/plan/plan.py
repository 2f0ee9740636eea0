"""How a model is trained: one `Plan`, or a column of them.

Every field holds one value or a NumPy column of values; columns broadcast against each other. The
axes are those of a device mesh, fastest first: tp, cp, (ep inside dp), dp, pp. Choices are integer
enumerations so that they fit in columns.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.base.noun import dataclass

IntColumn = int | NDArray[np.int64]
BoolColumn = bool | NDArray[np.bool_]
FloatColumn = float | NDArray[np.float64]


class Schedule(IntEnum):
    """Order of forward and backward passes over the pipeline's stages."""

    GPIPE = 0
    ONE_F_ONE_B = 1  # with vpp > 1: interleaved 1F1B (arXiv 2104.04473)
    ZB_H1 = 2  # zero bubble, memory of 1F1B (arXiv 2401.10241)
    ZB_V = 3  # two chunks a rank in a V (arXiv 2405.15362), activation memory of 1F1B
    V_HALF = 4  # the same paper's half-memory schedule
    DUALPIPE = 5  # DeepSeek-V3 section 3.2.1: two directions, parameters held twice
    DUALPIPE_V = 6  # its one-copy V-shaped half
    ZB_H2 = 7  # zero bubble, twice the memory of 1F1B (arXiv 2401.10241, ZB-2p)


class ContextParallel(IntEnum):
    """How attention sees keys and values of other context-parallel ranks."""

    RING = 0  # point-to-point ring, zig-zag balanced
    ALL_GATHER = 1
    ULYSSES = 2  # all-to-all over heads
    HIERARCHICAL = 3  # all-to-all inside `cp_inner`, ring across


class Recompute(IntEnum):
    """What is recomputed in the backward pass."""

    NONE = 0
    SELECTIVE = 1  # the modules in `recompute_modules`
    FULL = 2  # whole layers: `recompute_layers` a stage (0 = all), block or uniform method


class RecomputeModule(IntFlag):
    """Modules that selective recompute can cover (Megatron's names)."""

    CORE_ATTENTION = 1
    MLP = 2
    NORM = 4
    MOE_ACTIVATION = 8
    MOE = 16
    SHARED_EXPERTS = 32
    MLA_UP_PROJECTION = 64
    ALTERNATE_MATMULS = 128  # torchtitan's op-level policy: save attention and every second matmul


class Precision(IntEnum):
    """Arithmetic of the matrix products."""

    FP32 = 0
    BF16 = 1
    FP16 = 2
    FP8 = 3
    MXFP8 = 4
    NVFP4 = 5


PEAK_NAME = {
    Precision.FP32: "fp32",
    Precision.BF16: "bf16",
    Precision.FP16: "fp16",
    Precision.FP8: "fp8",
    Precision.MXFP8: "mxfp8",
    Precision.NVFP4: "nvfp4",
}


class Optimizer(IntEnum):
    """Optimizer; the value keys its state bytes in cost/memory."""

    ADAM = 0
    ADAM_8BIT = 1
    ADAFACTOR = 2
    MUON = 3
    SGD = 4
    SGD_MOMENTUM = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """One way to lay a model over the GPUs, or a column of ways.

    Mesh. `dp` is the number of model replicas that read different data, num_gpus / (tp*pp*cp).
    `ep` and `etp` fold over tp*cp*dp as in Megatron: expert data parallelism is
    tp*cp*dp / (ep*etp). `dp_replicate` (HSDP) divides the sharding group dp*cp.

    Sharding. `zero_stage` 1 shards optimizer states, 2 gradients too, 3 parameters too (FSDP);
    `reshard_after_forward` False keeps ZeRO-3's parameters gathered from forward to backward.

    Stages. Layers are split evenly over pp*vpp chunks unless `first_stage_layers` or
    `last_stage_layers` (per pipeline rank, 0 = even) or, for one plan only, `layout` (layers per
    chunk in model order) says otherwise. `embedding_in_split` and `loss_in_split` count embedding
    and head as one layer each when splitting.
    """

    tp: IntColumn = 1
    pp: IntColumn = 1
    vpp: IntColumn = 1
    cp: IntColumn = 1
    ep: IntColumn = 1
    etp: IntColumn = 1
    dp: IntColumn = 1
    dp_replicate: IntColumn = 1
    cp_inner: IntColumn = 1

    micro_batch_size: IntColumn = 1
    schedule: IntColumn = int(Schedule.ONE_F_ONE_B)
    first_stage_layers: IntColumn = 0
    last_stage_layers: IntColumn = 0
    layout: tuple[int, ...] | None = None
    embedding_in_split: BoolColumn = False
    loss_in_split: BoolColumn = False

    zero_stage: IntColumn = 1
    reshard_after_forward: BoolColumn = True
    sequence_parallel: BoolColumn = True
    context_parallel: IntColumn = int(ContextParallel.RING)
    vocab_parallel: BoolColumn = True  # embedding and head split over tp
    loss_parallel: BoolColumn = True  # cross-entropy on split logits
    loss_chunks: IntColumn = 1  # logits materialised in this many slices
    fused_loss: BoolColumn = False  # no fp32 copy of the logits
    vocab_over_pipeline: BoolColumn = False  # vocabulary parallelism over pp (arXiv 2411.05288)
    vocab_interlaced: BoolColumn = False  # its passes stop all stages (section 5.1)
    padded_vocab_size: IntColumn = 0  # rows of embedding and head with padding; 0 = not stated

    recompute: IntColumn = int(Recompute.NONE)
    recompute_modules: IntColumn = int(RecomputeModule.CORE_ATTENTION)
    recompute_layers: IntColumn = 0
    recompute_uniform: BoolColumn = False  # uniform method: checkpoint every recompute_layers
    distribute_saved: BoolColumn = False  # checkpoints split over tp (Megatron)

    precision: IntColumn = int(Precision.BF16)
    param_bytes: IntColumn = 2  # resident weights used by the products
    grad_bytes: IntColumn = 4  # gradient accumulation buffer
    reduce_bytes: IntColumn = 4  # gradient reduction on the wire
    master_weights: BoolColumn = True  # separate fp32 copy held by the optimizer
    optimizer: IntColumn = int(Optimizer.ADAM)
    optimizer_state_bytes: IntColumn = 4  # width of each optimizer moment

    flash_attention: BoolColumn = True
    offload_optimizer: FloatColumn = 0.0  # share of optimizer states on the host
    offload_activations: FloatColumn = 0.0  # share of saved activations on the host
    offload_params: BoolColumn = False

    overlap_grad_reduce: BoolColumn = True
    overlap_param_gather: BoolColumn = True
    overlap_tp: BoolColumn = False
    overlap_pp: BoolColumn = True
    overlap_ep: BoolColumn = False
    cuda_graph: BoolColumn = False
    compile: BoolColumn = False

    lora_rank: IntColumn = 0  # 0 = every parameter trains
    lora_all_linear: BoolColumn = True  # False: attention projections only
    base_weight_bits: IntColumn = 0  # QLoRA: width of frozen weights, 0 = param_bytes

    def __len__(self) -> int:
        """Number of rows; 1 for a plan of scalars."""
        values = (getattr(self, name) for name in self.__slots__ if name != "layout")
        return max([1, *(value.size for value in values if isinstance(value, np.ndarray))])

    def __repr__(self) -> str:
        """What differs from the defaults, one plan in the words of a plan.toml."""
        values = (getattr(self, f.name) for f in fields(self) if f.name != "layout")
        sizes = [np.size(value) for value in values if np.ndim(value)]
        if any(size != 1 for size in sizes):
            return f"Plan({max(sizes):,} rows)"
        from meshwright.plan.words import plan_words

        return f"Plan({', '.join(f'{name}={value!r}' for name, value in plan_words(self).items())})"

    def replace(self, **changes: Any) -> Plan:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def row(self, index: int) -> Plan:
        """The plan in row `index`, as Python scalars."""
        names = (f.name for f in fields(self) if f.name != "layout")
        return Plan(**{n: _scalar(getattr(self, n), index) for n in names}, layout=self.layout)

    def take(self, indices: NDArray[np.int64]) -> Plan:
        """The rows at `indices`; scalar fields stay scalar."""
        columns: dict[str, Any] = {
            f.name: value[indices]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray) and value.ndim
        }
        return replace(self, **columns)


def _scalar(value: Any, index: int) -> Any:
    """Element `index` of a column, or the scalar itself."""
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 or value.size == 1 else value[index].item()
    return value
