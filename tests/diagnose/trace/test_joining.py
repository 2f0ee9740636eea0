"""Kernels of collectives find their messages by External id, then by the call that launched."""

from __future__ import annotations

import json

import pytest
import trace_texts as texts

from meshwright.diagnose.trace.read import read_trace

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = {**texts.MESSAGE, "Seq": 42}


def comms(number, ts, dur, *, tid=11, **said):
    one = texts.event("cpu_op", "record_param_comms", ts, dur, args={"External id": number, **said})
    return one | {"tid": tid}


def launched(correlation, ts, *, tid=11):
    args = {"correlation": correlation}
    return texts.event("cuda_runtime", "cudaLaunchKernelExC", ts, 2.0, args=args) | {"tid": tid}


def nccl(ts, *, name=NCCL, **args):
    where = {"device": 0, "stream": 20, **args}
    return texts.event("kernel", name, ts, 50.0, args=where)


def messages(folder, held):
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": held}))
    trace = read_trace(path)
    found = [trace.messages[m].collective if m >= 0 else "" for m in trace.device.message]
    return found, trace.device.seq.tolist()


def test_by_external_id(tmp_path):
    held = [comms(7, 10.0, 5.0, **SAID), nccl(30.0, **{"External id": 7})]
    assert messages(tmp_path, held) == (["allreduce"], [42])


def test_by_the_operator_around_the_launch_on_its_thread(tmp_path):
    held = [
        comms(7, 10.0, 9.0, **SAID),
        comms(8, 10.0, 9.0, tid=12, **(SAID | {"Collective name": "_allgather_base", "Seq": 3})),
        launched(100, 12.0),
        launched(101, 13.0, tid=12),
        launched(102, 25.0),  # after the operator has ended
        nccl(30.0, correlation=100),
        nccl(90.0, correlation=101),
        nccl(150.0, correlation=102),
        nccl(210.0, correlation=999),  # its launch is not in the trace
    ]
    found, seq = messages(tmp_path, held)
    assert found == ["allreduce", "_allgather_base", "", ""]
    assert seq == [42, 3, -1, -1]


def test_what_a_kernel_says_itself_stays(tmp_path):
    own = SAID | {"Collective name": "broadcast", "Seq": 1}
    held = [comms(7, 10.0, 5.0, **SAID), nccl(30.0, **{"External id": 7}, **own)]
    assert messages(tmp_path, held) == (["broadcast"], [1])


@pytest.mark.parametrize(
    "said",
    [
        SAID | {"Collective name": "wait"},
        SAID | {"Collective name": "barrier"},
        SAID | {"In msg nelems": 0, "Group size": 1, "dtype": "Byte"},
    ],
)
def test_waits_and_barriers_are_no_transfer(said, tmp_path):
    held = [comms(7, 10.0, 5.0, **said), nccl(30.0, **{"External id": 7})]
    assert messages(tmp_path, held)[0] == [""]


@pytest.mark.parametrize(
    "name", ["void at::native::vectorized_elementwise_kernel<4>", "triton_poi_fused_all_reduce_0"]
)
def test_kernels_that_compute_get_no_message(name, tmp_path):
    held = [comms(7, 10.0, 5.0, **SAID), nccl(30.0, name=name, **{"External id": 7})]
    assert messages(tmp_path, held)[0] == [""]
