"""torch.distributed.pipelining: stages, the schedules by name, and operation tables of our own.

Private: `_PipelineScheduleRuntime`, `_prepare_schedule_with_comms`, `_Action` and the kinds of
computation (torch 2.13, torch/distributed/pipelining/schedules.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    _Action,
    _ComputationType,
    _PipelineScheduleRuntime,
    get_schedule_class,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

Table = "Sequence[Sequence[tuple[int, str, int]]]"  # by rank: (stage, "F" | "I" | "W" | "B", micro)
_KINDS = {
    "F": _ComputationType.FORWARD,
    "I": _ComputationType.BACKWARD_INPUT,
    "W": _ComputationType.BACKWARD_WEIGHT,
    "B": _ComputationType.FULL_BACKWARD,
}

_FORWARD = (
    _ComputationType.FORWARD,
    _ComputationType.SEND_F,
    _ComputationType.RECV_F,
    _ComputationType.UNSHARD,
    _ComputationType.RESHARD,
)


def stage_of(
    module: nn.Module,
    *,
    index: int,
    stages: int,
    device: torch.device,
    group: ProcessGroup,
    takes: Tensor,
    gives: Tensor,
) -> PipelineStage:
    """A torch pipeline stage with fixed shapes: `takes` and `gives` are examples on meta."""
    return PipelineStage(
        module, index, stages, device, input_args=(takes,), output_args=(gives,), group=group
    )


def named_schedule(
    name: str, stages: list[PipelineStage], *, microbatches: int, loss: Callable[..., Tensor]
) -> Any:
    """One of torch's schedules; gradients are sums over micro-batches."""
    made = get_schedule_class(name)
    single = issubclass(made, PipelineScheduleSingle)
    return made(
        stages[0] if single else stages,
        n_microbatches=microbatches,
        loss_fn=loss,
        scale_grads=False,
    )


def tabled_schedule(
    table: Sequence[Sequence[tuple[int, str, int]]],
    stages: list[PipelineStage],
    *,
    microbatches: int,
    loss: Callable[..., Tensor],
    forward_only: bool = False,
) -> Any:
    """A schedule from a table: for each rank its operations as (stage, kind, micro-batch).

    `forward_only` drops the backward passes and what goes with them, which torch wants to see in
    every table.
    """
    schedule = _PipelineScheduleRuntime(
        stages, n_microbatches=microbatches, loss_fn=loss, scale_grads=False
    )
    actions = {
        rank: [_Action(stage, _KINDS[kind], micro) for stage, kind, micro in row]
        for rank, row in enumerate(table)
    }
    schedule._prepare_schedule_with_comms(actions, format="compute_only")
    if forward_only:
        order = schedule.pipeline_order_with_comms
        for rank, row in order.items():
            order[rank] = [a for a in row if a.computation_type in _FORWARD]
    return schedule
