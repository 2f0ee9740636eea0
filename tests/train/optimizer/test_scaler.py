import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from meshwright.train.optimizer.scaler import Scaler  # noqa: E402


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5))
def test_the_policy_is_that_of_torch(finite, interval):
    theirs = torch.amp.GradScaler("cpu", growth_interval=interval)
    theirs.scale(torch.ones(()))  # makes its tensors
    ours = Scaler(interval=interval)
    for ok in finite:
        parameter = torch.nn.Parameter(torch.ones(1))
        parameter.grad = torch.full((1,), 1.0 if ok else torch.inf)
        optimizer = torch.optim.SGD([parameter], lr=0.0)
        theirs.unscale_(optimizer)
        theirs.step(optimizer)
        theirs.update()
        ours.after(finite=ok)
        assert ours.scale == theirs.get_scale()


@given(st.integers(0, 30), st.integers(0, 30))
def test_it_goes_on_where_it_was(before, after):
    straight, stopped = Scaler(interval=7), Scaler(interval=7)
    for step in range(before):
        for scaler in (straight, stopped):
            scaler.after(finite=step % 5 != 0)
    resumed = Scaler(interval=7)
    resumed.restore(stopped.state())
    for _ in range(after):
        straight.after(finite=True)
        resumed.after(finite=True)
    assert resumed.state() == straight.state()


@pytest.mark.parametrize("state", [{"scale": -1.0, "in_a_row": 9}, {"scale": "much"}, {}])
def test_what_is_no_scale_is_left_aside(state):
    scaler = Scaler(interval=7)
    scaler.restore(state)
    assert scaler.state() == Scaler(interval=7).state()
