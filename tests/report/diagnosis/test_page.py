"""The page: what it says first, that it is capped, and that no text steers a terminal."""

from __future__ import annotations

from dataclasses import replace

import nouns

from meshwright.diagnose.diagnosis import Evidence
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.page import diagnosis_page
from meshwright.report.page import plain


def page(found):
    return plain(diagnosis_page(found))


def test_the_answer_comes_first():
    text = page(nouns.diagnosis())
    assert text.splitlines()[:3] == list(nouns.diagnosis().summary)
    assert (
        text.index("where a step goes")
        < text.index("others wait")
        < text.index("1. CMP903")
        < text.index("kernel time")
    )


def test_a_cause_is_told_with_its_evidence_and_its_lever():
    text = page(nouns.diagnosis())
    assert "1. CMP903 one rank computes slower than its peers: 45.0 ms of a step (18.0%)" in text
    assert "= seen: last to arrive in 300 of 320 collectives [ncclDevKernel" in text
    assert '= plan: micro_batch_size = 2, recompute = "none"' in text
    assert "= gain: up to 45.0 ms of a step, what-if on the critical path" in text
    assert "= confidence: medium (fewer than two steps were traced)" in text


def test_guards_that_are_said_of_all_are_not_repeated():
    found = nouns.diagnosis()
    said = replace(found, guards=("fewer than two steps were traced",))
    text = page(said)
    assert text.count("fewer than two steps were traced") == 1
    assert "= confidence: medium\n" in text


def test_paths_are_cut_at_their_beginning():
    assert figures.path("/a/" + "b" * 60 + "/rank0.json", 24).endswith("/rank0.json")
    assert len(figures.path("/a/" + "b" * 60 + "/rank0.json", 24)) == 24
    assert figures.path("events of a kind", 24) == "events of a kind"


def test_waiting_is_told_from_transfer_and_promises_from_measurements():
    lines = page(nouns.diagnosis()).splitlines()
    (axis,) = [line for line in lines if line.startswith("tp ") and "45.0 ms" in line]
    assert axis.split() == ["tp", "80.0", "ms", "45.0", "ms", "35.0", "ms", "50.0", "ms"]
    (promise,) = [line for line in lines if line.startswith("time.communication.tp")]
    assert promise.split()[1:] == ["30.0", "ms", "80.0", "ms", "2.67", "no"]


def test_what_was_left_out_is_said():
    text = page(nouns.diagnosis())
    assert "no trace events" in text
    assert "900 us" in text


def test_a_thousand_ranks_are_capped_and_the_worst_is_first():
    text = page(nouns.diagnosis(1000, everything=False))
    lines = text.splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("rank "))
    assert lines[head + 1].split()[0] == str(nouns.LATE)
    assert len(lines) < 90
    assert "and 988 more ranks" in text


def test_one_rank_has_no_table_of_ranks():
    assert "mostly loses to" not in page(nouns.diagnosis(1))


def test_texts_of_traces_cannot_steer_a_terminal():
    text = page(nouns.diagnosis(text=nouns.BREAKOUT))
    assert not [c for c in text if ord(c) < 32 and c != "\n"]
    assert "\u202e" not in text
    assert "\\x1b[31m" in text


def test_an_answer_without_ranks_is_a_page():
    empty = replace(nouns.diagnosis(), evidence=Evidence(), causes=(), guards=(), left=())
    assert page(empty).splitlines() == list(empty.summary)
