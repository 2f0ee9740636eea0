"""A small trace as events, and as text in every layout that is met. Shared by tests."""

from __future__ import annotations

import json
from typing import Any

META = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 3,
        "world_size": 8,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": "[0, 1]"}],
        "nccl_version": "2.21.5",
    },
}
TAIL = {"traceName": "out/rank0.pt.trace.json", "baseTimeNanoseconds": 1711964646000000000}
MESSAGE = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "Group size": 8,
    "dtype": "BFloat16",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}


def event(cat: str, name: str, ts: Any, dur: Any, **more: Any) -> dict[str, Any]:
    """One timed event; `args` of a keyword's own."""
    where = {"pid": 0, "tid": 7} if cat in ("kernel", "gpu_memcpy") else {"pid": 10, "tid": 11}
    return {"ph": "X", "cat": cat, "name": name, **where, "ts": ts, "dur": dur, **more}


def operator(number: int, ts: Any, **args: Any) -> dict[str, Any]:
    return event("cpu_op", f"aten::op{number}", ts, 9.5, args={"External id": number, **args})


def launch(number: int, ts: Any) -> dict[str, Any]:
    args = {"External id": number, "cbid": 211, "correlation": 100 + number}
    return event("cuda_runtime", "cudaLaunchKernel", ts, 2.25, args=args)


def kernel(number: int, ts: Any, dur: Any = 12.345, **args: Any) -> dict[str, Any]:
    numbers = {"External id": number, "device": 0, "stream": 7, "correlation": 100 + number}
    placed = {"grid": [1, 1, 1], "est. achieved occupancy %": 0}
    return event("kernel", f"kernel<{number}, {{x}}>", ts, dur, args={**numbers, **placed, **args})


def flow(number: int, ts: Any) -> dict[str, Any]:
    return {"ph": "f", "id": number, "pid": 0, "tid": 7, "ts": ts, "cat": "ac2g", "name": "ac2g"}


def memory(ts: Any, gained: int) -> dict[str, Any]:
    args = {"Device Type": 1, "Device Id": 0, "Bytes": gained, "Total Allocated": 5000}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 10,
        "tid": 11,
        "ts": ts,
        "args": args,
    }


def events(count: int = 6, *, start: float = 4458676522690.655, whole: bool = False) -> list[Any]:
    """Operators, launches, kernels, flows, allocations and names of processes."""
    made: list[Any] = []
    for number in range(count):
        at = int(start) + 40 * number if whole else round(start + 40.013 * number, 3)
        shape = {"Input Dims": [[number, 4], []], "Input type": ["float", ""]}
        made += [operator(number, at, **shape), launch(number, round(at + 3, 3))]
        made += [kernel(number, round(at + 7, 3)), flow(number, at), memory(at, 512 - number)]
    step = event("user_annotation", "ProfilerStep#7", made[0]["ts"], 40.5 * count)
    collective = {**kernel(count, round(start + 900, 3), 33.0, **MESSAGE), "name": "ncclDevKernel"}
    frame = event("python_function", "train.py(3): step", made[0]["ts"], 150.25)
    short = event("python_function", "train.py(9): f", made[0]["ts"], 3.25)
    named = {"name": "process_name", "ph": "M", "ts": 0, "pid": 10, "tid": 0}
    return [step, *made, collective, frame, short, named | {"args": {"name": "python"}}]


def kineto(held: list[Any], *, meta: Any = META, tail: Any = TAIL) -> str:
    """As Kineto's C++ writes it: every event on several lines, metadata around them."""
    lines = []
    for one in held:
        inner = json.dumps(one)[1:-1].replace(', "args": {', ',\n    "args": {\n      ')
        lines.append("  {\n    " + inner + "\n  }")
    before = "".join(f'  "{k}": {json.dumps(v)},\n' for k, v in meta.items())
    after = "".join(f',\n  "{k}": {json.dumps(v)}' for k, v in tail.items())
    return "\n{\n" + before + '  "traceEvents": [\n' + ",\n".join(lines) + "\n  ]" + after + "\n}"


def layouts(held: list[Any]) -> dict[str, str]:
    """The same events in every layout."""
    whole = META | {"traceEvents": held} | TAIL
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in held)
    return {
        "kineto": kineto(held),
        "kineto with CRLF": kineto(held).replace("\n", "\r\n"),
        "indented by 2": json.dumps(whole, indent=2),
        "indented by 4": json.dumps(whole, indent=4),
        "one line": json.dumps(whole),
        "compact": json.dumps(whole, separators=(",", ":")),
        "an event a line": json.dumps(META)[:-1] + ',"traceEvents":[\n' + lines + "\n]}",
        "events first": json.dumps({"traceEvents": held} | META | TAIL),
        "events last": json.dumps(META | TAIL | {"traceEvents": held}),
        "bare array": json.dumps(held),
        "bare array, indented": json.dumps(held, indent=1),
        "bare array, open": json.dumps(held)[:-1] + ",\n",
        "wrapped": '{"metadata": {"traceEvents": [{"a": 1}, {"b": 2}]}, ' + json.dumps(whole)[1:],
        "with a mark": "\ufeff" + json.dumps(whole),
    }
