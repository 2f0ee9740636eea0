"""A run of Muon or Adafactor goes on under another plan as if it had never stopped."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")

from running import spec_of, trained  # noqa: E402

from meshwright.train.settings import Saving  # noqa: E402

SAVING = Saving(every_steps=2, asynchronous=False)


@pytest.mark.parametrize("optimizer", ["muon", "adafactor"])
def test_from_sharded_to_tensor_parallel_and_a_pipeline(tmp_path, optimizer):
    # in fp32, and Muon in bf16: the order of sums shows in the last digits
    plan = f'precision = "fp32"\noptimizer = "{optimizer}"\nzero_stage = 3\n'
    straight = trained(spec_of(tmp_path / "a", plan + "dp = 2", ranks=2, steps=6), ranks=2)
    for steps, layout in ((2, "dp = 2"), (4, "tp = 2"), (6, "pp = 2")):
        spec = spec_of(
            tmp_path / "b", plan + layout, ranks=2, steps=steps, resume=steps > 2, saving=SAVING
        )
        told = trained(spec, ranks=2)
    losses = [[record["loss"] for record in run] for run in (told, straight)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("optimizer", ["muon", "adafactor"])
def test_the_same_plan_goes_on_bit_by_bit(tmp_path, optimizer):
    plan = f'precision = "fp32"\noptimizer = "{optimizer}"\nzero_stage = 3\ndp = 2'
    straight = trained(spec_of(tmp_path / "a", plan, ranks=2, steps=4), ranks=2)
    trained(spec_of(tmp_path / "b", plan, ranks=2, steps=2, saving=SAVING), ranks=2)
    again = spec_of(tmp_path / "b", plan, ranks=2, steps=4, saving=SAVING, resume=True)
    resumed = trained(again, ranks=2)
    assert [r["loss"] for r in resumed] == [r["loss"] for r in straight]
