import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from meshwright.train.checkpoint.index import Entry, Piece, key_of  # noqa: E402
from meshwright.train.model.files import opener  # noqa: E402
from meshwright.train.model.lazy import (  # noqa: E402
    Joined,
    Narrowed,
    Pieced,
    Selected,
    Stacked,
    Stored,
    Transposed,
)

SHAPE = (4, 6)


@pytest.fixture(name="parts", scope="module")
def _parts(tmp_path_factory):
    """Three tensors of a file, and the same as values."""
    folder = tmp_path_factory.mktemp("file")
    values = [torch.arange(24.0).reshape(SHAPE) + 100 * i for i in range(3)]
    save_file({str(i): v for i, v in enumerate(values)}, folder / "a.safetensors")
    open_file = opener(folder)
    stored = tuple(
        Stored(open=open_file, file="a.safetensors", key=str(i), shape=SHAPE, dtype="float32")
        for i in range(3)
    )
    return stored, values


def _cases(parts, values):
    """Every way of making one tensor of others, lazily and by torch."""
    yield Stacked(parts=parts, dim=0), torch.stack(values, 0)
    yield Stacked(parts=parts, dim=1), torch.stack(values, 1)
    yield Joined(parts=parts, dim=0), torch.cat(values, 0)
    yield Joined(parts=parts, dim=1), torch.cat(values, 1)
    yield Narrowed(whole=parts[0], dim=1, first=2, length=3), values[0][:, 2:5]
    yield Selected(whole=parts[1], dim=0, index=2), values[1][2]
    yield Selected(whole=parts[1], dim=1, index=2), values[1][:, 2]
    yield Transposed(whole=parts[2], dims=(0, 1)), values[2].T
    fused = Joined(parts=(Stacked(parts=parts, dim=0), Stacked(parts=parts[::-1], dim=0)), dim=1)
    both = torch.cat([torch.stack(values), torch.stack(values[::-1])], 1)
    yield fused, both
    yield Transposed(whole=fused, dims=(1, 2)), both.transpose(1, 2)
    yield (
        Selected(whole=Narrowed(whole=fused, dim=1, first=4, length=4), dim=0, index=1),
        both[1, 4:],
    )


@given(data=st.data())
@settings(max_examples=100)
def test_any_block_is_that_of_the_tensor_made_by_torch(parts, data):
    lazy, whole = data.draw(st.sampled_from(list(_cases(*parts))))
    assert lazy.shape == tuple(whole.shape)
    assert lazy.dtype == "float32"
    assert lazy.places == ("a.safetensors",)
    start = [data.draw(st.integers(0, n - 1)) for n in whole.shape]
    size = [data.draw(st.integers(1, n - s)) for n, s in zip(whole.shape, start, strict=True)]
    target = torch.full(size, -1.0)
    lazy.read_into(target, tuple(start))
    block = whole[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))]
    assert torch.equal(target, block)


def test_pieces_of_several_files_make_one_tensor(tmp_path):
    whole = torch.arange(24.0).reshape(SHAPE)
    pieces = []
    for rank, (rows, columns) in enumerate(((0, 0), (0, 4), (3, 0), (3, 4))):
        block = whole[rows : rows + 3, columns : columns + 4]
        name = f"rank-{rank}.safetensors"
        save_file({key_of("w", (rows, columns)): block.contiguous()}, tmp_path / name)
        pieces.append(Piece(start=(rows, columns), size=tuple(block.shape), file=name))
    entry = Entry(dtype="float32", shape=SHAPE, pieces=tuple(pieces))
    lazy = Pieced(open=opener(tmp_path), entry=entry, key_of=lambda start: key_of("w", start))
    target = torch.empty(2, 4)
    lazy.read_into(target, (2, 1))
    assert torch.equal(target, whole[2:4, 1:5])
