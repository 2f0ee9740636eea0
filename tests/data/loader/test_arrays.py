"""The arrays of a micro-batch against a definition in plain Python, for every kind of folder."""

import numpy as np
import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.loader import Loader
from meshwright.data.loader.batch import IGNORED, PADDING
from meshwright.data.shards.folder import open_folder

SEQ_LEN = 32


def expected(folder, rows):
    """Tokens, labels, position ids, document ids and piece lengths of rows, row by row."""
    columns = [[], [], [], []]
    lengths = []
    for row in rows.tolist():
        tokens, pieces = folder.row(row) if row >= 0 else ((), ())
        tokens = [int(token) for token in tokens]
        free = SEQ_LEN - len(tokens)
        labels, positions, documents = [], [], []
        for number, piece in enumerate(pieces):
            length = int(piece["length"])
            inside = tokens[len(labels) : len(labels) + length]
            following = int(piece["next"])
            labels += [*inside[1:], following if following >= 0 else IGNORED]
            positions += range(length)
            documents += [number] * length
            lengths.append(length)
        lengths += [free] if free else []
        columns[0].append(tokens + [folder.vocabulary.pad_id] * free)
        columns[1].append(labels + [IGNORED] * free)
        columns[2].append(positions + list(range(free)))
        columns[3].append(documents + [PADDING] * free)
    return [np.array(column) for column in columns], lengths


def test_arrays_are_what_the_plan_says(any_folder):
    folder = open_folder(any_folder)
    with Loader(any_folder, global_batch_size=6, micro_batch_size=3, samples=31) as loader:
        for batch in loader:
            for micro in batch.micro_batches:
                columns, lengths = expected(folder, micro.rows)
                names = ("tokens", "labels", "position_ids", "document_ids")
                for name, column in zip(names, columns, strict=True):
                    found = getattr(micro, name)
                    assert found.tolist() == column.tolist(), name
                    assert found.dtype == ("int32" if name == "document_ids" else "int64")
                assert np.diff(micro.cu_seqlens).tolist() == lengths
                assert micro.cu_seqlens[0] == 0
                assert micro.cu_seqlens.dtype == np.int32
                assert micro.max_seqlen == max(lengths)
                assert micro.loss_mask.tolist() == (columns[1] != IGNORED).tolist()


def test_both_layouts_of_a_folder_give_the_same_rows(make_folder):
    """The same documents, packed alike: only where the tokens lie differs."""
    found = []
    for layout in ("rows", "documents"):
        with Loader(
            make_folder(layout, layout=layout), global_batch_size=5, samples=50, dtype="int32"
        ) as loader:
            found.append([m for batch in loader for m in batch.micro_batches])
    for ours, theirs in zip(*found, strict=True):
        for name in ("rows", "tokens", "labels", "document_ids", "cu_seqlens"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        assert ours.tokens.dtype == np.int32


def test_without_document_masks_positions_run_through_the_row(folder):
    with Loader(folder, global_batch_size=4, document_masks=False) as loader:
        micro = next(loader).micro_batches[0]
    assert micro.position_ids.tolist() == [list(range(SEQ_LEN))]
    assert micro.document_ids is None
    assert micro.cu_seqlens is None
    assert micro.max_seqlen == 0
    columns, _ = expected(open_folder(folder), micro.rows)
    assert micro.labels.tolist() == columns[1].tolist()  # no label crosses documents either way


@pytest.mark.parametrize("cp_size", [2, 4])
@pytest.mark.parametrize("how", ["zigzag", "contiguous"])
def test_slices_of_all_ranks_make_the_row(folder, cp_size, how):
    whole = _micro_batch(folder)
    chunk = SEQ_LEN // (2 * cp_size)
    for rank in range(cp_size):
        part = _micro_batch(folder, cp_rank=rank, cp_size=cp_size, cp_slices=how)
        mine = (rank, 2 * cp_size - 1 - rank) if how == "zigzag" else (2 * rank, 2 * rank + 1)
        places = [chunk * c + i for c in mine for i in range(chunk)]
        for name in ("tokens", "labels", "position_ids", "document_ids"):
            assert np.array_equal(getattr(part, name), getattr(whole, name)[:, places]), name
            assert getattr(part, name).flags.c_contiguous
        assert np.array_equal(part.cu_seqlens, whole.cu_seqlens)


def _micro_batch(folder, **place):
    with Loader(folder, global_batch_size=4, micro_batch_size=2, **place) as loader:
        return next(loader).micro_batches[1]


def test_pipeline_stages_get_what_they_need(folder):
    first, middle, last = (_micro_batch(folder, pp_rank=rank, pp_size=3) for rank in range(3))
    assert first.tokens is not None
    assert first.labels is None
    assert first.loss_mask is None
    assert last.tokens is None
    assert last.labels is not None
    assert middle.tokens is None
    assert middle.labels is None
    for stage in (first, middle, last):
        assert stage.position_ids is not None
        assert np.array_equal(stage.document_ids, first.document_ids)
        assert np.array_equal(stage.cu_seqlens, first.cu_seqlens)
    assert _micro_batch(folder, pp_rank=2, pp_size=3, mtp=True).tokens is not None


def test_a_middle_stage_without_masks_opens_no_file(make_folder):
    path = make_folder()
    for file in path.glob("train-*"):
        file.unlink()
    options = {"global_batch_size": 4, "document_masks": False, "pp_size": 3}
    with Loader(path, pp_rank=1, **options) as loader:
        micro = next(loader).micro_batches[0]
    assert micro.tokens is None
    assert micro.position_ids.tolist() == [list(range(SEQ_LEN))]
    with Loader(path, pp_rank=0, **options) as loader, pytest.raises(InvalidInput):
        next(loader)


def test_arrays_can_be_written_to(folder):
    micro = _micro_batch(folder)
    for name in ("tokens", "labels", "position_ids", "document_ids", "cu_seqlens"):
        assert getattr(micro, name).flags.writeable, name
