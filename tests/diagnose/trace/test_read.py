"""The reader that streams against the plain one: layouts, sizes of pieces, eras, real traces."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import numpy as np
import plain_reader
import pytest
import trace_texts as texts
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.trace import read, source
from meshwright.diagnose.trace.columns import Device, Host, Trace

PUBLIC = Path(__file__).parents[4] / "shared" / "traces" / "public"
LAYOUTS = texts.layouts(texts.events())
LONG_NS = 100_000


def traced(folder: Path, text: str | bytes, *, piece: int | None = None) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if piece is None:
        return read.read_trace(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "PIECE_BYTES", piece)
        patch.setattr(read, "PIECE_BYTES", piece)
        return read.read_trace(path)


def rows(trace: Trace, table: str) -> list[tuple]:
    """A table's rows with names, messages and shapes instead of their numbers."""
    held, places = getattr(trace, table), {"thread": {}}
    lists = {"name": trace.names, "message": trace.messages, "shape": trace.shapes}
    columns = []
    for column in fields(held):
        values = getattr(held, column.name).tolist()
        if column.name in lists:
            values = [lists[column.name][v] if v >= 0 else None for v in values]
        if column.name in places:  # numbered in the order of appearance, which is the reader's own
            seen = places[column.name]
            values = [seen.setdefault(v, len(seen)) for v in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def long_only(trace: Trace) -> Trace:
    """The trace without what the streaming reader does not keep: short Python frames."""
    held = trace.operators
    kept = (held.kind != Host.PYTHON) | (held.end_ns - held.start_ns >= LONG_NS)
    return _with(trace, {f.name: getattr(held, f.name)[kept] for f in fields(held)})


def _with(trace: Trace, columns: dict) -> Trace:
    from dataclasses import replace

    return replace(trace, operators=replace(trace.operators, **columns))


def check_same(one: Trace, other: Trace) -> None:
    for table in ("device", "calls", "operators", "allocations"):
        assert rows(one, table) == rows(other, table), table
    assert one.origin_ns == other.origin_ns


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "trace.json"
    path.write_text(LAYOUTS["kineto"])
    return long_only(plain_reader.read_trace(path))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("piece", [None, 200, 700, 3000])
def test_every_layout_in_pieces_of_any_size_holds_the_same(layout, piece, plain, tmp_path):
    trace = traced(tmp_path, LAYOUTS[layout], piece=piece)
    check_same(trace, plain)
    assert len(trace.device) == 7
    assert trace.events == plain.events
    open_end = [left for left in trace.left if left.what == "end of the file"]
    assert len(trace.left) == len(open_end) == (layout == "bare array, open")
    if "array" not in layout:
        assert (trace.meta.rank, trace.meta.world_size, trace.meta.backend) == (3, 8, "nccl")
        assert trace.meta.groups[0].ranks == (0, 1)
        assert trace.meta.gpu == "NVIDIA H100"
    if "array" not in layout and layout != "an event a line":
        assert trace.meta.base_ns == 1711964646000000000


@settings(max_examples=40, deadline=None)
@given(piece=st.integers(100, 5000), layout=st.sampled_from(list(LAYOUTS)), packed=st.booleans())
def test_where_pieces_end_changes_nothing(piece, layout, packed, plain, tmp_path_factory):
    text = LAYOUTS[layout].encode()
    folder = tmp_path_factory.mktemp("pieces")
    check_same(traced(folder, gzip.compress(text) if packed else text, piece=piece), plain)


def test_short_python_frames_are_counted_and_long_ones_kept(tmp_path):
    trace = traced(tmp_path, LAYOUTS["kineto"])
    kept = [trace.names[n] for n in trace.operators.name[trace.operators.kind == Host.PYTHON]]
    assert kept == ["train.py(3): step"]
    assert trace.facts == {
        "python_frames_short": 1.0,
        "python_frames_short_us": 3.25,
        "events_ac2g": 6.0,
    } or trace.facts == {"python_frames_short": 1.0, "python_frames_short_us": 3.25}


@pytest.mark.parametrize(
    "start",
    [
        "1712195495502094.453",  # April 2024: microseconds since 1970, with decimals
        "4458676522690.655",  # since the quarter began
        "7516230579530.853",  # near the end of the quarter, where floats are coarse
        "1623143093496523",  # 2021: whole microseconds
        "0.001",
        "8796093022208.001",
    ],
)
@pytest.mark.parametrize("as_text", [False, True, "tab"])
def test_times_are_exact_in_every_era(start, as_text, tmp_path):
    stamps = [Decimal(start) + n * Decimal("0.037") for n in range(9)]
    held = [texts.kernel(n, f"@{stamp}@", 0.037) for n, stamp in enumerate(stamps)]
    tab = "\\t" if as_text == "tab" else ""
    text = texts.kineto(held)
    if as_text:
        text = text.replace('"@', '"').replace('@"', tab + '"')
    else:
        text = text.replace('"@', "").replace('@"', "")
    trace = traced(tmp_path, text, piece=400)
    assert (trace.device.start_ns + trace.origin_ns).tolist() == [int(s * 1000) for s in stamps]
    assert set((trace.device.end_ns - trace.device.start_ns).tolist()) == {37}
    assert trace.left == ()


def test_eras_call_the_same_things_by_other_names(tmp_path):
    old = [
        {**texts.event("Operator", "aten::mm", 5, 3), "tid": "25", "args": {"External id": 1}},
        {**texts.event("Operator", "ProfilerStep#2", 4, 9), "tid": "25"},
        {**texts.event("Runtime", "cudaLaunchKernel", 6, 1), "args": {"external id": 1}},
        {**texts.event("Kernel", "k", 7, 2), "tid": "stream 7", "args": {"external id": 1}},
        {**texts.event("Memcpy", "Memcpy HtoD", 9, 2), "tid": "stream 20", "args": {"bytes": 64}},
    ]
    trace = traced(tmp_path, json.dumps({"traceEvents": old}))
    assert trace.operators.kind.tolist() == [Host.ANNOTATION, Host.OPERATOR]
    assert trace.device.stream.tolist() == [7, 20]
    assert trace.device.kind.tolist() == [Device.KERNEL, Device.COPY]
    assert trace.device.external.tolist() == [1, -1]
    assert trace.device.bytes.tolist() == [-1, 64]
    assert trace.calls.external.tolist() == [1]
    assert len(set(trace.operators.thread.tolist())) == 1


@pytest.mark.parametrize("word", ["cuda_driver", "hip_runtime", "xpu_runtime", "mtia_runtime"])
def test_calls_of_every_maker(word, tmp_path):
    trace = traced(tmp_path, json.dumps([texts.event(word, "launch", 1.5, 2.5)]))
    assert len(trace.calls) == 1


def test_annotations_of_the_device_and_waits_are_no_work(tmp_path):
    held = [
        texts.event("gpu_user_annotation", "ProfilerStep#1", 1.0, 50.0),
        texts.event("overhead", "Buffer Flush", 2.0, 5.0),
        {**texts.event("mtia_ccp_events", "event_wait", 3.0, 5.0), "tid": 4},
        {**texts.event("mtia_ccp_events", "dma_request", 9.0, 5.0), "tid": 4},
        {**texts.event("mtia_ccp_events", "add-dtype_Float", 15.0, 5.0), "tid": 4},
        texts.event("made_up", "what", 30.0, 2.5),
    ]
    trace = traced(tmp_path, json.dumps(held))
    assert [trace.names[n] for n in trace.spans.name] == ["ProfilerStep#1"]
    assert trace.operators.kind.tolist() == [Host.OVERHEAD]
    assert trace.device.kind.tolist() == [Device.COPY, Device.KERNEL]
    assert trace.facts["device_waits_us"] == 5.0
    (left,) = trace.left
    assert (left.what, left.count, left.time_us) == ("events of category 'made_up'", 1, 2.5)


def test_rank_in_the_names_of_processes(tmp_path):
    named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "trainer rank 5"}}
    assert traced(tmp_path, json.dumps([named])).meta.rank == 5


