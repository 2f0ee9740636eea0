"""Link: exact duplicates, candidates and their groups."""

import numpy as np
import pytest
from scan_units import dropped, run_dedup, scanned_job

from meshwright.data.reasons import CODES
from meshwright.data.settings import Dedup
from meshwright.data.stages.link import key_link, link_units, run_link
from meshwright.data.stages.shingle import candidates_of

EXACT = CODES["exact_duplicate"]
WORDS = [f"word{number}" for number in range(400)]


def text(start, *, count=60):
    """A text of its own."""
    return " ".join(WORDS[start : start + count])


def test_the_earliest_of_equal_texts_stays(tmp_path):
    job = scanned_job(tmp_path, [["a b", "c", "a b"], [], ["c", "d", "a b"]], Dedup())
    run_dedup(job)
    assert dropped(job) == [
        (0, 2, EXACT, 0, 0, 1.0),
        (2, 0, EXACT, 0, 1, 1.0),
        (2, 2, EXACT, 0, 0, 1.0),
    ]


def test_exact_dedup_alone_makes_no_units_of_the_later_stages(tmp_path):
    job = scanned_job(tmp_path, [["a b", "a b"]], Dedup(near=False))
    assert run_dedup(job) == ["link 0"]


def test_nothing_is_done_without_dedup(tmp_path):
    job = scanned_job(tmp_path, [["a b", "a b"]], Dedup(exact=False, near=False))
    assert link_units(job) == {}
    assert run_dedup(job) == []
    assert dropped(job) == []


def test_documents_without_words_are_exact_duplicates_only(tmp_path):
    job = scanned_job(tmp_path, [["***", "+++", "***", "---"]], Dedup(near=True))
    run_dedup(job)
    assert [row[:2] for row in dropped(job)] == [(0, 2)]
    assert not len(candidates_of(job, 0))


def test_candidates_have_a_group_and_others_none(tmp_path):
    texts = [text(0), text(100), text(0) + " more", text(200), text(100) + " again"]
    job = scanned_job(tmp_path, [texts[:2], texts[2:]], Dedup(near=True))
    run_link(job, 0)
    assert candidates_of(job, 0).tolist() == [(0, 0, 0), (0, 1, 0)]
    assert candidates_of(job, 1).tolist() == [(1, 0, 0), (1, 2, 0)]


def test_large_components_make_groups_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.data.stages.link.GROUP_WORDS", 10)
    texts = [text(0), text(100), text(0) + " more", text(200), text(100) + " again"]
    job = scanned_job(tmp_path, [texts[:2], texts[2:]], Dedup(near=True))
    run_dedup(job)
    assert candidates_of(job, 0)["group"].tolist() == [0, 1]
    assert candidates_of(job, 1)["group"].tolist() == [0, 1]
    assert [row[:5] for row in dropped(job)] == [
        (1, 0, CODES["near_duplicate"], 0, 0),
        (1, 2, CODES["near_duplicate"], 0, 1),
    ]


@pytest.mark.parametrize(("scope", "expected"), [("all", 1), ("source", 0)])
def test_near_duplicates_of_another_source_stay_where_the_scope_says_so(tmp_path, scope, expected):
    units = [[text(0), text(100)], [text(0) + " more", text(100)]]
    job = scanned_job(tmp_path, units, Dedup(near=True, scope=scope), source_of=[0, 1])
    run_dedup(job)
    rows = dropped(job)
    assert sum(row[2] == CODES["near_duplicate"] for row in rows) == expected
    assert [row[:2] for row in rows if row[2] == EXACT] == [(1, 1)]


def test_the_key_changes_with_the_sources_where_these_bound_the_search(tmp_path):
    keys = {}
    for scope in ("all", "source"):
        for source_of in ((0, 0), (0, 1)):
            folder = tmp_path / f"{scope}{source_of[1]}"
            dedup = Dedup(near=True, scope=scope)
            job = scanned_job(folder, [["a b"], ["a b c"]], dedup, source_of=source_of)
            keys[scope, source_of[1]] = key_link(job, 0)
    assert keys["source", 0] != keys["source", 1]
    assert keys["all", 0] == keys["all", 1]


def test_the_key_changes_with_the_scan_and_the_settings_that_matter(tmp_path):
    def key(units, dedup):
        job = scanned_job(tmp_path, units, dedup)
        return key_link(job, 0)

    first = key([["a"], ["b"]], Dedup(near=True))
    assert key([["a"], ["b"]], Dedup(near=True)) == first
    assert key([["a"], ["b"]], Dedup(near=True, memory_bytes=1 << 20)) == first
    assert key([["a"], ["c"]], Dedup(near=True)) != first
    assert key([["a"], ["b"]], Dedup(near=False)) != first
    assert key([["a"], ["b"]], Dedup(near=True, threshold=0.7)) != first
    assert key([["a"], ["b"]], Dedup(near=True, exact=False)) != first


def test_exact_duplicates_found_among_near_ones_when_only_these_are_sought(tmp_path):
    job = scanned_job(tmp_path, [[text(0), text(0)]], Dedup(exact=False, near=True))
    run_dedup(job)
    assert dropped(job) == [(0, 1, CODES["near_duplicate"], 0, 0, 1.0)]


def test_candidates_are_ascending_and_not_exact_duplicates(tmp_path):
    texts = [text(0), text(0) + " x", text(0), text(0) + " y", text(0) + " x"]
    job = scanned_job(tmp_path, [texts[:3], texts[3:]], Dedup(near=True))
    run_link(job, 0)
    found = np.concatenate([candidates_of(job, 0), candidates_of(job, 1)])
    assert found[["unit", "survivor"]].tolist() == [(0, 0), (0, 1), (1, 0)]
