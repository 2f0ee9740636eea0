"""A run on CPUs as if its host were a device."""

import json

import numpy as np
import pytest

from meshwright.diagnose.host.timeline import as_device, computes_on_host
from meshwright.diagnose.trace.read import read_trace

MAIN, GLOO = 7, 9


def event(name, ts, dur, *, cat="cpu_op", tid=MAIN, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def mark(name, ts, dur):
    return event(name, ts, dur, cat="user_annotation")


EVENTS = [
    mark("ProfilerStep#1", 0, 1000),
    mark("enumerate(DataLoader)#Feeder.next", 10, 100),
    event("aten::stack", 20, 50),
    event("aten::linear", 200, 100, **{"External id": 11}),
    event("aten::mm", 220, 60, **{"External id": 12}),
    event("MmBackward0", 300, 20),
    event("autograd::engine::evaluate_function: MmBackward0", 320, 20),
    mark("FSDP::all_gather", 350, 100),
    event(
        "c10d::_allgather_base_",
        360,
        20,
        **{
            "External id": 13,
            "Input Dims": [[8], [4], []],
            "Input type": ["float", "float", ""],
        },
    ),
    event("gloo:all_gather", 370, 70, tid=GLOO, **{"External id": 3}),
    mark("checkpoint#Keeper.save", 700, 200),
    event("aten::copy_", 720, 100),
    event("gloo:all_reduce", 750, 100, tid=GLOO),
]


def traced(tmp_path, events=EVENTS, **own):
    path = tmp_path / "trace.json"
    document = {
        "schemaVersion": 1,
        "meshwright": {"computes_on": "cpu"} | own,
        "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 0,
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return read_trace(path)


@pytest.fixture
def trace(tmp_path):
    return as_device(traced(tmp_path))


def stretches(trace):
    device = trace.device
    names = [trace.names[number] for number in device.name]
    starts = ((device.start_ns + trace.origin_ns) // 1000).tolist()
    ends = ((device.end_ns + trace.origin_ns) // 1000).tolist()
    return list(zip(names, starts, ends, strict=True))


def test_operators_work_and_gloo_carries(trace):
    assert stretches(trace) == [
        ("aten::linear", 200, 220),
        ("aten::mm", 220, 280),
        ("aten::linear", 280, 300),
        ("gloo:all_gather", 370, 440),
    ]


def test_what_runs_while_saving_or_loading_is_not_training(trace):
    names = {name for name, _, _ in stretches(trace)}
    assert not names & {"aten::stack", "aten::copy_", "gloo:all_reduce"}


def test_a_transfer_has_the_sizes_of_who_asked_for_it(trace):
    message = trace.messages[trace.device.message[-1]]
    assert (message.collective, message.description) == ("_allgather_base", "fsdp")
    assert (message.in_elements, message.out_elements, message.dtype) == (4, 8, "Float")
    assert message.group_size == 2


def test_every_event_is_launched_where_it_begins(trace):
    assert np.array_equal(trace.calls.start_ns, trace.device.start_ns)
    assert np.array_equal(trace.calls.correlation, trace.device.correlation)


def test_matrix_products_keep_the_number_of_their_operator(trace):
    assert trace.device.external.tolist()[:3] == [11, 12, 11]


def test_a_run_on_gpus_is_none_of_these(tmp_path):
    assert computes_on_host(traced(tmp_path))
    assert not computes_on_host(traced(tmp_path, computes_on="cuda"))
    kernel = event("kernel", 0, 10, cat="kernel")
    assert not computes_on_host(traced(tmp_path, [*EVENTS, kernel]))


def test_a_trace_without_a_step_has_transfers_only(tmp_path):
    marks = ("ProfilerStep", "autograd")  # by which the threads that train are known
    trace = as_device(traced(tmp_path, [e for e in EVENTS if not e["name"].startswith(marks)]))
    assert {name for name, _, _ in stretches(trace)} == {"gloo:all_gather"}
