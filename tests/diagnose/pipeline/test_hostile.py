"""Damaged and hostile traces of pipelines: a sound answer or a clear refusal, never a traceback."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operations_made import Made

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.pipeline.read import read_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.pipeline.noun import Pipeline

TEXT = json.dumps(Made(pp=2, m=2, dp=2, steps=2).run().events)
RANK = {
    str(i): {
        "total": 40.0,
        "memory": 1.5,
        "fwd_start": [0.0, 10.0],
        "fwd_end": [5.0, 15.0],
        "bwd_start": [5.0, 15.0],
        "bwd_end": [10.0, 20.0],
    }
    for i in range(1, 5)
}


def sound(pipeline: Pipeline) -> None:
    assert pipeline.step_span_us_median >= 0
    assert pipeline.compute_share_of_step_mean >= 0
    assert all(us >= 0 for us in pipeline.what_if_us.values())
    assert all(us >= 0 for us in pipeline.op_time_sum_us.values())
    assert pipeline.slowdown is None or pipeline.slowdown >= 0


def read_text(folder: Path, text: str | bytes, name: str = "timeline-X.json") -> Pipeline:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_pipeline([path])


def events(**changes: Any) -> str:
    """The made events with fields of every seventh one changed."""
    made = json.loads(TEXT)
    for n, event in enumerate(made):
        if n % 7 == 3 and event["ph"] == "X":
            event |= changes
    return json.dumps(made)


def test_a_truncated_file_says_what_is_missing(tmp_path: Path) -> None:
    pipeline = read_text(tmp_path, TEXT[: int(len(TEXT) * 0.8)])
    sound(pipeline)
    assert any("damaged" in left.what for left in pipeline.left)


def test_truncated_gzip_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT.encode())
    pipeline = read_text(tmp_path, packed[: int(len(packed) * 0.9)], "timeline-X.json.gz")
    sound(pipeline)
    assert any("ends too early" in left.reason for left in pipeline.left)


@pytest.mark.parametrize(
    "changes",
    [
        {"dur": -5.0},
        {"dur": "12.5"},
        {"dur": None},
        {"ts": "nonsense"},
        {"ts": 1e300},
        {"ts": [1]},
        {"args": {"step": None}},
        {"args": {"step": 10**30}},
        {"args": []},
        {"pid": "rank \u0007 <script>"},
        {"tid": {}},
        {"cat": 7, "name": 8},
        {"cat": "unheard-of"},
    ],
)
def test_wrong_fields_cost_their_events_only(tmp_path: Path, changes: dict[str, Any]) -> None:
    pipeline = read_text(tmp_path, events(**changes))
    sound(pipeline)
    assert pipeline.p == 2


def test_numbers_json_does_not_know_cost_their_events_only(tmp_path: Path) -> None:
    pipeline = read_text(tmp_path, events(dur=float("nan")))
    sound(pipeline)
    assert any("without times" in left.what for left in pipeline.left)


def test_a_step_that_lacks_operations_is_left_out_of_the_replay(tmp_path: Path) -> None:
    made = [e for e in json.loads(TEXT) if not _first_forward(e)]
    pipeline = read_text(tmp_path, json.dumps(made))
    assert pipeline.steps == 2
    assert pipeline.slowdown is not None
    assert any("replay" in left.what for left in pipeline.left)


def _first_forward(event: dict[str, Any]) -> bool:
    args = event["args"]
    return event["name"] == "forward-compute" and (args["step"], args["mb_id"]) == (0, 0)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "7", "not json", "[[]]", '{"traceEvents": 3}']
)
def test_what_is_no_trace_is_refused_with_what_to_type(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_text(tmp_path, text)
    assert caught.value.findings[0].hint


def test_without_computes_nothing_is_replayed(tmp_path: Path) -> None:
    made = [e for e in json.loads(TEXT) if not str(e["name"]).endswith("compute")]
    pipeline = read_text(tmp_path, json.dumps(made))
    assert pipeline.slowdown is None
    assert any("no step has all of its computes" in left.reason for left in pipeline.left)


def test_steps_and_workers_cannot_fill_the_memory(tmp_path: Path) -> None:
    made = json.loads(TEXT)
    threads = [e for e in made if e["ph"] == "M"]
    event = next(e for e in made if e["ph"] == "X")
    many = [
        event
        | {
            "pid": n,
            "tid": threads[0]["tid"],
            "args": {"step": 7 * n, "model_chunk": 0, "mb_id": 0},
        }
        for n in range(5000)
    ]
    threads += [threads[0] | {"pid": n} for n in range(5000)]
    with pytest.raises(InvalidInput, match="none of a pipeline"):
        read_text(tmp_path, json.dumps(threads + many))


def test_no_file_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for paths in ([], [tmp_path / "none.json"], [tmp_path]):
        with pytest.raises(InvalidInput):
            read_pipeline(paths)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, len(TEXT) - 1), length=st.integers(0, 40), put=st.binary(max_size=12))
def test_any_damage_is_survived(tmp_path: Path, at: int, length: int, put: bytes) -> None:
    raw = TEXT.encode()
    try:
        sound(read_text(tmp_path, raw[:at] + put + raw[at + length :]))
    except InvalidInput:
        assert at < 200 or length == 0  # only damage before the first event can cost everything


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total", 0.0),
        ("total", "long"),
        ("total", None),
        ("fwd_start", [1.0]),
        ("fwd_end", [-5.0, 1.0]),
        ("bwd_start", "x"),
        ("bwd_end", [None, None]),
    ],
)
def test_damaged_iterations_are_left_out(tmp_path: Path, name: str, value: Any) -> None:
    entries = json.loads(json.dumps(RANK))
    entries["3"][name] = value
    (tmp_path / "pp_rank_1.json").write_text(json.dumps(RANK))
    (tmp_path / "pp_rank_0.json").write_text(json.dumps(entries))
    pipeline = read_pipeline(sorted(tmp_path.glob("pp_rank_*.json")))
    sound(pipeline)
    assert pipeline.p == 2
    assert len(pipeline.ranks["0"]["iterations"]) == 3
    assert any(left.what == "iterations" for left in pipeline.left)


def test_memory_beside_iterations_may_be_missing(tmp_path: Path) -> None:
    entries = {k: {n: x for n, x in v.items() if n != "memory"} for k, v in RANK.items()}
    (tmp_path / "pp_rank_0.json").write_text(json.dumps(entries))
    pipeline = read_pipeline([tmp_path / "pp_rank_0.json"])
    assert pipeline.ranks["0"]["memory_gb"] is None
    assert pipeline.ideal_bubble_pct == 0.0


def test_kinds_beyond_number_are_left_out(tmp_path: Path) -> None:
    made = json.loads(TEXT)
    some = next(e for e in made if e["ph"] == "X")
    pipeline = read_text(tmp_path, json.dumps(made + [some | {"cat": f"k{n}"} for n in range(999)]))
    assert len(pipeline.op_time_sum_us) == 256
    assert any("rare kinds" in left.what for left in pipeline.left)
    assert pipeline.slowdown is not None


def test_more_stages_than_there_are_layers_are_refused(tmp_path: Path) -> None:
    threads = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": n, "args": {"name": name}}
        for n, name in enumerate(f"PP rank {n}, TP rank 0, compute" for n in range(1100))
    ]
    made = [
        {"ph": "X", "cat": "forward-compute", "pid": 0, "tid": n, "ts": n, "dur": 1, "args": args}
        for n, args in enumerate([{"step": 0, "mb_id": 0}] * 1100)
    ]
    with pytest.raises(InvalidInput, match="none of a pipeline"):
        read_text(tmp_path, json.dumps(threads + made))
