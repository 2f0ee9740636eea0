import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from meshwright.train.model.merged import Merged  # noqa: E402


class Held:
    """A tensor that is there."""

    places = ("file",)
    dtype = "float32"

    def __init__(self, values):
        self.values = values
        self.shape = tuple(values.shape)

    def read_into(self, target, start):
        target.copy_(
            self.values[tuple(slice(a, a + n) for a, n in zip(start, target.shape, strict=True))]
        )


@given(st.data())
def test_any_block_is_that_of_the_whole_sum(data):
    rows, columns, rank = (data.draw(st.integers(1, 9)) for _ in range(3))
    base, up, down = torch.randn(rows, columns), torch.randn(rows, rank), torch.randn(rank, columns)
    merged = Merged(base=Held(base), down=Held(down), up=Held(up), scaling=2.0)
    first = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    size = data.draw(st.integers(1, rows - first[0])), data.draw(st.integers(1, columns - first[1]))
    block = torch.empty(size)
    merged.read_into(block, first)
    whole = base + 2.0 * up @ down
    wanted = whole[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]
    assert torch.allclose(block, wanted, atol=1e-5)
    assert merged.shape == (rows, columns)
