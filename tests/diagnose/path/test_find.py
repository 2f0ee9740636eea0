"""The critical path fills its window, and what-ifs say what the run without the fault takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import Spec, write_run
from meshwright.diagnose.path import find, play
from meshwright.diagnose.path.find import critical_path
from meshwright.diagnose.path.noun import KINDS
from meshwright.diagnose.path.walk import pieces_of
from meshwright.diagnose.rank import Rank
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.columns import (
    Allocations,
    Calls,
    Device,
    DeviceEvents,
    Host,
    Meta,
    Operators,
    Trace,
)
from meshwright.diagnose.trace.read import read_trace

ROOT = Path(__file__).resolve().parents[3]
REAL = ROOT.parent / "shared" / "traces" / "public"
LIGHT = {"hidden": 1024, "ffn": 2816, "sequence": 512}


def path_of(spec, tmp_path, rank=0):
    trace = read_trace(write_run(spec, tmp_path)[rank])
    return critical_path(trace, rank_of(trace))


def check_whole(path):
    """Exact sums, known kinds, and no what-if that takes longer than what was measured."""
    assert sum(path.by_kind_us.values()) == pytest.approx(path.window_us, abs=1e-6)
    assert set(path.by_kind_us) <= set(KINDS)
    assert min(path.by_kind_us.values()) > 0
    assert path.step_us * path.steps == pytest.approx(path.window_us)
    for key, predicted in path.what_if_us.items():
        assert 0 <= predicted <= path.step_us + 1e-6, key
    at = 0.0
    for stretch in path.longest:
        assert stretch.start_us >= at - 1e-6
        at = stretch.start_us + stretch.dur_us
    assert at <= path.window_us + 1e-6


PLANTED = [
    # the run with a fault, the run without it, the question that takes the fault away
    ({"loader_us": 30_000}, {"loader_us": 0}, "data_loading", 0.005),
    ({"preprocess_us": 30_000, "with_stack": True}, {}, "data_loading", 0.005),
    ({"malloc_us": 8_000}, {}, "malloc", 0.01),
    ({"gc_us": 30_000}, {}, "host_pauses", 0.005),
    ({"gc_us": 30_000, "with_stack": True}, {}, "gc", 0.005),
    ({"pageable_copies": True, "batch_mb": 300}, {"batch_mb": 0}, "memory_copy", 0.005),
    ({"small_kernels": True}, {"operator_us": 0, "launch_us": 0}, "host_launch", 0.03),
    ({"tp": 4, "node_gbps": 50}, {"node_gbps": 1e9, "latency_us": 0}, "communication", 0.01),
    (
        {"dp": 4, "overlap": False, "ranks_per_host": 1},
        {"node_gbps": 1e9, "ranks_per_host": 8, "latency_us": 0},
        "communication",
        0.01,
    ),
    (
        {"dp": 4, "sharded": True, "ranks_per_host": 1},
        {"node_gbps": 1e9, "ranks_per_host": 8, "latency_us": 0},
        "communication",
        0.01,
    ),
]


@pytest.mark.parametrize(
    ("fault", "mended", "question", "tolerance"), PLANTED, ids=lambda v: str(v)
)
def test_a_question_predicts_the_run_without_the_fault(
    fault, mended, question, tolerance, tmp_path
):
    kept = {k: v for k, v in fault.items() if k in ("dp", "tp", "sharded", "overlap", *LIGHT)}
    kept |= {"small_kernels": True} if "small_kernels" in fault else {}
    ill = path_of(Spec(**fault), tmp_path / "ill")
    healthy = path_of(Spec(**kept | mended), tmp_path / "healthy")
    check_whole(ill)
    assert ill.what_if_us[question] == pytest.approx(healthy.step_us, rel=tolerance)
    assert ill.step_us > 1.05 * healthy.step_us


def test_the_path_names_what_it_hangs_on(tmp_path):
    path = path_of(Spec(loader_us=60_000), tmp_path)
    loading = max(path.longest, key=lambda s: s.dur_us)
    assert (loading.kind, loading.dur_us) == ("data_loading", pytest.approx(60_000, abs=50))
    assert loading.name.startswith("enumerate(DataLoader)")


def test_a_run_bound_by_compute_hangs_on_compute(tmp_path):
    path = path_of(Spec(), tmp_path)
    assert path.by_kind_us["compute"] > 0.99 * path.window_us
    assert path.what_if_us["host_launch"] > 0.99 * path.step_us
    assert (path.steps, path.first_step, path.left) == (3, "ProfilerStep#10", ())


def test_groups_have_questions_of_their_own(tmp_path):
    path = path_of(Spec(tp=2, dp=2, node_gbps=50), tmp_path)
    free = {k: v for k, v in path.what_if_us.items() if k.startswith("group ")}
    assert set(free) == {"group 0", "group 1", "group 3"}  # all, dp, tp
    assert free["group 3"] < free["group 0"]
    assert path.what_if_us["communication"] <= min(free.values())


@pytest.mark.parametrize(
    "spec",
    [
        {"cuda_graphs": True},
        {"gpu_only": True},
        {"lost_launches": 200},
        {"early_nccl": True, "dp": 2},
        {"sampled": 0.3},
        {"gpu": "mi300x", "dp": 2},
        {"era": "2021"},
        {"era": "2022", "dp": 2},
        {"profiled_steps": False},
        {"with_stack": True, "profile_memory": True, "profiler_us": 20},
        {"pp": 2, "micro_batches": 4},
        {"dp": 2, "ep": 2, "experts": 4, "moe_kernels": "deepep"},
        {"tp": 2, "symmetric_memory": True},
    ],
    ids=str,
)
def test_odd_traces_have_whole_paths(spec, tmp_path):
    check_whole(path_of(Spec(**spec), tmp_path))


def test_long_traces_are_looked_at_in_part_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "MOST_NODES", 1000)
    path = path_of(Spec(steps=5), tmp_path)
    check_whole(path)
    assert path.steps == 2
    (left,) = path.left
    assert (left.count, left.what) == (3, "steps without a critical path")
    assert left.time_us == pytest.approx(3 * path.step_us, rel=0.05)


def test_a_huge_step_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "MOST_IN_STEP", 100)
    path = path_of(Spec(steps=1), tmp_path)
    check_whole(path)
    assert path.left[0].what == "device events without a critical path"


def test_nothing_on_the_device_has_no_path():
    assert critical_path(made_trace([], []), WITHOUT_STEPS) is None


def test_waiting_for_the_device_is_no_work_of_the_host(tmp_path):
    path = path_of(Spec(items_per_layer=4, operator_us=2, **LIGHT), tmp_path)
    check_whole(path)
    assert path.what_if_us["synchronization"] < 0.9 * path.step_us


@pytest.mark.parametrize("name", sorted(p.name for p in REAL.glob("*")) or ["none"])
def test_real_traces_have_whole_paths(name):
    files = [f for f in REAL.glob(f"{name}/*.json*") if f.name != "expected.json"]
    if not files:
        pytest.skip(f"real traces are not at {REAL}")
    if name.startswith(("bytedance", "primus")):
        pytest.skip("not a trace of Kineto's")
    for file in files:
        trace = read_trace(file)
        path = critical_path(trace, rank_of(trace))
        assert (path is None) == (len(trace.device) == 0)
        if path is not None:
            check_whole(path)


def test_a_replay_of_nothing_changed_is_what_was_measured(tmp_path):
    for spec in (Spec(dp=2, sharded=True, steps=2), Spec(small_kernels=True, items_per_layer=2)):
        trace = read_trace(write_run(spec, tmp_path)[0])
        graph = find.graph_of(trace, find.window_of(trace, rank_of(trace)))
        order = play.order_of(graph)
        assert play.played(graph, play.weights_of(graph), order) == graph.window_ns


def test_it_takes_little_time(tmp_path, cpu_s):
    trace = read_trace(write_run(Spec(layers=24, steps=2), tmp_path)[0])
    rank = rank_of(trace)
    assert cpu_s(lambda: critical_path(trace, rank)) < 1.0  # 0.05 alone


times = st.integers(0, 400)
events = st.lists(st.tuples(times, st.integers(0, 60), st.integers(0, 2), st.integers(0, 12)))
calls = st.lists(st.tuples(times, st.integers(0, 40), st.integers(0, 4), st.integers(0, 12)))


@given(events.filter(bool), calls)
def test_any_table_has_a_whole_path(device, host):
    trace = made_trace(device, host)
    path = critical_path(trace, WITHOUT_STEPS)
    if path is None:
        assert not any(length for _, length, *_ in device)
        return
    check_whole(path)
    graph = find.graph_of(trace, find.window_of(trace, WITHOUT_STEPS))
    order = play.order_of(graph)
    assert play.played(graph, play.weights_of(graph), order) == graph.window_ns
    pieces = pieces_of(graph, find.least_of(trace, graph))
    assert pieces[0].start_ns == 0
    assert pieces[-1].end_ns == graph.window_ns
    assert all(a.end_ns == b.start_ns for a, b in pairwise(pieces))


@given(events.filter(bool))
def test_any_table_of_a_computing_host_has_a_whole_path(device):
    trace = made_trace(device, [])
    path = critical_path(trace, ON_HOST)
    if path is None:
        assert not any(length for _, length, *_ in device)
        return
    check_whole(path)
    graph = find.graph_of(trace, find.window_of(trace, ON_HOST), on_host=True)
    order = play.order_of(graph)
    assert play.played(graph, play.weights_of(graph), order) == graph.window_ns


def test_a_computing_host_waits_for_its_loader_and_transfers():
    # thread 0 computes, loads from 10 to 60, computes again; thread 1 transfers from 80 to 120
    device = [(0, 10, 0, 0), (60, 20, 0, 0), (80, 40, 1, 1), (125, 5, 0, 0)]
    trace = made_trace(device, [])
    loader = np.array([10_000], dtype=np.int64)
    one = np.zeros(1, dtype=np.int32)
    operators = replace(
        trace.operators,
        start_ns=loader,
        end_ns=loader + 50_000,
        name=one + len(trace.names),
        kind=np.array([Host.ANNOTATION], dtype=np.int8),
        thread=one,
        external=loader,
        message=one - 1,
        seq=loader,
        shape=one - 1,
    )
    names = (*trace.names, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    path = critical_path(replace(trace, names=names, operators=operators), ON_HOST)
    check_whole(path)
    assert dict(path.by_kind_us) == {
        "data_loading": 50,
        "communication": 40,
        "compute": 35,
        "host": 5,
    }
    assert path.what_if_us["data_loading"] == 80
    assert path.what_if_us["communication"] == 90
    assert path.what_if_us["host_launch"] == 125


def test_events_of_a_stream_that_overlap_are_queued_all_the_same():
    # the second begins before the first is over, as under programmatic dependent launch
    device = [(0, 1, 0, 0), (50, 30, 0, 3), (78, 32, 0, 6), (109, 31, 0, 9), (138, 30, 0, 12)]
    calls = [(2, 4, 0, 3), (10, 4, 0, 6), (20, 4, 0, 9), (30, 4, 0, 12)]
    path = critical_path(made_trace(device, calls), WITHOUT_STEPS)
    check_whole(path)
    assert path.what_if_us["host_launch"] > 100  # the stream is busy for 118 us


WITHOUT_STEPS = Rank(
    file="made",
    file_bytes=0,
    json_bytes=0,
    events=0,
    device_events=0,
    bad_events=0,
    meta=Meta(),
    left=(),
    gpu=None,
    rank=None,
    world_size=None,
    backend=None,
    nccl_version=None,
    computes_on="device",
)
ON_HOST = replace(WITHOUT_STEPS, computes_on="host")
NAMES = ("sgemm", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)")
CALLS = (
    *("cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaFree"),
    "cudaStreamWaitEvent",
)


def made_trace(device, host):
    """A trace of tables: (start, length, name, correlation) with three streams and threads."""
    device = sorted(device, key=lambda e: (e[0], -e[1]))
    host = sorted(host, key=lambda c: (c[0], -c[1]))

    def longs(values):
        return np.array([v * 1000 for v in values], dtype=np.int64)

    def ints(values):
        return np.array(list(values), dtype=np.int32)

    none = np.full(len(device), -1, dtype=np.int64)
    zero = np.zeros(0, dtype=np.int64)
    return Trace(
        file="made",
        file_bytes=1,
        json_bytes=1,
        events=len(device) + len(host),
        bad_events=0,
        origin_ns=0,
        names=NAMES + CALLS,
        messages=(),
        shapes=(),
        device=DeviceEvents(
            start_ns=longs(e[0] for e in device),
            end_ns=longs(e[0] + e[1] for e in device),
            name=ints(e[2] for e in device),
            kind=np.array(
                [Device.COPY if e[2] == 2 else Device.KERNEL for e in device], dtype=np.int8
            ),
            device=ints(0 for _ in device),
            stream=ints(e[3] % 3 for e in device),
            correlation=np.array([e[3] for e in device], dtype=np.int64),
            external=none,
            message=none.astype(np.int32),
            seq=none,
            bytes=none,
        ),
        calls=Calls(
            start_ns=longs(c[0] for c in host),
            end_ns=longs(c[0] + c[1] for c in host),
            name=ints(len(NAMES) + c[2] for c in host),
            thread=ints(c[3] % 3 for c in host),
            correlation=np.array([c[3] for c in host], dtype=np.int64),
            external=np.full(len(host), -1, dtype=np.int64),
        ),
        operators=Operators(
            start_ns=zero,
            end_ns=zero,
            name=zero.astype(np.int32),
            kind=zero.astype(np.int8),
            thread=zero.astype(np.int32),
            external=zero,
            message=zero.astype(np.int32),
            seq=zero,
            shape=zero.astype(np.int32),
        ),
        allocations=Allocations(
            at_ns=zero,
            bytes=zero,
            allocated_bytes=zero,
            reserved_bytes=zero,
            device=zero.astype(np.int32),
        ),
        meta=Meta(),
    )
