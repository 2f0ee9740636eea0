"""What a column of plans has in common: the blocks' times and bytes, each computed once.

A block's cost depends on a few hundred distinct combinations of the mesh and the micro-batch, and
on the options that reach inside a layer; everything else of a plan only combines them. `tables`
computes them for many rows at once, `Tables.of` hands out those of some rows and options.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.layers import LayerTimes, layer_times
from meshwright.cost.memory import LAYER_FIELDS, LayerBytes, layer_bytes
from meshwright.plan.distinct import distinct, narrow
from meshwright.plan.stages import StageLayers, representative_stages, stage_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.layers import BlockTime
    from meshwright.cost.memory import MemoryStack
    from meshwright.plan.job import Job

Nested = TypeVar("Nested")
_ONE = np.zeros(1, dtype=np.int64)

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
    """Times, bytes and the layers of the representative ranks, for rows of plans with options.

    Columns of `times` and `kept` have an entry for each distinct combination along the last axis,
    `place` says which is a row's; options lie along the axis before it, which has length 1 where
    they do not matter. Columns of `stages` have the plans' own rows.
    """

    times: LayerTimes
    kept: LayerBytes
    place: NDArray[np.int64]
    stages: tuple[StageLayers, ...]

    def of(self, rows: NDArray[np.int64], options: NDArray[np.int64]) -> Tables:
        """Some rows under some of the options, the rows no longer shared."""
        place = self.place[rows]

        def combination(column: Any) -> Any:
            if np.ndim(column) == 0:
                return column
            if column.ndim == 2 and len(column) > 1:
                column = column[options]
            return column[..., place] if column.shape[-1] > 1 else column

        def own(column: Any) -> Any:
            return column[..., rows] if np.ndim(column) and column.shape[-1] > 1 else column

        return Tables(
            times=_each(self.times, combination),
            kept=_each(self.kept, combination),
            place=np.arange(len(rows)),
            stages=_needed(_each(self.stages, own)),
        )


def tables(job: Job, calibration: Calibration, stack: MemoryStack) -> Tables:
    """The tables of the job's plans, whose columns have shape (rows,) and (options, 1)."""
    names = sorted({*TIME_FIELDS, *LAYER_FIELDS})
    columns = {name: np.asarray(getattr(job.plan, name)) for name in names}
    across = {name: c for name, c in columns.items() if c.ndim == 1}
    first, place = distinct(*across.values()) if across else (_ONE, _ONE)
    few = {name: c[np.minimum(first, len(c) - 1)] for name, c in across.items()}
    short = job.with_plan(job.plan.replace(**few))
    ranks = representative_stages(job.plan, job.model)
    return Tables(
        times=_each(_busy(layer_times(short, calibration)), narrow),
        kept=_each(replace(layer_bytes(short, stack), operators=()), narrow),
        place=np.broadcast_to(place, (_num_rows(job),)),
        stages=tuple(stage_layers(job, rank) for _, rank in ranks),
    )


def _needed(stages: tuple[StageLayers, ...]) -> tuple[StageLayers, ...]:
    """The ranks without a fourth that is none but the first or the second."""
    return stages[:3] if not np.any(stages[-1].rank > 1) else stages


def _num_rows(job: Job) -> int:
    """Rows of the plans."""
    columns = (
        np.asarray(getattr(job.plan, f.name)) for f in fields(job.plan) if f.name != "layout"
    )
    return max((c.shape[-1] for c in columns if c.ndim), default=1)


def _each(value: Nested, change: Callable[[Any], Any]) -> Nested:
    """A dataclass of columns, nested in dataclasses and tuples, with every column changed."""
    if isinstance(value, tuple):
        return tuple(_each(item, change) for item in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _each(getattr(value, f.name), change) for f in fields(value)}
        return type(value)(**parts)
    return change(value)  # type: ignore[no-any-return]


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
