"""What a column of plans has in common: the blocks' times and bytes, each computed once.

A block's cost depends on a few hundred distinct combinations of the mesh, the micro-batch and the
options that reach inside a layer; everything else of a plan only combines them. `tables` holds
the combinations that occur in a column, `Tables.of` hands out those of some of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.layers import LayerTimes, layer_times
from meshwright.cost.memory import LAYER_FIELDS, LayerBytes, layer_bytes
from meshwright.plan.distinct import distinct, pick
from meshwright.plan.stages import StageLayers, representative_stages, stage_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.layers import BlockTime
    from meshwright.cost.memory import MemoryStack
    from meshwright.plan.job import Job

TIME_FIELDS = (  # of a plan, all that `layer_times` reads
    "tp",
    "cp",
    "cp_inner",
    "ep",
    "etp",
    "micro_batch_size",
    "sequence_parallel",
    "context_parallel",
    "vocab_parallel",
    "loss_parallel",
    "loss_chunks",
    "fused_loss",
    "recompute",
    "recompute_modules",
    "recompute_uniform",
    "precision",
    "flash_attention",
    "overlap_tp",
    "overlap_ep",
    "cuda_graph",
    "compile",
    "lora_rank",
    "lora_all_linear",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Distinct times and bytes, their place for every plan, and the layers of the three ranks.

    `time_at` and `bytes_at` broadcast against the plan's columns, as do the columns of `stages`.
    """

    times: LayerTimes
    time_at: NDArray[np.int64]
    bytes_kept: LayerBytes
    bytes_at: NDArray[np.int64]
    stages: tuple[StageLayers, ...]

    def of(self, rows: slice) -> tuple[LayerTimes, LayerBytes, tuple[StageLayers, ...]]:
        """Times, bytes and layers of some rows of the first dimension."""
        return (
            self.times.take(_cut(self.time_at, rows)),
            self.bytes_kept.take(_cut(self.bytes_at, rows)),
            tuple(_cut_stage(stage, rows) for stage in self.stages),
        )


def tables(job: Job, calibration: Calibration, stack: MemoryStack) -> Tables:
    """The tables of the job's column of plans, whose rows lie along the first dimension."""
    few_times, time_at = _few(job, TIME_FIELDS)
    few_bytes, bytes_at = _few(job, LAYER_FIELDS)
    stages = (stage_layers(job, rank) for _, rank in representative_stages(job.plan))
    return Tables(
        times=_busy(layer_times(few_times, calibration)),
        time_at=time_at,
        bytes_kept=layer_bytes(few_bytes, stack),
        bytes_at=bytes_at,
        stages=tuple(stages),
    )


def _few(job: Job, names: tuple[str, ...]) -> tuple[Job, NDArray[np.int64]]:
    """The job with one plan for each distinct combination of these fields, and who has which."""
    columns = {name: np.asarray(getattr(job.plan, name)) for name in names}
    first, inverse = distinct(*columns.values())
    shape = np.broadcast_shapes(*(c.shape for c in columns.values()))
    few = {name: pick(c, first, shape) for name, c in columns.items()}
    return job.with_plan(job.plan.replace(**few)), inverse


def _busy(times: LayerTimes) -> LayerTimes:
    """The times without their split by cause, which no search reads."""
    return LayerTimes(
        kinds=tuple(_bare(kind) for kind in times.kinds),
        embedding=_bare(times.embedding),
        head=_bare(times.head),
    )


def _bare(time: BlockTime) -> BlockTime:
    """Forward, backward, weight gradient and recompute alone."""
    return type(time)(
        forward_s=time.forward_s,
        backward_s=time.backward_s,
        weight_s=time.weight_s,
        recompute_s=time.recompute_s,
    )


def _cut(column: Any, rows: slice) -> Any:
    """Rows of a column; a column of one row and a number serve them all."""
    return column[rows] if np.ndim(column) and len(column) > 1 else column


def _cut_stage(stage: StageLayers, rows: slice) -> StageLayers:
    """A rank's layers in some rows."""
    return replace(
        stage,
        counts=tuple(_cut(count, rows) for count in stage.counts),
        embedding=_cut(stage.embedding, rows),
        head=_cut(stage.head, rows),
        mtp=_cut(stage.mtp, rows),
    )
