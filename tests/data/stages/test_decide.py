"""Decide: what is dropped is what the definition says, however the work is divided."""

import os
import random
import resource
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scan_units import dropped, run_dedup, scanned_job, write_scan

from meshwright.data.reasons import CODES
from meshwright.data.settings import Dedup
from meshwright.data.stages.decide import decide_units, dropped_of

NEAR, EXACT = CODES["near_duplicate"], CODES["exact_duplicate"]
NEARLY = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def corpus(seed, *, families=6, size=5):
    """Texts in families that differ in some words, with exact copies among them."""
    draw = random.Random(seed)
    texts = []
    for family in range(families):
        words = [f"f{family}w{draw.randrange(200)}" for _ in range(draw.choice([3, 30, 80, 300]))]
        texts.append(" ".join(words))
        for _ in range(size - 1):
            other = list(words)
            for _ in range(draw.randrange(4)):
                other[draw.randrange(len(other))] = f"x{draw.randrange(1000)}"
            texts.append(" ".join(other))
    draw.shuffle(texts)
    return texts


def shingles(text):
    words = text.split()
    runs = [tuple(words[i : i + 5]) for i in range(len(words) - 4)]
    return set(runs or [tuple(words)])


def similarity(one, other):
    return len(one & other) / len(one | other)


def plain_dropped(texts, threshold=0.8):
    """Number, reason and similarity of all that go when every pair is compared."""
    seen, kept, found = set(), [], {}
    sets = [shingles(text) for text in texts]
    for number, text in enumerate(texts):
        if text in seen:
            found[number] = EXACT
            continue
        seen.add(text)
        if any(similarity(sets[number], sets[one]) >= threshold for one in kept):
            found[number] = NEAR
        else:
            kept.append(number)
    return found


def divided(texts, cuts):
    edges = [0, *sorted(cuts), len(texts)]
    return [texts[first:last] for first, last in pairwise(edges)]


def numbered(job, units):
    """The duplicates by their number in the corpus: number, reason, of, similarity."""
    firsts = [0]
    for texts in units:
        firsts.append(firsts[-1] + len(texts))
    return [
        (firsts[unit] + one, reason, firsts[of_unit] + of, near)
        for unit, one, reason, of_unit, of, near in dropped(job)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_all_that_a_comparison_of_every_pair_drops(tmp_path, seed):
    texts = corpus(seed, families=20)
    job = scanned_job(tmp_path, [texts], Dedup(near=True))
    run_dedup(job)
    rows = numbered(job, [texts])
    assert {number: reason for number, reason, _, _ in rows} == plain_dropped(texts)
    gone = {number for number, reason, _, _ in rows if reason == NEAR}
    for number, reason, of, near in rows:
        if reason == NEAR:
            assert of < number
            assert of not in gone
            found = similarity(shingles(texts[number]), shingles(texts[of]))
            assert near == pytest.approx(found, abs=1e-6)
        else:
            assert texts[of] == texts[number]


@NEARLY
@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 30), max_size=5),
    memory_bytes=st.sampled_from([400, 5000, 1 << 28]),
    group_words=st.sampled_from([1, 200, 1 << 22]),
    per_block=st.integers(1, 9),
)
def test_no_division_of_the_work_changes_a_decision(
    tmp_path_factory, seed, cuts, memory_bytes, group_words, per_block
):
    texts = corpus(seed)
    whole = scanned_job(tmp_path_factory.mktemp("whole"), [texts], Dedup(near=True))
    run_dedup(whole)
    units = divided(texts, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshwright.data.stages.link.GROUP_WORDS", group_words)
        parts = scanned_job(
            tmp_path_factory.mktemp("parts"),
            units,
            Dedup(near=True, memory_bytes=memory_bytes),
            per_block=per_block,
        )
        run_dedup(parts)
    assert numbered(parts, units) == numbered(whole, [texts])


@pytest.mark.parametrize(("shingle_words", "expected"), [(1, [NEAR]), (5, [])])
def test_longer_shingles_tell_the_same_words_in_another_order_apart(
    tmp_path, shingle_words, expected
):
    words = [f"word{number}" for number in range(40)]
    texts = [" ".join(words), " ".join(reversed(words))]
    job = scanned_job(tmp_path, [texts], Dedup(near=True, shingle_words=shingle_words))
    run_dedup(job)
    assert [row[2] for row in dropped(job)] == expected


def test_units_are_made_again_only_when_what_they_read_has_changed(tmp_path):
    job = scanned_job(tmp_path, divided(corpus(3), [10, 20]), Dedup(near=True))
    assert run_dedup(job) == ["link 0", "shingle 0", "shingle 1", "shingle 2", "decide 0"]
    assert run_dedup(job) == []
    write_scan(job, 1, ["a text that no other is like", *corpus(3)[11:20]])
    assert run_dedup(job)[0] == "link 0"
    assert run_dedup(job) == []


@pytest.mark.parametrize("threshold", [0.6, 0.95, 1.0])
def test_another_threshold(tmp_path, threshold):
    texts = corpus(4)
    bands, rows = (60, 3) if threshold < 0.8 else (20, 6)
    dedup = Dedup(near=True, threshold=threshold, bands=bands, rows=rows)
    job = scanned_job(tmp_path, [texts], dedup)
    run_dedup(job)
    found = {number: reason for number, reason, _, _ in numbered(job, [texts])}
    assert found == plain_dropped(texts, threshold)


def test_more_units_than_files_can_be_open(tmp_path):
    texts = [f"{one} {two}" for two in "ab" for one in corpus(5, families=40, size=1)]
    units = [[text] for text in texts]
    job = scanned_job(tmp_path, units, Dedup(near=True))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(tmp_path, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 25, before[1]))
    try:
        run_dedup(job)
        rows = numbered(job, units)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(spare)
    assert {number: reason for number, reason, _, _ in rows} == plain_dropped(texts)


def test_sets_too_large_for_the_memory_lie_in_a_file(tmp_path):
    texts = corpus(6)
    found = []
    for name, memory_bytes in (("memory", 1 << 28), ("file", 3000)):
        dedup = Dedup(near=True, memory_bytes=memory_bytes)
        job = scanned_job(tmp_path / name, [texts], dedup)
        run_dedup(job)
        found.append(numbered(job, [texts]))
        assert not [path for path in job.store.root.rglob("*") if "tmp" in path.name]
    assert found[0] == found[1]


def test_a_unit_is_a_group_and_weighs_its_words(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.data.stages.link.GROUP_WORDS", 1)
    one, other = " ".join("abcdefghij"), " ".join("klmnopqrstuv")
    job = scanned_job(tmp_path, [[one, other, one + " z", other + " z"]], Dedup(near=True, rows=1))
    run_dedup(job)
    assert decide_units(job) == {0: 21, 1: 25}
    assert dropped_of(job, 0)["survivor"].tolist() == [2, 3]
