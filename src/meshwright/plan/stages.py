"""Which layers lie on which pipeline rank.

The model is cut into chunks in layer order; the schedule says which chunks a rank holds. With
`slots` = layers (+ embedding and head where those count as one), chunk c of C holds the slots
[start(c), start(c+1)): evenly, the first ones longer by one where C does not divide, unless the
plan gives the first or last rank its own number of layers or a whole layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.plan.distinct import distinct, pick
from meshwright.plan.plan import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

V_SCHEDULES = (int(Schedule.ZB_V), int(Schedule.V_HALF), int(Schedule.DUALPIPE_V))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """What one pipeline rank holds; scalars for one plan, columns for many.

    `counts[k]` is the number of blocks of kind `model.kinds[k]`, multi-token-prediction blocks
    included; `mtp` how many of them are MTP modules (each brings a projection and two norms).
    """

    rank: Any
    counts: tuple[Any, ...]
    embedding: Any
    head: Any
    mtp: Any

    @property
    def layers(self) -> Any:
        """Blocks of every kind together."""
        return sum(self.counts[1:], start=self.counts[0])

    def take(self, index: NDArray[np.int64] | int) -> StageLayers:
        """The rows at `index`, or the scalars of one row; what does not vary stays scalar."""
        return StageLayers(
            rank=_at(self.rank, index),
            counts=tuple(_at(c, index) for c in self.counts),
            embedding=_at(self.embedding, index),
            head=_at(self.head, index),
            mtp=_at(self.mtp, index),
        )


def _at(value: Any, index: NDArray[np.int64] | int) -> Any:
    """Rows of a column, or the scalar itself."""
    return value[index] if np.ndim(value) else value


def chunks_per_rank(plan: Plan) -> Any:
    """Model chunks that each pipeline rank holds: vpp, or 2 under V schedules and DualPipe."""
    twice = is_v_shaped(plan.schedule) | (plan.schedule == int(Schedule.DUALPIPE))
    return np.where(twice, 2, plan.vpp)


def num_chunks(plan: Plan) -> Any:
    """Distinct chunks that the model is cut into (DualPipe holds each of its pp chunks twice)."""
    return np.where(
        plan.schedule == int(Schedule.DUALPIPE), plan.pp, plan.pp * chunks_per_rank(plan)
    )


def is_v_shaped(schedule: Any) -> Any:
    """True where rank 0 holds both the first and the last chunk."""
    schedule = np.asarray(schedule)
    return (
        (schedule == V_SCHEDULES[0]) | (schedule == V_SCHEDULES[1]) | (schedule == V_SCHEDULES[2])
    )


def chunk_on(plan: Plan, stage: Any, index: int) -> Any:
    """The chunk that rank `stage` holds as its number `index` (0-based, in the order of use)."""
    looped = np.asarray(stage) + index * np.asarray(plan.pp)
    if index == 0:
        return looped
    turned = 2 * plan.pp - 1 - stage
    mirrored = np.where(plan.schedule == int(Schedule.DUALPIPE), plan.pp - 1 - stage, looped)
    return np.where(is_v_shaped(plan.schedule), turned, mirrored)


def representative_stages(plan: Plan, model: Model | None = None) -> tuple[tuple[str, Any], ...]:
    """Ranks of which one is the fullest: the first, the second, the last, and one between.

    The first holds the embedding and most micro-batches in flight, the second is the fullest of
    the ranks with neither end, the last holds head and loss. With the `model` given, "middle" may
    be the fourth (`_middle_rank`). Names and rank numbers or columns.
    """
    pp = np.asarray(plan.pp)
    ranks = (("first", np.zeros_like(pp)), ("second", np.minimum(1, pp - 1)), ("last", pp - 1))
    if model is None or plan.layout is not None:
        return ranks
    middle = _middle_rank(model, plan)
    return (*ranks, ("middle", middle)) if np.any(middle > 1) else ranks


def _middle_rank(model: Model, plan: Plan) -> Any:
    """A rank further on that may be fuller than the second; where there is none, a rank below 2.

    Where the model begins with several layers of another kind (dense before routed ones), the
    second may hold some of them: then the first rank without any. Where a rank holds one chunk
    from each end and the last chunks are the shorter ones: the first rank without such a chunk.
    """
    pp = np.asarray(plan.pp)
    leading = model.runs[0].count if len(model.runs) > 1 else 0
    starts = [_layer_range(model, plan, rank + 0 * pp)[0] for rank in range(leading + 1)]
    clear = sum((start < leading) * 1 for start in starts)
    chunks = num_chunks(plan)
    ends = np.asarray(plan.embedding_in_split, dtype=np.int64) + plan.loss_in_split
    rest = (model.num_hidden_layers + ends) % chunks
    folded = is_v_shaped(plan.schedule) | (np.asarray(plan.schedule) == int(Schedule.DUALPIPE))
    short = np.where(folded & (rest > 0) & (chunks - rest < pp), chunks - rest, 0)
    return np.minimum(np.maximum(clear, short), pp - 1)


def stage_layers(job: Job, stage: Any) -> StageLayers:
    """Blocks of each kind, embedding and head on pipeline rank `stage` (a number or a column)."""
    plan = job.plan
    if plan.layout is not None or _is_scalar(plan, stage):
        return _stage_layers(job.model, plan, np.asarray(stage))
    keys = _keys(plan, stage)
    first, inverse = distinct(*keys.values())
    shape = np.broadcast_shapes(*(np.shape(k) for k in keys.values()))
    few = {name: pick(k, first, shape) for name, k in keys.items()}
    rank = few.pop("stage")
    return _stage_layers(job.model, plan.replace(**few), rank).take(inverse)


def all_stage_layers(job: Job) -> tuple[StageLayers, ...]:
    """`stage_layers` of every pipeline rank of one plan."""
    ranks = np.arange(int(job.plan.pp))
    every = _stage_layers(job.model, job.plan, ranks)
    return tuple(every.take(rank) for rank in range(ranks.size))


def chunk_layers(model: Model, plan: Plan) -> tuple[int, ...]:
    """Decoder layers of every chunk of one plan, in model order."""
    chunks = np.arange(int(num_chunks(plan)))
    lo, hi = _layer_range(model, plan, chunks)
    return tuple(int(n) for n in np.broadcast_to(hi - lo, chunks.shape))


def _keys(plan: Plan, stage: Any) -> dict[str, Any]:
    """The fields that decide the split."""
    names = (
        "pp",
        "vpp",
        "schedule",
        "first_stage_layers",
        "last_stage_layers",
        "embedding_in_split",
        "loss_in_split",
    )
    return {name: np.asarray(getattr(plan, name)) for name in names} | {"stage": np.asarray(stage)}


def _is_scalar(plan: Plan, stage: Any) -> bool:
    """True when every field that decides the split is one value."""
    return all(np.ndim(value) == 0 for value in _keys(plan, stage).values())


def _stage_layers(model: Model, plan: Plan, stage: NDArray[np.int64]) -> StageLayers:
    """`stage_layers` without looking for equal rows."""
    per_rank, chunks = chunks_per_rank(plan), num_chunks(plan)
    counts = [np.zeros(np.shape(stage), dtype=np.int64) for _ in model.kinds]
    embedding = head = np.zeros(np.shape(stage), dtype=bool)
    for index in range(int(np.max(per_rank))):
        chunk = chunk_on(plan, stage, index)
        held = index < per_rank
        lo, hi = _layer_range(model, plan, chunk)
        counts = [
            c + np.where(held, n, 0)
            for c, n in zip(counts, _kinds_between(model, lo, hi), strict=True)
        ]
        embedding = embedding | (held & (chunk == 0))
        head = head | (held & (chunk == chunks - 1))
    counts, mtp = _with_mtp(model, counts, head)
    return StageLayers(
        rank=stage[()],
        counts=tuple(c[()] for c in counts),
        embedding=embedding[()],
        head=head[()],
        mtp=mtp[()],
    )


def _with_mtp(model: Model, counts: list[Any], head: Any) -> tuple[list[Any], Any]:
    """Counts with the multi-token-prediction blocks, which stay beside the head."""
    extra = [sum(r.count for r in model.mtp if r.block == kind) for kind in model.kinds]
    counts = [c + np.where(head, n, 0) for c, n in zip(counts, extra, strict=True)]
    return counts, np.where(head, sum(extra), 0)


def _layer_range(model: Model, plan: Plan, chunk: Any) -> tuple[Any, Any]:
    """First layer of a chunk and the one after its last."""
    layers = model.num_hidden_layers
    if plan.layout is not None:
        ends = np.concatenate([[0], np.cumsum(plan.layout)])
        index = np.clip(chunk, 0, len(plan.layout) - 1)
        return np.minimum(ends[index], layers), np.minimum(ends[index + 1], layers)
    offset = np.asarray(plan.embedding_in_split, dtype=np.int64)
    lo, hi = _slot(model, plan, chunk), _slot(model, plan, chunk + 1)
    return np.clip(lo - offset, 0, layers), np.clip(hi - offset, 0, layers)


def _slot(model: Model, plan: Plan, chunk: Any) -> Any:
    """First slot of a chunk; slots are layers, and embedding and head where they count."""
    several = np.asarray(plan.pp) > 1
    first = np.where(several, plan.first_stage_layers, 0)
    last = np.where(several, plan.last_stage_layers, 0)
    ends = np.asarray(plan.embedding_in_split, dtype=np.int64) + plan.loss_in_split
    middle = np.maximum(model.num_hidden_layers + ends - first - last, 0)
    per_rank = chunks_per_rank(plan)
    before_first, before_last = _end_chunks_before(plan, chunk)
    before_first = np.where(first > 0, before_first, 0)
    before_last = np.where(last > 0, before_last, 0)
    own = per_rank * ((first > 0).astype(np.int64) + (last > 0))
    middle_chunks = np.maximum(num_chunks(plan) - own, 1)
    return (
        _share(first, per_rank, before_first)
        + _share(last, per_rank, before_last)
        + _share(middle, middle_chunks, chunk - before_first - before_last)
    )


def _end_chunks_before(plan: Plan, chunk: Any) -> tuple[Any, Any]:
    """How many chunks before `chunk` lie on the first rank, and how many on the last."""
    pp = np.asarray(plan.pp)
    folded = is_v_shaped(plan.schedule)
    first = np.where(folded, np.clip(chunk, 0, 1) + (chunk > 2 * pp - 1), (chunk + pp - 1) // pp)
    last = np.where(folded, np.clip(chunk - (pp - 1), 0, 2), chunk // pp)
    return first, last


def _share(total: Any, parts: Any, before: Any) -> Any:
    """Items in the first `before` of `parts` shares of `total`, the first shares being longer."""
    return before * (total // parts) + np.minimum(before, total % parts)


def _kinds_between(model: Model, lo: Any, hi: Any) -> list[Any]:
    """Layers of each kind with lo <= index < hi."""
    kinds = model.kinds
    if len(kinds) == 1:
        return [hi - lo]
    layers = model.layers
    tables = [np.cumsum([0, *(block == kind for block in layers)]) for kind in kinds]
    return [table[hi] - table[lo] for table in tables]
