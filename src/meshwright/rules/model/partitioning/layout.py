"""Structure partitioning (5.1): splits that the plan states must add up to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.stages import chunks_per_rank, num_chunks
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
_MEGATRON_CONFIG = "Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)"
_MEGATRON_LAYOUT = (
    "Megatron-LM megatron/core/transformer/pipeline_parallel_layer_layout.py (0.19.2)"
)
_ENDS = ("pp", "first_stage_layers", "last_stage_layers")


class Middle(NamedTuple):
    """What lies between a stated first and last stage: whether stated, layers, stages."""

    stated: Any
    layers: Any
    stages: Any


def middle(job: Job) -> Middle:
    """The part of the model outside the stated first and last pipeline rank."""
    plan = job.plan
    first, last = plan.first_stage_layers, plan.last_stage_layers
    ends = np.asarray(first > 0, dtype=np.int64) + (last > 0)
    return Middle(
        stated=ends > 0,
        layers=job.model.num_hidden_layers - first - last,
        stages=plan.pp - ends,
    )


@rule(
    "MOD119",
    "Uneven pipeline: the middle layers do not divide",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=_ENDS,
    confidence="run",
    needs=("model",),
)
def middle_layers_divide(job: Job) -> Mask:
    """Beside a stated first or last stage the others share the remaining layers equally.

    Fails: plan(model="llama-3-8b", pp=4, first_stage_layers=6)
    Passes: plan(model="llama-3-8b", pp=4, first_stage_layers=5)
    """
    stated, layers, stages = middle(job)
    return stated & (stages > 0) & (layers % stages != 0)


@middle_layers_divide.message
def _(job: Job) -> str:
    _, layers, stages = middle(job)
    return f"{layers} layers remain for {stages} middle stages"


@middle_layers_divide.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    _, layers, stages = middle(job)
    field = "first_stage_layers" if job.plan.first_stage_layers > 0 else "last_stage_layers"
    stated, over = int(getattr(job.plan, field)), int(layers % stages)
    choices = (stated + over - int(stages), stated + over)
    return {field: tuple(n for n in choices if n > 0)}


@rule(
    "MOD120",
    "Uneven pipeline: layers left without stages, or stages without layers",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=_ENDS,
    confidence="run",
)
def stated_stages_add_up(job: Job) -> Mask:
    """First, last and middle stages must together hold every layer once, and none may be empty.

    Some Megatron versions let a sum beyond the number of layers through and build a deeper model.

    Fails: plan(num_hidden_layers=8, pp=3, nodes=6, first_stage_layers=5, last_stage_layers=4)
    Fails: plan(model="llama-3-8b", pp=2, first_stage_layers=10, last_stage_layers=10)
    Passes: plan(model="llama-3-8b", pp=2, first_stage_layers=15, last_stage_layers=17)
    """
    stated, layers, stages = middle(job)
    return stated & ((layers < 0) | ((layers > 0) != (stages > 0)))


@stated_stages_add_up.message
def _(job: Job) -> str:
    _, layers, stages = middle(job)
    plan = job.plan
    return (
        f"first {plan.first_stage_layers}, last {plan.last_stage_layers} of "
        f"{job.model.num_hidden_layers} layers leave {layers} for {stages} stages"
    )


stated_stages_add_up.fix(always(first_stage_layers=(0,), last_stage_layers=(0,)))


@rule(
    "MOD121",
    "Uneven pipeline: a stage's layers not divisible by its chunks",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=(*_ENDS, "vpp", "schedule"),
    confidence="run",
)
def stated_stages_divide_by_chunks(job: Job) -> Mask:
    """Beside stated end stages, every stage splits its layers equally over its chunks.

    Fails: plan(num_hidden_layers=30, pp=4, vpp=2, first_stage_layers=7, last_stage_layers=7)
    Passes: plan(num_hidden_layers=28, pp=4, vpp=2, first_stage_layers=6, last_stage_layers=6)
    """
    plan = job.plan
    stated, layers, stages = middle(job)
    chunks = chunks_per_rank(plan)
    ends = (plan.first_stage_layers % chunks != 0) | (plan.last_stage_layers % chunks != 0)
    inner = (stages > 0) & (layers // np.maximum(stages, 1) % chunks != 0)
    return stated & (plan.vpp > 1) & (ends | inner)


@stated_stages_divide_by_chunks.message
def _(job: Job) -> str:
    plan = job.plan
    _, layers, stages = middle(job)
    between = f", {layers // stages} in between" if stages > 0 else ""
    return (
        f"first {plan.first_stage_layers}, last {plan.last_stage_layers}{between}: "
        f"not all divide by {chunks_per_rank(plan)} chunks"
    )


stated_stages_divide_by_chunks.fix(always(vpp=(1,)))


@rule(
    "MOD123",
    "Two ways to unbalance the pipeline",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=(*_ENDS, "embedding_in_split", "loss_in_split"),
    confidence="run",
)
def one_way_to_unbalance(job: Job) -> Mask:
    """A stated first or last stage and slots for embedding and head both say what the ends hold.

    Fails: plan(pp=4, first_stage_layers=5, embedding_in_split=True)
    Passes: plan(pp=4, first_stage_layers=5)
    """
    plan = job.plan
    slots = np.logical_or(plan.embedding_in_split, plan.loss_in_split)
    return middle(job).stated & slots


@one_way_to_unbalance.message
def _(job: Job) -> str:
    plan = job.plan
    return (
        f"first_stage_layers = {plan.first_stage_layers}, last_stage_layers = "
        f"{plan.last_stage_layers} beside embedding_in_split = {bool(plan.embedding_in_split)}, "
        f"loss_in_split = {bool(plan.loss_in_split)}"
    )


@one_way_to_unbalance.fix
def _(job: Job) -> dict[str, tuple[bool, ...]]:
    slots = ("embedding_in_split", "loss_in_split")
    return {name: (False,) for name in slots if getattr(job.plan, name)}


@rule(
    "MOD125",
    "Layout not divisible by pp",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_LAYOUT,
    reads=("layout", "pp"),
    confidence="run",
)
def layout_divides_by_pp(job: Job) -> Mask:
    """A layout lists the chunks of the model in order, the same number for every rank.

    Fails: plan(layout=(8, 8, 8, 4, 4), pp=4)
    Passes: plan(layout=(8, 8, 8, 8), pp=4)
    """
    layout = job.plan.layout
    return layout is not None and len(layout) % np.asarray(job.plan.pp) != 0


@layout_divides_by_pp.message
def _(job: Job) -> str:
    return f"a layout of {len(job.plan.layout or ())} chunks on pp = {job.plan.pp} ranks"


@rule(
    "MOD126",
    "Layout does not describe the model",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_LAYOUT,
    reads=("layout",),
    confidence="run",
)
def layout_holds_every_layer(job: Job) -> Mask:
    """The chunks of a layout hold all layers of the model, each once.

    Fails: plan(model="llama-3-8b", layout=(8, 8, 8, 9), pp=4)
    Passes: plan(model="llama-3-8b", layout=(7, 9, 9, 7), pp=4)
    """
    layout = job.plan.layout
    if layout is None:
        return False
    return sum(layout) != job.model.num_hidden_layers or min(layout, default=0) < 0


@layout_holds_every_layer.message
def _(job: Job) -> str:
    layout = job.plan.layout or ()
    return f"the layout holds {sum(layout)} layers, the model {job.model.num_hidden_layers}"


@layout_holds_every_layer.fix
def _(job: Job) -> dict[str, tuple[tuple[int, ...], ...]]:
    chunks = max(len(job.plan.layout or ()), 1)
    each, longer = divmod(job.model.num_hidden_layers, chunks)
    return {"layout": ((each + 1,) * longer + (each,) * (chunks - longer),)}


@rule(
    "MOD127",
    "Layout contradicts vpp or the other split fields",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=(
        "layout",
        "pp",
        "vpp",
        "schedule",
        "first_stage_layers",
        "last_stage_layers",
        "embedding_in_split",
        "loss_in_split",
    ),
    confidence="run",
)
def layout_agrees_with_split(job: Job) -> Mask:
    """A layout has one entry for each of the pp*vpp chunks, and no other field says the split.

    Fails: plan(layout=(8, 8, 8, 8), pp=4, vpp=2)
    Fails: plan(layout=(8, 8, 8, 8), pp=4, first_stage_layers=8)
    Passes: plan(layout=(4, 4, 4, 4, 4, 4, 4, 4), pp=4, vpp=2)
    """
    plan = job.plan
    if plan.layout is None:
        return False
    slots = np.logical_or(plan.embedding_in_split, plan.loss_in_split)
    return (len(plan.layout) != num_chunks(plan)) | middle(job).stated | slots


@layout_agrees_with_split.message
def _(job: Job) -> str:
    plan = job.plan
    chunks = len(plan.layout or ())
    if chunks != num_chunks(plan):
        return f"a layout of {chunks} chunks for pp*vpp = {num_chunks(plan)}"
    return (
        f"a layout beside first_stage_layers = {plan.first_stage_layers}, last_stage_layers = "
        f"{plan.last_stage_layers}, embedding_in_split = {bool(plan.embedding_in_split)}, "
        f"loss_in_split = {bool(plan.loss_in_split)}"
    )


@rule(
    "MOD133",
    "Fewer chunks than pipeline ranks",
    severity=Severity.ERROR,
    section=SECTION,
    source="PyTorch torch/distributed/pipelining/stage.py (2.13.0)",
    reads=("layout", "pp"),
    confidence="run",
)
def every_rank_has_a_chunk(job: Job) -> Mask:
    """A pipeline rank without a chunk has nothing to do.

    Fails: plan(layout=(16, 16), pp=4)
    Passes: plan(layout=(16, 16), pp=2)
    """
    layout = job.plan.layout
    return layout is not None and len(layout) < np.asarray(job.plan.pp)


@every_rank_has_a_chunk.message
def _(job: Job) -> str:
    return f"a layout of {len(job.plan.layout or ())} chunks for pp = {job.plan.pp} ranks"


@every_rank_has_a_chunk.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"pp": (len(job.plan.layout or ()),)}
