"""Every sample exactly once, whatever the ranks, and wherever a run stops and goes on."""

import json
import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.data.loader import Loader
from meshwright.data.loader.reading import OPEN_SHARDS
from meshwright.data.mix import blend_text, make_blend

layouts = st.builds(
    lambda dp, micro, steps, balance, prefetch, cp: {
        "dp_size": dp,
        "micro_batch_size": micro,
        "global_batch_size": dp * micro * steps,
        "balance": balance,
        "prefetch": prefetch,
        "cp_size": cp,
    },
    st.sampled_from([1, 2, 3, 5]),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["cost", "none"]),
    st.integers(0, 2),
    st.sampled_from([1, 2]),
)


def consumed(path, state, layout, *, steps, **options):
    """Rows by sample that all ranks get in the next steps, and the state of each rank after."""
    rows, states = {}, []
    for rank in range(layout["dp_size"]):
        with Loader(path, dp_rank=rank, **layout, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for _, batch in zip(range(steps), loader, strict=False):
                for micro in batch.micro_batches:
                    for sample, row in zip(micro.samples, micro.rows, strict=True):
                        if sample >= 0:
                            assert sample not in rows
                            rows[int(sample)] = int(row)
            states.append(loader.state_dict())
    assert all(one == states[0] for one in states)
    return rows, states[0]


@settings(max_examples=40)
@given(st.lists(layouts, min_size=1, max_size=4), st.data())
def test_an_epoch_over_changing_ranks_has_every_row_once(folder, several, data):
    got, state = {}, None
    for number, layout in enumerate(several):
        last = number == len(several) - 1
        steps = 1000 if last else data.draw(st.integers(0, 5))
        rows, state = consumed(folder, state, layout, steps=steps, epochs=1)
        assert not got.keys() & rows.keys()
        got |= rows
        state = json.loads(json.dumps(state))
    with Loader(folder, global_batch_size=1, epochs=1) as loader:
        assert sorted(got) == list(range(len(loader)))
    assert sorted(got.values()) == sorted(range(len(got)))


@settings(max_examples=15)
@given(layouts, layouts)
def test_a_blend_goes_on_with_the_same_samples(blend, before, after):
    whole, _ = consumed(blend, None, {**before, "dp_size": 1}, steps=8)
    first, state = consumed(blend, None, before, steps=3)
    rest, _ = consumed(blend, state, after, steps=3)
    joined = first | rest
    assert sorted(joined) == list(range(len(joined)))
    assert {k: joined[k] for k in joined if k in whole} == {
        k: whole[k] for k in joined if k in whole
    }


@pytest.fixture(scope="module")
def blend(folder, other_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("blend") / "blend.toml"
    path.write_text(blend_text(make_blend([str(folder), str(other_folder)], weights=(0.7, 0.3))))
    return path


def test_a_blend_holds_its_shares_and_goes_through_each_source(blend, folder, other_folder):
    with Loader(blend, global_batch_size=10, samples=1000) as loader:
        sizes = [epochs.size for epochs in loader.assembly.stream.epochs]
        rows = np.concatenate([m.rows for batch in loader for m in batch.micro_batches])
        epochs = loader.assembly.stream.epochs_after(1000)
    counted = Counter((rows >= sizes[0]).tolist())
    assert counted == {False: 700, True: 300}
    assert epochs == (700 / sizes[0], 300 / sizes[1])
    second = Counter(rows[rows >= sizes[0]].tolist())
    assert len(second) == sizes[1]
    assert max(second.values()) - min(second.values()) <= 1


def test_prefetched_batches_do_not_count(folder):
    with Loader(folder, global_batch_size=4, prefetch=3) as loader:
        for _ in range(2):
            batch = next(loader)
        state = loader.state_dict()
        following = next(loader)
    assert state["consumed_samples"] == batch.last_sample == 8
    with Loader(folder, global_batch_size=4, prefetch=0) as loader:
        loader.load_state_dict(state)
        assert _rows(next(loader)) == _rows(following)


def test_loading_a_state_forgets_what_was_prefetched(folder):
    with Loader(folder, global_batch_size=4) as loader:
        start = loader.state_dict()
        first = _rows(next(loader))
        next(loader)
        loader.load_state_dict(start)
        assert _rows(next(loader)) == first


def _rows(batch):
    return [micro.rows.tolist() for micro in batch.micro_batches]


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"seed": 1}, "another seed"), ({"split": "valid"}, "split"), ({"shuffle": False}, "shuffle")],
)
def test_a_state_of_another_order_is_refused(make_folder, changed, said):
    path = make_folder(valid=30)
    with Loader(path, global_batch_size=4) as loader:
        state = loader.state_dict()
    with (
        Loader(path, global_batch_size=4, **changed) as loader,
        pytest.raises(MeshwrightError, match=said),
    ):
        loader.load_state_dict(state)


def test_a_state_of_other_data_is_refused(folder, other_folder):
    with Loader(folder, global_batch_size=4) as loader:
        state = loader.state_dict()
    with (
        Loader(other_folder, global_batch_size=4) as loader,
        pytest.raises(MeshwrightError, match="another data"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    "state",
    [
        {},
        [],
        None,
        {"format": 1},
        {"format": 1, "consumed_samples": -3, "stream": {}},
        {"format": 1, "consumed_samples": 2**70, "stream": {}},
        {"format": 1, "consumed_samples": 8, "stream": {}},
    ],
)
def test_what_is_no_state_is_refused(folder, state):
    with Loader(folder, global_batch_size=4) as loader, pytest.raises(MeshwrightError):
        loader.load_state_dict(state)


def test_many_folders_keep_few_files_open(make_folder, tmp_path):
    paths = [make_folder(f"s{number}", shards=20, documents=3, seed=number) for number in range(8)]
    blend = tmp_path / "blend.toml"
    blend.write_text(blend_text(make_blend([str(path) for path in paths])))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with Loader(blend, global_batch_size=40, samples=400) as loader:
        rows = [int(m.rows[0]) for batch in loader for m in batch.micro_batches]
        if before is not None:
            assert len(os.listdir("/proc/self/fd")) - before <= 4 * OPEN_SHARDS + 8
    assert len(rows) == 400
