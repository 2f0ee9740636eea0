"""What we take from torch's pipelining is there and does what we rely on."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")


def test_the_private_names_exist() -> None:
    from torch.distributed.pipelining import schedules

    assert torch.__version__.startswith("2.13"), "check adapters/pipelining.py for this torch"
    runtime = schedules._PipelineScheduleRuntime
    prepare = inspect.signature(runtime._prepare_schedule_with_comms)
    assert list(prepare.parameters) == ["self", "actions", "format"]
    action = schedules._Action(0, schedules._ComputationType.FORWARD, 1)
    assert str(action) == "0F1"
    assert action.is_compute_op


@pytest.mark.parametrize(
    "name",
    [
        "GPipe",
        "1F1B",
        "Interleaved1F1B",
        "LoopedBFS",
        "InterleavedZeroBubble",
        "ZBVZeroBubble",
        "DualPipeV",
    ],
)
def test_torch_has_the_schedules_that_we_name(name: str) -> None:
    from torch.distributed.pipelining.schedules import get_schedule_class

    made = inspect.signature(get_schedule_class(name).__init__)
    assert {"n_microbatches", "loss_fn", "scale_grads"} <= set(made.parameters)


def test_a_step_keeps_no_outputs() -> None:
    from torch.distributed.pipelining.schedules import get_schedule_class

    for name in ("1F1B", "ZBVZeroBubble"):
        assert "return_outputs" in inspect.signature(get_schedule_class(name).step).parameters
