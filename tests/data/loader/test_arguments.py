"""Arguments of a wrong type or size are refused by name, at once, whatever they are."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.loader import Loader
from meshwright.data.loader.place import Place, checked_place

WHOLE = (
    "global_batch_size", "micro_batch_size", "dp_rank", "dp_size", "cp_rank", "cp_size",
    "pp_rank", "pp_size", "seed", "samples", "epochs", "prefetch",
)  # fmt: skip
FLAGS = ("shuffle", "document_masks", "mtp", "drop_last")
WORDS = ("split", "cp_slices", "balance", "dtype")
OPTIONAL = ("samples", "epochs")  # None says nothing there
OTHERS = (None, "2", True, 1.5, float("nan"), [1], {}, b"1", 2**80, -1, np.array([1, 2]))


@pytest.mark.parametrize("value", OTHERS, ids=repr)
@pytest.mark.parametrize("name", WHOLE)
def test_no_whole_number(folder, name, value):
    if value is None and name in OPTIONAL:
        return
    with pytest.raises(InvalidInput, match=name) as caught:
        Loader(folder, **{"global_batch_size": 4, name: value})
    (finding,) = caught.value.findings
    assert finding.key == name
    assert finding.value is value
    assert finding.hint


@pytest.mark.parametrize("value", [None, "true", 1, 0.0, []], ids=repr)
@pytest.mark.parametrize("name", FLAGS)
def test_no_flag(folder, name, value):
    with pytest.raises(InvalidInput, match=f"{name} = .* is neither True nor False"):
        Loader(folder, global_batch_size=4, **{name: value})


@pytest.mark.parametrize("value", [None, "else", 1, [], np.int64], ids=repr)
@pytest.mark.parametrize("name", WORDS)
def test_no_word(folder, name, value):
    with pytest.raises(InvalidInput, match=f"{name} = .* is none of the choices"):
        Loader(folder, global_batch_size=4, **{name: value})


@pytest.mark.parametrize("value", [None, "1", True, -1, float("nan"), float("inf"), 1e300, [1]])
def test_no_cost(folder, value):
    with pytest.raises(InvalidInput, match="token_cost"):
        Loader(folder, global_batch_size=4, token_cost=value)


@pytest.mark.parametrize("data", [None, 3, b"shards", ["shards"], "a\0b"], ids=repr)
def test_no_path(data):
    with pytest.raises(MeshwrightError):
        Loader(data, global_batch_size=4)


def test_numbers_of_numpy_are_numbers(folder):
    sizes = {"global_batch_size": np.int8(4), "dp_size": np.int64(2), "seed": np.uint32(3)}
    with (
        Loader(folder, **sizes) as mine,
        Loader(folder, global_batch_size=4, dp_size=2, seed=3) as plain,
    ):
        assert (next(mine).micro_batches[0].tokens == next(plain).micro_batches[0].tokens).all()
        assert mine.state_dict() == plain.state_dict()
        assert type(mine.state_dict()["stream"]["seed"]) is int


@pytest.mark.parametrize("cp_size", [2**31 - 1, 10**9 + 7])
def test_the_nearest_degrees_are_found_at_once(cp_size, cpu_s):
    place = Place(global_batch_size=1, micro_batch_size=1, cp_size=cp_size)

    def check() -> None:
        with pytest.raises(InvalidInput, match="do not divide") as caught:
            checked_place(place, seq_len=2**24, cp_slices="zigzag")
        assert caught.value.findings[0].hint == "cp_size 4194304 or 8388608"

    assert cpu_s(check) < 0.1  # 0.0002 by the root of seq_len, 0.6 by every number up to it


@pytest.mark.parametrize("how", ["zigzag", "contiguous"])
@pytest.mark.parametrize("seq_len", [1, 2, 7, 12, 64, 90])
def test_every_degree_that_is_named_divides(seq_len, how):
    for cp_size in range(1, 3 * seq_len):
        place = Place(global_batch_size=1, micro_batch_size=1, cp_size=cp_size)
        try:
            checked_place(place, seq_len=seq_len, cp_slices=how)
        except InvalidInput as error:
            named = error.findings[0].hint.removeprefix("cp_size ").split(" or ")
            for other in named:
                fits = Place(global_batch_size=1, micro_batch_size=1, cp_size=int(other))
                checked_place(fits, seq_len=seq_len, cp_slices=how)
