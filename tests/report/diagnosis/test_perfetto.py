"""The small trace: on one clock, without overlaps, small for any number of ranks."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import nouns
import numpy as np

from meshwright.diagnose.diagnosis import Evidence
from meshwright.report.diagnosis.bars import strips
from meshwright.report.diagnosis.perfetto import MOST_BARS, perfetto_json

MOST_BYTES = 5_000_000


def events(found):
    return json.loads(perfetto_json(found))["traceEvents"]


def test_ranks_have_their_lanes_steps_and_bars():
    found = events(nouns.diagnosis(everything=False))
    names = {e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1", "rank 2", "rank 3", "causes"}
    steps = [e for e in found if e["ph"] == "X" and e["tid"] == 0]
    assert len(steps) == 4 * nouns.STEPS
    assert min(e["ts"] for e in steps) == 0
    marks = [e["name"] for e in found if e["ph"] == "i"]
    assert marks[0].startswith("CMP903 ")


def test_evidence_is_marked_where_it_shows():
    found = nouns.diagnosis(4, everything=False)
    at_us = found.evidence.ranks[nouns.LATE].device_steps[0].start_us + 1200.0
    (cause, *_) = found.causes
    proofs = (replace(cause.evidence[0], start_us=at_us),)
    drawn = events(replace(found, causes=(replace(cause, evidence=proofs),)))
    (mark,) = [e for e in drawn if e["ph"] == "X" and e["name"].startswith("CMP903")]
    assert (mark["pid"], mark["dur"]) == (nouns.LATE, 700.0)
    assert abs(mark["ts"] - 1200.0) < 1


def test_bars_of_a_lane_do_not_overlap():
    lanes = defaultdict(list)
    for event in events(nouns.diagnosis()):
        if event["ph"] == "X" and event["tid"]:
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(lanes) >= 16
    for bars in lanes.values():
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(bars))


def test_bars_that_do_not_overlap_keep_their_length():
    (strip, *_) = strips(nouns.diagnosis(2).evidence, most=1000)
    own = nouns.bars()
    for lane in range(4):
        drawn = (strip.end_ns - strip.start_ns)[strip.lane == lane]
        assert drawn.tolist() == (own.end_ns - own.start_ns)[own.lane == lane].tolist()


def test_bars_that_overlap_are_cut_and_those_inside_others_vanish():
    one = nouns.rank(0, 1)
    bars = replace(
        one.bars,
        lane=np.array([1, 0, 1, 1, 0, 1], dtype=np.int32),
        label=np.zeros(6, dtype=np.int32),
        start_ns=np.array([0, 5, 10, 20, 30, 90], dtype=np.int64),
        end_ns=np.array([50, 20, 40, 80, 40, 100], dtype=np.int64),
    )
    (strip,) = strips(Evidence(ranks=(replace(one, bars=bars),)), most=1000)
    rows = zip(strip.lane.tolist(), strip.start_ns.tolist(), strip.end_ns.tolist(), strict=True)
    assert [row for row in rows if row[2] > row[1]] == [
        (0, 5, 20),
        (0, 30, 40),
        (1, 0, 50),
        (1, 50, 80),
        (1, 90, 100),
    ]


def test_clocks_are_set_to_one():
    found = nouns.diagnosis(2, everything=False)
    across = replace(found.evidence.across, clock_shift_us=(0.0, 5000.0))
    one, two = strips(replace(found.evidence, across=across), most=1000)
    assert two.start_ns[0] - one.start_ns[0] == -5_000_000


def test_many_ranks_with_many_bars_stay_small():
    found = nouns.diagnosis(64, everything=False)
    crowded = nouns.bars(count=20_000, label="k" * 200)
    ranks = tuple(replace(rank, bars=crowded) for rank in found.evidence.ranks)
    whole = replace(found, evidence=replace(found.evidence, ranks=ranks), causes=())
    text = perfetto_json(whole)
    record = json.loads(text)
    assert len(text) < MOST_BYTES
    drawn = sum(e["ph"] == "X" for e in record["traceEvents"])
    assert MOST_BARS / 2 < drawn < 1.1 * MOST_BARS
    assert record["otherData"]["left_out_bars"] == 64 * 20_000 - drawn + 64 * nouns.STEPS
    assert record["otherData"]["left_out_us"] > 0


def test_thousands_of_ranks_with_many_steps_stay_small():
    found = nouns.diagnosis(1000, everything=False)
    many = found.evidence.ranks[0].device_steps * 25
    ranks = tuple(replace(rank, device_steps=many) for rank in found.evidence.ranks)
    assert len(perfetto_json(replace(found, evidence=replace(found.evidence, ranks=ranks)))) < (
        MOST_BYTES
    )


def test_without_bars_there_is_still_a_trace():
    found = nouns.diagnosis(1)
    bare = replace(found.evidence, ranks=(replace(found.evidence.ranks[0], bars=None),))
    assert any(e["ph"] == "X" for e in events(replace(found, evidence=bare)))  # of the pipeline


def test_the_longest_bars_are_kept():
    found = nouns.diagnosis(1, everything=False)
    (strip,) = strips(found.evidence, most=40)
    assert set(np.asarray(strip.lane).tolist()) == {0}
    assert strip.left == 120
