"""Number formats of whole runs: fp16 with its loss scale, bf16 on one rank and on two."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")

from running import spec_of, trained  # noqa: E402

from meshwright.plan.plan import Plan, Precision  # noqa: E402
from meshwright.train import optimizer  # noqa: E402
from meshwright.train.numbers import Numbers, numbers_of  # noqa: E402
from meshwright.train.optimizer.scaler import Scaler  # noqa: E402
from meshwright.train.settings import Guard, Saving  # noqa: E402

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
TOO_MUCH = 2.0**23


def losses(told):
    return [record["loss"] for record in told]


def test_too_large_a_scale_is_halved_by_all_ranks_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(optimizer, "Scaler", partial(Scaler, TOO_MUCH))
    plan = 'precision = "fp16"\ndp = 2\nzero_stage = 3'
    guard = Guard(nonfinite="stop")  # an overflow of the scale is no divergence
    given = {"ranks": 2, "guard": guard, "saving": Saving(every_steps=5, last=False)}
    straight = trained(spec_of(tmp_path / "a", plan, steps=12, **given), ranks=2)
    updated = [record["updated"] for record in straight]
    assert not updated[0]  # gradients times 2**23 do not fit into fp16 ...
    assert updated.count(True) > 3  # ... after enough halvings they do
    assert losses(straight)[-1] < losses(straight)[0]
    trained(spec_of(tmp_path / "b", plan, steps=5, **given), ranks=2)
    resumed = trained(spec_of(tmp_path / "b", plan, steps=12, resume=True, **given), ranks=2)
    assert losses(resumed)[-7:] == losses(straight)[-7:]
    assert [record["updated"] for record in resumed][-7:] == updated[-7:]


@pytest.mark.parametrize("master", ["true", "false"])
def test_bf16_on_one_rank_is_bf16_on_two(tmp_path, master):
    plan = f'precision = "bf16"\nzero_stage = 3\nmaster_weights = {master}\n'
    one = spec_of(tmp_path / "one", plan + "micro_batch_size = 2", ranks=1, steps=6)
    two = spec_of(tmp_path / "two", plan + "dp = 2", ranks=2, steps=6)
    single, double = losses(trained(one, ranks=1)), losses(trained(two, ranks=2))
    assert single == pytest.approx(double, rel=5e-3)
    assert single[-1] < single[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"precision": Precision.FP32}, Numbers(parameters=F32, compute=F32, reduce=F32)),
        ({}, Numbers(parameters=F32, compute=BF16, reduce=F32)),
        ({"reduce_bytes": 2}, Numbers(parameters=F32, compute=BF16, reduce=BF16)),
        ({"master_weights": False}, Numbers(parameters=BF16, compute=BF16, reduce=F32)),
        (
            {"master_weights": False, "reduce_bytes": 2},
            Numbers(parameters=BF16, compute=BF16, reduce=BF16),
        ),
        (
            {"master_weights": False, "param_bytes": 4},
            Numbers(parameters=F32, compute=BF16, reduce=F32),
        ),
        ({"precision": Precision.FP16}, Numbers(parameters=F32, compute=F16, reduce=F32)),
        (
            {"precision": Precision.FP8},
            Numbers(parameters=F32, compute=BF16, reduce=F32, fp8=True),
        ),
    ],
)
def test_formats_follow_the_plan(fields, expected):
    assert numbers_of(Plan(**fields)) == expected
    assert expected.scaled == (fields.get("precision") == Precision.FP16)
