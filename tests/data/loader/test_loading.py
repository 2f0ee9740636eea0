"""The loader's ends, errors, waits and thread."""

import threading
import time

import pytest

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.loader import Loader
from meshwright.data.loader.batch import IGNORED
from meshwright.data.shards.folder import open_folder


def test_the_last_batch_is_filled_up_with_blank_rows(folder):
    size = len(open_folder(folder))
    with Loader(folder, global_batch_size=11, epochs=1) as loader:
        batches = list(loader)
        assert len(batches) == len(loader) == -(-size // 11)
    blank = [m for m in batches[-1].micro_batches if m.samples[0] < 0]
    assert len(blank) == len(batches) * 11 - size > 0
    for micro in blank:
        assert (micro.labels == IGNORED).all()
        assert (micro.tokens == 1).all()
        assert micro.rows.tolist() == [-1]
    assert batches[-1].last_sample == size


def test_drop_last_leaves_it_out(folder):
    size = len(open_folder(folder))
    with Loader(folder, global_batch_size=11, epochs=1, drop_last=True) as loader:
        batches = list(loader)
    assert len(batches) == size // 11
    assert all((m.samples >= 0).all() for batch in batches for m in batch.micro_batches)


def test_without_an_end_epochs_follow_each_other(folder):
    size = len(open_folder(folder))
    with Loader(folder, global_batch_size=10) as loader:
        rows = [int(m.rows[0]) for _ in range(40) for m in next(loader).micro_batches]
        with pytest.raises(TypeError):
            len(loader)
    assert sorted(rows[:size]) == sorted(rows[size : 2 * size]) == list(range(size))
    assert rows[:size] != rows[size : 2 * size]


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"global_batch_size": 10, "dp_size": 4, "micro_batch_size": 2}, "x dp_size 4", "8 or 16"),
        ({"global_batch_size": 2, "dp_size": 4}, "no multiple", "the nearest: 4"),
        ({"global_batch_size": 4, "cp_size": 3}, "do not divide", "cp_size 2 or 4"),
        ({"global_batch_size": 4, "cp_size": 5, "cp_slices": "contiguous"}, "5 slices", "4"),
        ({"global_batch_size": 4, "dp_size": 2, "dp_rank": 2}, "none of the 2", "0 to 1"),
        ({"global_batch_size": 0}, "below 1", "global_batch_size=1"),
    ],
)
def test_a_batch_that_cannot_be_divided(folder, options, said, hint):
    with pytest.raises(InvalidInput, match=said) as caught:
        Loader(folder, **options)
    assert hint in caught.value.findings[0].hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"global_batch_size": 100_000}, "fewer than a batch"),
        ({"global_batch_size": 4, "split": "valid"}, "no rows of split 'valid'"),
        ({"global_batch_size": 4, "split": "test"}, "split = 'test' is none"),
        ({"global_batch_size": 4, "cp_slices": "zigzags"}, "none of the choices"),
        ({"global_batch_size": 4, "balance": "costs"}, "none of the choices"),
        ({"global_batch_size": 4, "samples": 3, "drop_last": True}, "make no batch"),
        ({"global_batch_size": 4, "samples": 3, "epochs": 1}, "epochs counts"),
    ],
)
def test_what_cannot_be_loaded(folder, options, said):
    with pytest.raises(MeshwrightError, match=said) as caught:
        Loader(folder, **options)
    assert caught.value.hint


def test_an_unfinished_folder(make_folder):
    path = make_folder()
    (path / "manifest.json").unlink()
    with pytest.raises(InvalidInput) as caught:
        Loader(path, global_batch_size=4)
    assert "build" in caught.value.findings[0].hint


@pytest.mark.parametrize("end", [".bin", ".idx", ".rows.npy", ".pieces.npy"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_truncated_file_is_met_by_an_error_not_by_a_skipped_batch(make_folder, end, prefetch):
    path = make_folder(shards=1)
    file = path / f"train-00000{end}"
    file.write_bytes(file.read_bytes()[:-5])
    with Loader(path, global_batch_size=4, prefetch=prefetch) as loader:
        for _ in range(3):
            with pytest.raises(InvalidInput, match=r"train-00000"):
                next(loader)
        assert loader.consumed_samples == 0


def test_after_an_error_nothing_is_skipped(make_folder):
    path = make_folder(shards=1)
    moved = path / "moved"
    file = path / "train-00000.bin"
    file.rename(moved)
    with Loader(path, global_batch_size=4) as loader:
        with pytest.raises(InvalidInput):
            next(loader)
        moved.rename(file)
        assert next(loader).first_sample == 0


def test_waits_are_measured(folder):
    with Loader(folder, global_batch_size=8, prefetch=2) as loader:
        assert loader.waits.steps == 0
        assert loader.waits.share == 0
        for _ in range(6):
            next(loader)
            time.sleep(0.05)
        waits = loader.waits
    assert waits.steps == 6
    assert waits.first_s > 0
    assert waits.elapsed_s > 0.25
    assert 0 <= waits.waited_s < waits.elapsed_s / 2
    assert waits.share == waits.waited_s / waits.elapsed_s


def test_a_slow_disk_shows_as_waiting(folder, monkeypatch):
    from meshwright.data.loader.reading import Reader

    tokens = Reader.fill_tokens

    def slow(self, *args, **kwargs):
        time.sleep(0.03)
        return tokens(self, *args, **kwargs)

    monkeypatch.setattr(Reader, "fill_tokens", slow)
    with Loader(folder, global_batch_size=8, prefetch=2) as loader:
        for _ in range(8):
            next(loader)
        assert loader.waits.share > 0.5
        assert loader.waits.waited_s > 0.1


def test_closing_stops_the_thread_and_next_starts_another(folder):
    loader = Loader(folder, global_batch_size=8)
    first = next(loader)
    loader.close()
    assert not any("meshwright-loader" in thread.name for thread in threading.enumerate())
    assert next(loader).first_sample == first.last_sample
    loader.close()
