"""Shingle: sets of those survivors that are candidates, whatever their blocks."""

from itertools import pairwise

from scan_units import run_dedup, scanned_job, write_scan

from meshwright.data.dedup.shingles import shingle_sets
from meshwright.data.documents import documents_of
from meshwright.data.settings import Dedup
from meshwright.data.stages.shingle import key_shingle, shingle_units
from meshwright.data.words.table import Table


def texts_of(count):
    """Texts of which every second one is nearly the one before."""
    words = [" ".join(f"t{number}w{word}" for word in range(50)) for number in range(count // 2)]
    return [text for one in words for text in (one, one + " tail")] + ["alone in the world"]


def test_a_unit_holds_the_sets_of_its_candidates(tmp_path):
    texts = texts_of(10)
    job = scanned_job(tmp_path, [texts], Dedup(near=True), per_block=3)
    run_dedup(job)
    survivors = job.store.column("shingle", 0, "survivors").tolist()
    assert survivors == list(range(10))
    hashes, bounds = shingle_sets(Table.of(documents_of(texts)), 5)
    expected = [hashes[a:b].tolist() for a, b in pairwise(bounds.tolist())]
    hashes, bounds = (job.store.column("shingle", 0, name) for name in ("hashes", "bounds"))
    assert [hashes[a:b].tolist() for a, b in pairwise(bounds.tolist())] == expected[:10]


def test_units_without_candidates_are_not_made(tmp_path):
    job = scanned_job(tmp_path, [["a b c d e f g"], texts_of(2)], Dedup(near=True))
    run_dedup(job)
    assert list(shingle_units(job)) == [1]


def test_another_unit_does_not_matter_to_the_key_unless_the_candidates_change(tmp_path):
    job = scanned_job(tmp_path, [texts_of(4), ["a b c d e f g"]], Dedup(near=True))
    run_dedup(job)
    before = key_shingle(job, 0)
    write_scan(job, 1, ["something else entirely"])
    assert run_dedup(job) == ["link 0"]
    assert key_shingle(job, 0) == before
    write_scan(job, 1, ["alone in the world"])
    assert run_dedup(job) == ["link 0"]  # an exact duplicate is no candidate
    write_scan(job, 1, [texts_of(4)[0] + " head"])
    assert run_dedup(job) == ["link 0", "shingle 1", "decide 0"]
    assert key_shingle(job, 0) == before
