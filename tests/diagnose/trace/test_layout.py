"""What a file is by its first bytes, and which files an analysis is given."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
import trace_texts as texts

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.trace.layout import find_traces, layout_of, natural

OPERATION = {"name": "forward-compute", "cat": "forward-compute", "ph": "X", "ts": 1, "dur": 2}
ITERATION = {"1": {"total": 7.5, "memory": 8.5, "fwd_start": [0.1], "fwd_end": [0.2]}}
KINDS = {
    "kineto": [*texts.layouts(texts.events(3)).values(), "[]", '{"schemaVersion": 1, "trac'],
    "operations": [json.dumps([OPERATION]), json.dumps({"traceEvents": [OPERATION]})],
    "iterations": [json.dumps(ITERATION), json.dumps(ITERATION, indent=2)],
    "metrics": ['{"step":1,"loss":5.7,"step_s":2.4}\n{"step":2,"loss":5.1}\n'],
    "snapshot": [
        json.dumps({"segments": [], "device_traces": [[]]}),
        json.dumps([{"device": 0, "total_size": 2097152, "blocks": []}]),
    ],
    "nccl-log": ["host:1:2 [0] NCCL INFO Bootstrap : Using eth0\n", "NCCL version 2.21.5+cuda12.4"],
    "pickle": [pickle.dumps([1]), b"PK\x03\x04" + bytes(26) + b"archive/data.pkl"],
    "unknown": [b"", b"hello", '{"a": 1}', '{"step_time_us_median": 4}', b"\x89PNG", "[1, 2]"],
}
CASES = [(kind, text) for kind, held in KINDS.items() for text in held]


@pytest.mark.parametrize(("kind", "text"), CASES, ids=[kind for kind, _ in CASES])
@pytest.mark.parametrize("packed", [False, True])
def test_layouts_are_known_by_their_first_bytes(kind, text, packed, tmp_path):
    path = tmp_path / "some.json"
    raw = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert layout_of(path) == ("unknown" if packed and raw[:2] == b"PK" else kind)


def test_events_far_behind_much_metadata(tmp_path):
    path = tmp_path / "far.json"
    held = {"metadata": {"a": "x" * 300_000}, "traceEvents": texts.events(2)}
    path.write_text(json.dumps(held))
    assert layout_of(path) == "kineto"


def test_files_that_cannot_be_opened_are_unknown(tmp_path):
    assert layout_of(tmp_path / "none.json") == "unknown"
    assert layout_of(tmp_path) == "unknown"


@pytest.fixture(name="folder")
def _folder(tmp_path):
    text = texts.kineto(texts.events(2))
    for name in ("rank_10.json", "rank_2.json", "deep/rank_1.json", ".hidden.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "expected.json").write_text('{"step_time_us_median": 4}')
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "nccl.log").write_text("h:1:2 [0] NCCL INFO x\n")
    return tmp_path


def names(found):
    return [path.name for path in found]


def test_folders_give_their_traces_in_natural_order(folder):
    found, left = find_traces([folder])
    assert sorted(names(found)) == ["nccl.log", "rank_1.json", "rank_10.json", "rank_2.json"]
    assert names(found).index("rank_2.json") < names(found).index("rank_10.json")
    assert [(one.what, one.count) for one in left] == [(str(folder / "expected.json"), 1)]


def test_patterns_and_files_each_once(folder):
    found, left = find_traces([folder / "rank_2.json", f"{folder}/rank_*.json", str(folder)])
    assert names(found)[:2] == ["rank_2.json", "rank_10.json"]
    assert len(found) == len(set(found)) == 4
    assert len(left) == 1


def test_files_that_are_named_are_kept_whatever_they_are(folder):
    assert names(find_traces([folder / "expected.json"])[0]) == ["expected.json"]


def test_what_training_keeps_beside_its_traces_is_passed_over(folder):
    (folder / "run.json").write_text("{}")
    (folder / "summary.json").write_text("{}")
    (folder / "step-10").mkdir()
    (folder / "step-10" / "manifest.json").write_text("{}")
    (folder / "other.json").write_text("{}")
    _, left = find_traces([folder])
    assert {Path(one.what).name for one in left} == {"expected.json", "other.json"}


@pytest.mark.parametrize("path", ["none.json", "none*.json", "a\0b"])
def test_what_does_not_exist_is_refused(path, tmp_path):
    with pytest.raises(InvalidInput, match="no such trace"):
        find_traces([tmp_path / path if "\0" not in path else path])


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").symlink_to(tmp_path)
    (tmp_path / "a" / "rank0.json").write_text("[]")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    found, left = find_traces([tmp_path])
    assert names(found) == ["rank0.json"]
    assert len(left) == 1


def test_numbers_in_names_count_as_numbers():
    assert sorted(["r10", "r9", "a", "r9b", ""], key=natural) == ["", "a", "r9", "r9b", "r10"]
