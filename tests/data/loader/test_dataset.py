"""torch's DataLoader over shards: nothing lost or repeated, for any number of workers."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from meshwright.base.errors import MeshwrightError  # noqa: E402
from meshwright.data.loader import Loader  # noqa: E402
from meshwright.data.loader.dataset import (  # noqa: E402
    RowDataset,
    StepDataset,
    collate,
    tensors_of,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # a machine of few cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's
]
SHAPE = {"global_batch_size": 12, "micro_batch_size": 2, "dp_size": 2}


def batches_of(folder, **options):
    with Loader(folder, **options) as loader:
        return [tensors_of(micro) for batch in loader for micro in batch.micro_batches]


def same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, int):
            assert value == theirs[name]
        else:
            assert value.dtype == theirs[name].dtype
            assert torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_any_number_of_workers_gives_what_the_loader_gives(folder, workers):
    for rank in range(2):
        options = {**SHAPE, "dp_rank": rank, "samples": 100}
        data = StepDataset(folder, **options)
        found = list(DataLoader(data, batch_size=None, num_workers=workers))
        wanted = batches_of(folder, **options)
        assert len(found) == len(data) == len(wanted) == 9 * 3
        for ours, theirs in zip(found, wanted, strict=True):
            same(ours, theirs)


def test_a_spawned_worker_opens_the_files_itself(folder):
    data = StepDataset(folder, **SHAPE, samples=24)
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert len(list(loader)) == 6


def test_tensors_share_memory_with_the_arrays(folder):
    with Loader(folder, global_batch_size=4) as loader:
        micro = next(loader).micro_batches[0]
    tensors = tensors_of(micro)
    micro.tokens[0, 0] = 12345
    assert tensors["tokens"][0, 0] == 12345
    assert tensors["tokens"].dtype == torch.int64
    assert tensors["max_seqlen"] == micro.max_seqlen


def test_a_state_goes_on_in_the_middle_of_a_step(folder):
    whole = list(StepDataset(folder, **SHAPE, samples=60))
    first = StepDataset(folder, **SHAPE, samples=60)
    taken = [micro for _, micro in zip(range(4), first, strict=False)]
    state = json.loads(json.dumps(first.state_dict()))
    rest = StepDataset(folder, **SHAPE, samples=60)
    rest.load_state_dict(state)
    for ours, theirs in zip([*taken, *rest], whole, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_state_in_mid_step_goes_on_with_workers_in_order(folder, workers):
    whole = list(StepDataset(folder, **SHAPE, samples=60))
    rest = StepDataset(folder, **SHAPE, samples=60)
    iterator = iter(rest)
    for _ in range(5):
        next(iterator)
    again = StepDataset(folder, **SHAPE, samples=60)
    again.load_state_dict(rest.state_dict())
    found = list(DataLoader(again, batch_size=None, num_workers=workers))
    for ours, theirs in zip(found, whole[5:], strict=True):
        same(ours, theirs)


def test_other_ranks_go_on_where_a_step_is_complete(folder):
    data = StepDataset(folder, **SHAPE, samples=60)
    loader = iter(DataLoader(data, batch_size=None, num_workers=2))
    for _ in range(2 * 3):
        next(loader)
    state = data.state_after(2)
    assert state["consumed_samples"] == 24
    other = StepDataset(folder, global_batch_size=4, samples=60)
    other.load_state_dict(state)
    assert [int(micro["samples"][0]) for micro in other] == list(range(24, 60))
    with Loader(folder, global_batch_size=4, samples=60) as plain:
        plain.load_state_dict(state)
        assert next(plain).first_sample == 24


def test_other_ranks_cannot_go_on_within_a_step(folder):
    data = StepDataset(folder, **SHAPE, samples=60)
    next(iter(data))
    other = StepDataset(folder, global_batch_size=4, samples=60)
    with pytest.raises(MeshwrightError, match="within a step"):
        other.load_state_dict(data.state_dict())


def states_of_workers(folder, micro_batches: int, workers: int, **shape):
    """What the workers of a DataLoader hold when so many micro-batches were taken."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    data = StepDataset(folder, **shape)
    loader = stateful.StatefulDataLoader(data, batch_size=None, num_workers=workers)
    taken = iter(loader)
    for _ in range(micro_batches):
        next(taken)
    state = loader.state_dict()["_snapshot"]["_worker_snapshots"]
    return [json.loads(json.dumps(one["dataset_state"])) for one in state.values()]


def load_all(data: StepDataset, states) -> None:
    for state in states:
        data.load_state_dict(state)