def test_a_limit_on_the_text_is_kept(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(LAYOUTS["kineto"])
    with pytest.raises(InvalidInput, match="more than"):
        read.read_trace(path, limit_bytes=1000)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(InvalidInput, match="inflates to more than"):
        read.read_trace(path, limit_bytes=1000)


def public_traces() -> list[Path]:
    found = sorted(PUBLIC.glob("*/*.json*")) if PUBLIC.is_dir() else []
    other = ("expected", "timeline", "pp_rank", "ms-", "mw-")
    small = [p for p in found if not p.name.startswith(other) and p.stat().st_size < 900_000]
    return [p for p in small if "dlrm" not in str(p) or p.name == "rank_3.json.gz"]


@pytest.mark.parametrize("path", public_traces() or [None], ids=lambda p: p and p.parent.name)
def test_real_traces_hold_what_the_plain_reader_finds(path):
    if path is None:
        pytest.skip(f"the public traces are not at {PUBLIC}")
    trace, other = read.read_trace(path), long_only(plain_reader.read_trace(path))
    kept = trace.operators.kind != Host.OVERHEAD
    columns = {f.name: getattr(trace.operators, f.name)[kept] for f in fields(trace.operators)}
    check_same(_with(trace, columns), other)
    assert trace.meta == other.meta
    assert (trace.json_bytes, trace.events) == (other.json_bytes, other.events)
    assert trace.left == ()
    assert np.all(trace.device.end_ns >= trace.device.start_ns)
