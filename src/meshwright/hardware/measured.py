"""What was measured on one machine: curves of its kernels, and host overheads.

`Curves` hang on the GPU of a cluster, collective curves on its link, `Overheads` on the cluster
itself; together they are the [measured] table of a cluster file (hardware/measured_table.py).
Where they are present the cost model uses them in place of data/efficiency.toml and of what was
fitted to published runs. `meshwright calibrate` measures all of it, traces of a run only a part.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware.curves import AttentionCurve, MatmulCurve  # noqa: TC001 - base.decode

if TYPE_CHECKING:
    from collections.abc import Mapping

OPERATORS = (
    *("norm", "residual", "rotary", "gate", "loss", "embedding"),
    *("accumulate", "update", "fresh"),
)
SHARES = (  # of cost's HardwareFit ("scale_out") and Stack, as traces of a run show them
    *("scale_out", "overlap_tp", "overlap_pp"),
    *("tp_rate", "dp_rate", "ep_rate", "p2p_rate"),
    *("elementwise", "optimizer", "step_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """A memory-bound kernel: what an empty one costs, and the share of the memory's rate."""

    launch_s: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCurve:
    """Seconds of a memory-bound piece of a model by the elements that it works on.

    Points in growing order, interpolated between: what a piece costs by element jumps where its
    tensors outgrow a cache, or the sizes that the allocator keeps at hand. Fewer elements than the
    first point cost as much as it, more than the last in proportion to it.
    """

    elements: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, elements: Any) -> Any:
        """Seconds for `elements`, a scalar or a column."""
        beyond = np.maximum(np.asarray(elements) / self.elements[-1], 1.0)
        return np.interp(elements, self.elements, self.seconds) * beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Both passes of one operator; a piece without a backward pass has the same curve twice."""

    forward: OperatorCurve
    backward: OperatorCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """How much faster a rank is while the other ranks of its machine rest; 1 = no difference."""

    matmul: float = 1.0
    attention: float = 1.0
    memory: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Kernels as measured while all `ranks` of the machine computed at once, `threads` to a rank.

    `matmul` and `attention` go by precision ("fp32", "bf16"). `pieces` has the names of
    `OPERATORS`, measured on elements of `piece_bytes`: "norm", "residual", "rotary", "gate" (the
    feed-forward's activation) and "embedding" count hidden elements, "loss" logits, "accumulate"
    and "update" (clipping and optimizer step) parameters; "fresh" is what a tensor costs more that
    the allocator must ask the system for. Where the table is `partial` any of `matmul`,
    `attention`, `memory` and `pieces` may be absent: what is known of the device stays in force.
    """

    date: str
    source: str
    partial: bool = False
    ranks: int = 1
    threads: int = 1
    matmul: Mapping[str, MatmulCurve] = field(default_factory=dict)
    attention: Mapping[str, AttentionCurve] = field(default_factory=dict)
    memory: MemoryCurve | None = None
    pieces: Mapping[str, Piece] = field(default_factory=dict)
    piece_bytes: int = 4
    alone: Alone = field(default_factory=Alone)

    def piece_s(self, name: str, elements: Any, *, width_bytes: Any, backward: bool) -> Any:
        """Seconds of one pass of a piece over `elements` that are `width_bytes` wide."""
        piece = self.pieces[name]
        curve = piece.backward if backward else piece.forward
        return curve.at(elements * (width_bytes / self.piece_bytes))

    def alone_at(self, ranks: int) -> Alone:
        """The speeds when `ranks` share the machine, between alone and all of those measured."""
        rest = max(self.ranks - ranks, 0) / max(self.ranks - 1, 1)
        return Alone(
            matmul=self.alone.matmul**rest,
            attention=self.alone.attention**rest,
            memory=self.alone.memory**rest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Host time of the software that was measured, in seconds; names as in cost's `Stack`.

    `host_serial` is true where the host computes itself, so that its time adds to the kernels'
    (a CPU), false where kernels run behind it (a GPU). `host_layer_s` is the host's forward time
    of one block, `host_backward` the backward time as a multiple of it; `host_tp_s`, `host_cp_s`
    and `host_fsdp_s` what the axis adds to one block's pass. `host_microbatch_s` is what a
    micro-batch costs outside the blocks, `host_p2p_s` one hand-over of a pipeline. `step_s` is a
    step's fixed time, `host_step_layer_s` what clipping and optimizer spend on one block's tensors
    whatever their size, `host_step_sharded_s` what they spend more on sharded ones. `attention_cp`
    is the speed of attention over a cut sequence against the fused kernel's, `overlap` the share of
    communication that hides behind computation.
    """

    host_serial: bool = False
    host_layer_s: float = 0.0
    host_backward: float = 1.1
    host_microbatch_s: float = 0.0
    host_tp_s: float = 0.0
    host_cp_s: float = 0.0
    host_fsdp_s: float = 0.0
    host_p2p_s: float = 0.0
    host_step_layer_s: float = 0.0
    host_step_sharded_s: float = 0.0
    step_s: float = 0.0
    attention_cp: float = 1.0
    overlap: float = 0.0