@pytest.mark.parametrize("micro_batches", range(10))
def test_other_ranks_take_up_workers_exactly_where_a_step_is_complete(folder, micro_batches):
    shape = {"global_batch_size": 16, "micro_batch_size": 2, "dp_size": 2, "samples": 96}
    states = states_of_workers(folder, micro_batches, 2, **shape)
    other = StepDataset(folder, global_batch_size=8, dp_size=4, samples=96)
    if micro_batches % 4:
        with pytest.raises(MeshwrightError, match=r"within a step .* state_after\(steps\)"):
            load_all(other, states)
        return
    for state in states:
        other.load_state_dict(state)
        first = min(int(micro["samples"].min()) for micro, _ in zip(other, range(2), strict=False))
        assert first // 8 * 8 == micro_batches // 4 * 16


@pytest.mark.parametrize("micro_batches", [3, 4, 6])
def test_as_many_workers_as_micro_batches_do_not_tell_which_step_is_complete(folder, micro_batches):
    shape = {"global_batch_size": 4, "micro_batch_size": 2, "samples": 96}
    states = states_of_workers(folder, micro_batches, 2, **shape)
    other = StepDataset(folder, global_batch_size=8, dp_size=4, samples=96)
    with pytest.raises(MeshwrightError, match=r"2 workers .* state_after\(steps\)"):
        load_all(other, states)


def test_a_stateful_loader_of_other_ranks_goes_on_at_the_end_of_a_step(folder):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    shape = {"global_batch_size": 16, "micro_batch_size": 2, "dp_size": 2, "samples": 64}
    loader = stateful.StatefulDataLoader(
        StepDataset(folder, **shape), batch_size=None, num_workers=2
    )
    for _, micro in zip(range(8), loader, strict=False):
        assert "loss_mask" in micro
    state = loader.state_dict()
    found = []
    for rank in range(4):
        data = StepDataset(folder, global_batch_size=16, dp_size=4, dp_rank=rank, samples=64)
        again = stateful.StatefulDataLoader(data, batch_size=None, num_workers=2)
        again.load_state_dict(state)
        found += [int(sample) for micro in again for sample in micro["samples"]]
    assert sorted(found) == list(range(32, 64))


@pytest.mark.parametrize("bad", [{"workers": 0}, {"next": -1}, {"next": "1"}])
def test_a_place_of_a_worker_that_is_none_is_refused(folder, bad):
    data = StepDataset(folder, **SHAPE)
    state = data.state_dict()
    with pytest.raises(MeshwrightError, match="no place in a step"):
        data.load_state_dict({**state, "within": {**state["within"], **bad}})


@pytest.mark.parametrize(
    "within", [{"of": []}, {"of": [0]}, {"given": -1}, {"start": 2**70}, {"x": 1}, [], {"of": "1"}]
)
def test_a_place_that_is_none_is_refused(folder, within):
    data = StepDataset(folder, **SHAPE)
    with pytest.raises(MeshwrightError, match="no place in a step"):
        data.load_state_dict({**data.state_dict(), "within": within})


def test_a_finished_data_set_starts_over(folder):
    data = StepDataset(folder, **SHAPE, samples=24)
    first = list(data)
    assert data.state_dict()["consumed_samples"] == 24
    for ours, theirs in zip(list(data), first, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader(folder, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    whole = list(StepDataset(folder, **SHAPE, samples=100))

    def loader():
        data = StepDataset(folder, **SHAPE, samples=100)
        return stateful.StatefulDataLoader(data, batch_size=None, num_workers=workers)

    first = loader()
    taken = [micro for _, micro in zip(range(7), first, strict=False)]
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    for ours, theirs in zip([*taken, *second], whole, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_as_a_map(folder, workers):
    data = RowDataset(folder)
    loader = DataLoader(data, batch_size=5, collate_fn=collate, num_workers=workers)
    rows = [row for batch in loader for row in batch["rows"].tolist()]
    assert rows == list(range(len(data)))


def test_rows_collate_to_what_the_loader_gives(folder):
    data = RowDataset(folder)
    options = {"shuffle": False, "global_batch_size": 4, "micro_batch_size": 4, "balance": "none"}
    for number, wanted in enumerate(batches_of(folder, **options, samples=40)):
        same(collate([data[number * 4 + i] for i in range(4)]), wanted)


def test_rows_from_the_end_and_beyond(folder):
    data = RowDataset(folder)
    same(data[-1], data[len(data) - 1])
    with pytest.raises(IndexError):
        data[len(data)]


def test_only_this_file_needs_torch():
    root = Path(__file__).parents[3] / "src" / "meshwright" / "data"
    importing = {p.name for p in root.rglob("*.py") if "import torch" in p.read_text("utf-8")}
    assert importing == {"dataset.py"}
