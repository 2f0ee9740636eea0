import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from meshwright.rules.data.checkpoints import GPU_MTBF_S
from meshwright.train.checkpoint import Every

positive = st.floats(1e-3, 1e6)


@given(stall=positive, mtbf=positive, step=positive)
def test_without_a_stated_interval_it_is_youngs(stall, mtbf, step):
    every = Every(mtbf_s=mtbf)
    wanted_s = (2 * stall * mtbf) ** 0.5
    steps = every.steps_between(stall_s=stall, step_s=step, ranks=8)
    assert steps >= 1
    assert abs(steps * step - wanted_s) <= max(step, 1e-9 * wanted_s)


def test_more_ranks_fail_more_often():
    few, many = (
        Every().steps_between(stall_s=2.0, step_s=1.0, ranks=ranks) for ranks in (64, 6400)
    )
    assert few == round((4 * GPU_MTBF_S / 64) ** 0.5)
    assert few == pytest.approx(10 * many, rel=0.01)


def test_a_stated_interval_holds():
    assert Every(steps=7).steps_between(stall_s=1, step_s=1, ranks=1) == 7
    assert Every(steps=7).first() == 7
    assert Every(seconds=60).steps_between(stall_s=1, step_s=0.5, ranks=1) == 120
