"""Whatever the layout, a step is the same samples: none is lost, none comes twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.loader.batch import IGNORED, PADDING
from meshwright.data.loader.place import Place
from meshwright.train.feeding.indexed import IndexedTable
from meshwright.train.feeding.kinds import kind_of, prefix_of
from meshwright.train.feeding.opening import Shape, open_evaluation, open_training
from meshwright.train.feeding.rows import Rows
from meshwright.train.feeding.synthetic import ANEW, Synthetic
from meshwright.train.settings import Feed

SEQ_LEN, VOCABULARY = 16, 256
LAYOUTS = [  # dp, cp, micro_batch_size
    (1, 1, 1),
    (1, 1, 8),
    (2, 1, 2),
    (4, 1, 1),
    (2, 2, 1),
    (1, 4, 4),
]


def shape(place: Place, *, cp_slices="zigzag", seed=0, vocab_size=VOCABULARY) -> Shape:
    return Shape(
        place=place,
        seq_len=SEQ_LEN,
        vocab_size=vocab_size,
        hidden_size=32,
        cp_slices=cp_slices,
        seed=seed,
    )


def places(dp: int, cp: int, micro_batch_size: int) -> list[Place]:
    return [
        Place(
            global_batch_size=8,
            micro_batch_size=micro_batch_size,
            dp_rank=d,
            dp_size=dp,
            cp_rank=c,
            cp_size=cp,
        )
        for d in range(dp)
        for c in range(cp)
    ]


def whole_rows(feed: Feed, layout, first_sample: int) -> dict[int, np.ndarray]:
    """Tokens and labels of every sample, put together from all ranks."""
    dp, cp, size = layout
    found: dict[int, list[np.ndarray]] = {}
    for place in places(dp, cp, size):
        batch = open_training(feed, shape(place, cp_slices="contiguous")).make(first_sample)
        for micro in batch.micro_batches:
            for row, sample in enumerate(micro.samples.tolist()):
                both = np.stack([micro.tokens[row], micro.labels[row]])
                found.setdefault(sample, []).append(both)
    assert all(len(parts) == cp for parts in found.values())
    return {sample: np.concatenate(parts, axis=1) for sample, parts in found.items()}


@pytest.fixture(params=["synthetic", "shards", "megatron"])
def feed(request) -> Feed:
    if request.param == "synthetic":
        return Feed()
    return Feed(source=str(request.getfixturevalue(request.param)))


@pytest.mark.parametrize("first_sample", [0, 24])
def test_a_step_is_the_same_samples_under_every_layout(feed, first_sample):
    alone = whole_rows(feed, LAYOUTS[0], first_sample)
    assert sorted(alone) == list(range(first_sample, first_sample + 8))
    for layout in LAYOUTS[1:]:
        cut = whole_rows(feed, layout, first_sample)
        assert sorted(cut) == sorted(alone)
        assert all(np.array_equal(cut[sample], alone[sample]) for sample in alone)


def test_another_seed_gives_other_samples(feed):
    place = places(1, 1, 8)[0]
    made = [open_training(feed, shape(place, seed=s)).make(0).micro_batches[0] for s in (0, 1)]
    assert not np.array_equal(made[0].tokens, made[1].tokens)
    identities = [dict(open_training(feed, shape(place, seed=s)).identity) for s in (0, 1)]
    assert identities[0] != identities[1]


def test_an_epoch_has_every_row_once(megatron):
    source = open_training(Feed(source=str(megatron)), shape(places(1, 1, 8)[0]))
    rows = [
        row
        for first in range(0, source.rows, 8)
        for row in source.make(first, end=source.rows).micro_batches[0].rows.tolist()
        if row >= 0
    ]
    assert sorted(rows) == list(range(source.rows))


def test_a_step_beyond_the_end_is_filled_with_blank_rows(feed):
    source = open_training(feed, shape(places(1, 1, 8)[0]))
    batch = source.make(0, end=3)
    (micro,) = batch.micro_batches
    assert batch.last_sample == 3
    assert (micro.samples >= 0).sum() == 3
    assert (micro.labels[micro.samples < 0] == IGNORED).all()
    if micro.document_ids is not None:
        assert (micro.document_ids[micro.samples < 0] == PADDING).all()


def test_ranks_get_only_what_they_need():
    for pp_rank, needs in enumerate([(True, False), (False, False), (False, True)]):
        place = Place(global_batch_size=2, micro_batch_size=1, pp_rank=pp_rank, pp_size=3)
        micro = open_training(Feed(), shape(place)).make(0).micro_batches[0]
        assert (micro.tokens is not None, micro.labels is not None) == needs


# Synthetic


@given(seed=st.integers(0, 2**62), sample=st.integers(0, 2**40))
@settings(max_examples=50)
def test_synthetic_labels_are_the_tokens_that_follow(seed, sample):
    read = Synthetic(seq_len=64, vocab_size=32, seed=seed).read(np.array([sample]))
    assert np.array_equal(read.tokens[0, 1:], read.labels[0, :-1])
    assert read.tokens.min() >= 0
    assert max(read.tokens.max(), read.labels.max()) < 32


def test_synthetic_tokens_can_be_learned():
    read = Synthetic(seq_len=4096, vocab_size=1000, seed=1).read(np.arange(4))
    steps, counts = np.unique((read.labels - read.tokens) % 256, return_counts=True)
    share = counts.max() / counts.sum()
    assert share == pytest.approx(1 - ANEW, abs=0.02)
    assert len(steps) > 100  # what does not follow may be anything


def test_evaluation_sees_other_synthetic_rows():
    place = places(1, 1, 8)[0]
    trained = open_training(Feed(), shape(place)).make(0).micro_batches[0]
    held_out = open_evaluation(Feed(), shape(place)).make(0).micro_batches[0]
    assert not np.array_equal(trained.tokens, held_out.tokens)


# Files of Megatron


def table(prefix, *, masks=True, vocab_size=VOCABULARY, shuffle=False, seq_len=SEQ_LEN):
    return IndexedTable(
        prefix,
        seq_len=seq_len,
        vocab_size=vocab_size,
        seed=0,
        shuffle=shuffle,
        document_masks=masks,
    )


def test_rows_of_megatron_are_its_documents_end_to_end(megatron):
    from meshwright.data.shards.indexed import open_indexed

    indexed = open_indexed(megatron)
    ends = set(np.cumsum(indexed.lengths).tolist())
    read = table(megatron).read(np.arange(4))
    tokens = np.array(indexed.tokens[: 4 * SEQ_LEN + 1], dtype=np.int64)
    assert np.array_equal(read.tokens.ravel(), tokens[:-1])
    wanted = [IGNORED if place + 1 in ends else tokens[place + 1] for place in range(4 * SEQ_LEN)]
    assert read.labels.ravel().tolist() == wanted
    assert (read.positions[:, 0] == 0).all()
    steps = np.diff(read.documents, axis=1)
    assert ((steps == 0) | (read.positions[:, 1:] == 0)).all()
    assert (np.diff(read.positions, axis=1)[steps == 0] == 1).all()


def test_without_masks_a_row_is_one_document(megatron):
    read = table(megatron, masks=False).read(np.array([0]))
    assert read.positions is None
    assert read.documents is None


def test_tokens_beyond_the_vocabulary_are_told_by_name(megatron):
    with pytest.raises(MeshwrightError, match=r"corpus_text_document.bin holds token \d+"):
        table(megatron, vocab_size=100).read(np.arange(3))


def test_too_few_tokens_for_a_row(megatron):
    with pytest.raises(MeshwrightError, match="fewer than a row of 1,000,000"):
        table(megatron, seq_len=1_000_000)


def test_a_slice_that_does_not_divide_is_refused(megatron):
    place = Place(global_batch_size=3, micro_batch_size=1, cp_size=3)
    with pytest.raises(InvalidInput, match="16 tokens do not divide into 6 slices"):
        Rows(table(megatron), place, cp_slices="zigzag")


# Kinds


def test_kinds_of_sources(shards, megatron, tmp_path):
    text, blend = tmp_path / "book.txt", tmp_path / "blend.toml"
    text.write_text("once")
    blend.write_text("")
    found = [kind_of(str(s)) for s in ("synthetic", shards, megatron, text, blend, tmp_path)]
    assert found == ["synthetic", "shards", "indexed", "text", "blend", "text"]
    for ending in (".bin", ".idx"):
        assert prefix_of(f"{megatron}{ending}") == megatron


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_what_is_no_data_is_told_with_what_would_be(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput) as error:
        kind_of(str(tmp_path / name))
    assert "meshwright data" in error.value.hint


@pytest.mark.parametrize(
    ("there", "asked"),
    [(".bin", "half.bin"), (".bin", "half"), (".idx", "half.idx"), (".bin", "half.idx")],
)
def test_half_a_pair_is_no_text(tmp_path, there, asked):
    (tmp_path / f"half{there}").write_bytes(b"")
    missing = ".idx" if there == ".bin" else ".bin"
    words = f"half{there} is there, but half{missing} beside it is missing"
    with pytest.raises(InvalidInput, match=words):
        kind_of(str(tmp_path / asked))


def test_a_text_beside_half_a_pair_stays_a_text(tmp_path):
    (tmp_path / "book").write_text("once")
    (tmp_path / "book.bin").write_bytes(b"")
    assert kind_of(str(tmp_path / "book")) == "text"


def test_rows_of_another_length_are_refused(shards):
    place = places(1, 1, 8)[0]
    longer = Shape(
        place=place, seq_len=32, vocab_size=256, hidden_size=32, cp_slices="zigzag", seed=0
    )
    with pytest.raises(MeshwrightError, match="have 16 tokens, those of the plan 32"):
        open_training(Feed(source=str(shards)), longer)
