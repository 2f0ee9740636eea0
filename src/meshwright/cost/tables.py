"""What a column of plans has in common: the blocks' times and bytes, each computed once.

A block's cost depends on a few hundred distinct combinations of the mesh, the micro-batch and the
options that reach inside a layer; everything else of a plan only combines them. `tables` holds
what a column's plans need of them, `Tables.of` hands out the part of some of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from meshwright.cost.layers import LayerTimes, layer_times
from meshwright.cost.memory import LAYER_FIELDS, LayerBytes, layer_bytes
from meshwright.plan.distinct import distinct, narrow, pick
from meshwright.plan.stages import StageLayers, representative_stages, stage_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.layers import BlockTime
    from meshwright.cost.memory import MemoryStack
    from meshwright.plan.job import Job

Nested = TypeVar("Nested")

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
    """Times, bytes and the layers of the representative ranks, for every plan of a column.

    Their columns broadcast against the plan's, with length 1 along an axis that they do not depend
    on.
    """

    times: LayerTimes
    kept: LayerBytes
    stages: tuple[StageLayers, ...]

    def of(self, rows: slice) -> Tables:
        """Some rows of the first dimension."""

        def cut(column: Any) -> Any:
            return column[rows] if np.ndim(column) and len(column) > 1 else column

        return _each(self, cut)


def tables(job: Job, calibration: Calibration, stack: MemoryStack) -> Tables:
    """The tables of the job's column of plans, whose rows lie along the first dimension."""
    few, at = _few(job, TIME_FIELDS)
    times = _each(_busy(layer_times(few, calibration)), _placed(at))
    few, at = _few(job, LAYER_FIELDS)
    kept = _each(replace(layer_bytes(few, stack), operators=()), _placed(at))
    stages = tuple(stage_layers(job, rank) for _, rank in representative_stages(job.plan))
    return Tables(times=times, kept=kept, stages=stages)


def _placed(at: NDArray[np.int64]) -> Callable[[Any], Any]:
    """What hands the distinct values of a column out to the plans."""
    return lambda column: narrow(column[at]) if np.ndim(column) else column


def _each(value: Nested, change: Callable[[Any], Any]) -> Nested:
    """A dataclass of columns, nested in dataclasses and tuples, with every column changed."""
    if isinstance(value, tuple):
        return tuple(_each(item, change) for item in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _each(getattr(value, f.name), change) for f in fields(value)}
        return type(value)(**parts)
    return change(value)  # type: ignore[no-any-return]


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
