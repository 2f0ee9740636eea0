"""Band keys: minima as good as those of independent permutations, keys as the theory has them."""

from types import SimpleNamespace

import numpy as np
import pytest

from meshwright.data.dedup import minhash
from meshwright.data.dedup.minhash import band_keys, key_columns, share_found, sketch
from meshwright.data.documents import bounds_of
from meshwright.data.ranges import problems_of
from meshwright.data.settings import Build, Dedup, Output, Source

SLOTS = 120


def packed(sets):
    """Sets of shingles end to end, and their bounds."""
    return np.concatenate(sets), bounds_of(np.array([len(one) for one in sets]))


def pairs(shared, each, *, count, seed=0):
    """Pairs of random sets with `shared` elements in common and `each` of its own."""
    draw = np.random.default_rng(seed)
    pool = draw.integers(0, 2**64, (count, shared + 2 * each), dtype=np.uint64)
    return pool[:, : shared + each], np.delete(pool, np.s_[shared : shared + each], axis=1)


@pytest.mark.parametrize(
    ("shared", "each"), [(4, 1), (8, 1), (16, 2), (20, 10), (80, 10), (250, 125), (1600, 200)]
)
def test_agreement_is_the_similarity_and_no_noisier_than_permutations(shared, each):
    similarity, count = shared / (shared + 2 * each), 1500
    one, other = pairs(shared, each, count=count)
    agreeing = (sketch(*packed(one), SLOTS) == sketch(*packed(other), SLOTS)).mean(axis=1)
    deviation = np.sqrt(similarity * (1 - similarity) / SLOTS)  # of independent permutations
    assert abs(agreeing.mean() - similarity) < 4 * deviation / np.sqrt(count)
    assert agreeing.std() < 1.06 * deviation


@pytest.mark.parametrize(("shared", "each"), [(16, 2), (40, 5), (400, 50)])
def test_recall_of_the_bands_is_what_the_formula_says(shared, each):
    similarity, count, settings = shared / (shared + 2 * each), 2000, Dedup()
    keys = [
        minhash._banded(sketch(*packed(sets), SLOTS), bands=settings.bands)
        for sets in pairs(shared, each, count=count)
    ]
    found = (keys[0] == keys[1]).any(axis=1).mean()
    expected = 1 - (1 - similarity**settings.rows) ** settings.bands
    assert found > expected - 4 * np.sqrt(expected * (1 - expected) / count)
    assert found > 0.995


def test_unlike_documents_share_no_key():
    one, other = pairs(20, 90, count=2000)  # J = 0.1
    keys = [minhash._banded(sketch(*packed(sets), SLOTS), bands=20) for sets in (one, other)]
    assert (keys[0] == keys[1]).any(axis=1).mean() < 0.001


def words_of(*counts, start=0):
    """A table of documents of so many words, all different."""
    total = sum(counts)
    hashes = np.arange(start + 1, start + total + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    return SimpleNamespace(word_hash=hashes, word_bounds=bounds_of(np.array(counts)))


def test_keys_depend_on_nothing_but_the_document():
    counts = [0, 1, 3, 5, 40, 3000, 0, 700, 2]
    together = band_keys(words_of(*counts), Dedup())
    starts = np.cumsum([0, *counts])
    alone = [
        band_keys(words_of(count, start=int(start)), Dedup())
        for start, count in zip(starts, counts, strict=False)
    ]
    assert np.array_equal(together, np.concatenate(alone))
    assert together.shape == (9, key_columns(Dedup()))


@pytest.mark.parametrize(
    ("name", "value"), [("_DOCUMENTS", 2), ("_STRETCH", 17), ("_REPEATED", 3), ("_FILLED", 64)]
)
def test_the_portions_of_the_work_change_nothing(monkeypatch, name, value):
    table = words_of(0, 1, 3, 5, 12, 60, 900, 0, 7)
    whole = band_keys(table, Dedup())
    monkeypatch.setattr(minhash, name, value)
    assert np.array_equal(band_keys(table, Dedup()), whole)


def test_repetition_does_not_change_a_document():
    once, often = np.arange(1, 9, dtype=np.uint64), np.tile(np.arange(1, 9, dtype=np.uint64), 900)
    assert np.array_equal(*(sketch(*packed([part]), SLOTS) for part in (once, often)))


def test_a_document_without_words_has_no_key():
    keys = band_keys(words_of(0, 1), Dedup())[:, : Dedup().bands]
    assert not keys[0].any()
    assert keys[1].all()


def test_bands_do_not_collide_with_each_other():
    keys = band_keys(words_of(1, 1), Dedup())[:, : Dedup().bands]
    assert len(np.unique(keys)) == keys.size


@pytest.mark.parametrize(("bands", "rows"), [(14, 8), (5, 3), (1, 1)])
def test_any_number_of_bands_and_rows(bands, rows):
    settings = Dedup(bands=bands, rows=rows)
    keys = band_keys(words_of(30, 4), settings)
    assert keys.shape == (2, bands + -(-bands * rows // 8))
    assert keys[:, :bands].all()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Dedup(), 0.9977),
        (Dedup(bands=14, rows=8), 0.9236),
        (Dedup(threshold=0.6), 0.6154),
        (Dedup(threshold=1.0, bands=1), 1.0),
    ],
)
def test_the_share_found_at_the_threshold(settings, expected):
    assert share_found(settings) == pytest.approx(expected, abs=1e-4)


def test_bands_and_rows_that_miss_duplicates_are_a_problem():
    def problems(**settings):
        build = Build(
            sources=(Source(files=("a.jsonl",)),),
            output=Output(folder="out"),
            dedup=Dedup(**settings),
        )
        return [(one.key, one.value, one.hint) for one in problems_of(build)]

    assert problems(near=True) == []
    assert problems(near=True, bands=14, rows=8) == []
    assert problems(near=False, threshold=0.6) == []
    assert problems(near=True, threshold=0.6) == [
        ("dedup.threshold", 0.6, "set dedup.bands = 34 and dedup.rows = 4")
    ]
    assert problems(near=True, threshold=0.6, bands=34, rows=4) == []
    assert problems(near=True, threshold=0.3)[0][2] == "set dedup.bands = 49 and dedup.rows = 2"
    assert problems(near=True, threshold=0.3, bands=49, rows=2) == []
    assert problems(near=True, rows=12)[0][:2] == ("dedup.rows", 12)
    assert problems(near=True, bands=3)[0][:2] == ("dedup.bands", 3)
    assert problems(near=True, threshold=0.01)[0][2] == "set dedup.bands = 459 and dedup.rows = 1"
    (only,) = problems(near=True, threshold=8.0)
    assert only == ("dedup.threshold", 8.0, "write a number from 0.01 to 1")
