"""A rank's events as the text of a Kineto file, in the layout of an era.

Key sets and line breaks are those of real files: 2021 samples of Kineto's TensorBoard plugin
(Operator, Kernel, Runtime; integer microseconds; streams in `tid`), 2023 (External id equals the
correlation; integer microseconds), April 2024 (nanoseconds as fractions, `uid` in groups), May 2024
(times since `baseTimeNanoseconds`, arguments of collectives on kernels), July 2024 (ranks of sends
and receives), 2026 (`Seq`; one event a line from the exporter in Python).
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from making.machine import Op
from making.mesh import groups, host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from making.machine import Call, Machine, Work
    from making.spec import Spec

START_NS = {
    "2021": 1_623_143_093_496_000_000,
    "2022": 1_694_128_201_426_000_000,
    "2024-04": 1_712_195_495_406_000_000,
    "2024-05": 1_716_423_322_388_000_000,
    "2024-07": 1_721_065_958_044_000_000,
    "2026": 1_781_432_900_617_000_000,
}
BASE_NS = {
    "2024-05": 1_711_964_646_000_000_000,
    "2024-07": 1_719_853_884_000_000_000,
    "2026": 1_775_036_646_000_000_000,
}
CBID = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cuLaunchKernel": 307,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaStreamWaitEvent": 147,
    "cudaEventRecord": 135,
    "cudaGraphLaunch": 311,
    "cudaMalloc": 20,
    "cudaFree": 22,
}
GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", 85018279936, 9, 0, 132),
    "a100": ("NVIDIA A100-SXM4-80GB", 84990623744, 8, 0, 108),
    "b200": ("NVIDIA B200", 191503138816, 10, 0, 148),
    "mi300x": ("AMD Instinct MI300X", 206141652992, 9, 4, 304),
}


def written(spec: Spec, machine: Machine) -> bytes:
    """The whole file."""
    head = "".join(f"  {_quoted(k)}: {v},\n" for k, v in _head(spec, machine))
    tail = "".join(f",\n  {_quoted(k)}: {v}" for k, v in _tail(spec, machine))
    events = ",\n".join(_Writer(spec, machine).events())
    text = f'\n{{\n{head}  "traceEvents": [\n{events}\n  ]{tail}\n}}\n'
    layout = spec.text or ("compact" if spec.era == "2026" else "kineto")
    if layout != "kineto":
        text = _laid_out(json.loads(text), layout)
    whole = text.encode()
    return whole[: int(len(whole) * spec.truncated)] if spec.truncated < 1 else whole


def _laid_out(document: dict[str, Any], layout: str) -> str:
    if layout == "indented":
        return json.dumps(document, indent=4)
    lines = ",\n".join(json.dumps(e, separators=(", ", ": ")) for e in document["traceEvents"])
    if layout == "array":
        return f"[\n{lines}\n]"
    rest = {k: v for k, v in document.items() if k != "traceEvents"}
    return f'{json.dumps(rest)[:-1]}, "traceEvents": [\n{lines}\n]}}'


def _quoted(text: str) -> str:
    return json.dumps(text)


def _head(spec: Spec, machine: Machine) -> Iterator[tuple[str, str]]:
    yield "schemaVersion", "1"
    count = min(spec.ranks_per_host, 8)
    devices = ",\n    ".join(_device(spec, i) for i in range(count))
    yield "deviceProperties", f"[\n    {devices}\n  ]"
    if spec.era >= "2024-05":
        version = "hip_runtime_version" if spec.rocm else "cuda_runtime_version"
        yield version, "60443483" if spec.rocm else "12040"
    if spec.distributed_info and spec.era > "2021":
        yield "distributedInfo", json.dumps(_distributed(spec, machine.rank))
    for flag in ("record_shapes", "with_stack", "profile_memory"):
        if getattr(spec, flag) and spec.era > "2021":
            yield flag, "1"


def _device(spec: Spec, index: int) -> str:
    name, memory, major, minor, units = GPUS[spec.gpu]
    warp, shared = (64, 65536) if spec.rocm else (32, 49152)
    extra = (
        ', "maxSharedMemoryPerMultiProcessor": 65536'
        if spec.rocm
        else ', "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448'
        ', "sharedMemPerMultiprocessor": 233472'
    )
    return (
        f'{{\n      "id": {index}, "name": "{name}", "totalGlobalMem": {memory},\n'
        f'      "computeMajor": {major}, "computeMinor": {minor},\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        f'      "regsPerBlock": 65536, "warpSize": {warp},\n'
        f'      "sharedMemPerBlock": {shared}, "numSms": {units}\n    {extra}\n    }}'
    )


def _distributed(spec: Spec, rank: int) -> dict[str, Any]:
    info: dict[str, Any] = {"backend": "nccl", "rank": rank, "world_size": spec.world_size}
    if spec.era < "2024":
        return info
    mine = [g for g in groups(spec) if rank in g.ranks]
    config = []
    for g in mine:
        described = {"uid": int(g.name)} if spec.era == "2024-04" else {"pg_desc": g.description}
        config.append(
            {
                "pg_name": g.name,
                **described,
                "backend_config": "cuda:nccl",
                "pg_size": len(g.ranks),
                "ranks": list(g.ranks),
            }
        )
    return info | {"pg_count": len(mine), "pg_config": config, "nccl_version": "2.20.5"}


def _tail(spec: Spec, machine: Machine) -> Iterator[tuple[str, str]]:
    if spec.era == "2021":
        return
    yield "traceName", f'"out/rank{machine.rank}.pt.trace.json"'
    if spec.era >= "2024-05":
        yield "displayTimeUnit", '"ms"'
        yield "baseTimeNanoseconds", str(BASE_NS[spec.era])


class _Writer:
    """Writes the events of one rank."""

    def __init__(self, spec: Spec, machine: Machine) -> None:
        self.spec, self.machine = spec, machine
        self.era = spec.era
        host = host_of(spec, machine.rank)
        shift = spec.clock_shift_us[host] if host < len(spec.clock_shift_us) else 0.0
        self.origin = START_NS[self.era] - BASE_NS.get(self.era, 0) + int(shift * 1000)
        self.device = machine.rank % spec.ranks_per_host
        self.pid = 40_000 + machine.rank
        self.tids = (self.pid, self.pid + 137)
        self.random = random.Random(spec.seed + 17 * machine.rank)
        self.lost = {c.correlation for c in _launches(machine)[: spec.lost_launches]}

    def events(self) -> Iterator[str]:
        """Metadata, operators, calls, device events with their flows, the profiler's own."""
        kept = self.events_of_work
        if self.spec.sampled < 1.0:
            return (e for e in kept() if self.random.random() < self.spec.sampled)
        return kept()

    def events_of_work(self) -> Iterator[str]:
        yield from self.metadata()
        if not self.spec.gpu_only:
            yield from map(self.operator, self.operators())
            yield from self.memory()
        for call in self.machine.calls:
            if call.correlation not in self.lost:
                yield self.call(call)
                if call.launches:
                    yield self.flow(
                        "s", call.correlation, self.pid, self.tid(call.thread), call.start
                    )
        for work in self.machine.works:
            yield self.work(work)
            yield self.flow(
                "f", work.correlation, self.device, self.stream(work.stream), work.start
            )
        if self.era >= "2024-05" and not self.spec.gpu_only:
            yield from self.annotations_on_device()
        yield from self.profiler()

    # times

    def times(self, start: int, end: int) -> str:
        """`"ts": ..., "dur": ...` in the era's unit."""
        if self.era < "2024":
            first, last = (self.origin + start) // 1000, (self.origin + end) // 1000
            return f'"ts": {first}, "dur": {max(1, last - first)}'
        return f'"ts": {self.instant(start)}, "dur": {_fraction(end - start)}'

    def instant(self, at: int) -> str:
        if self.era < "2024":
            return str((self.origin + at) // 1000)
        return _fraction(self.origin + at)

    def tid(self, thread: int) -> str:
        return f'"{self.tids[thread]}"' if self.era == "2021" else str(self.tids[thread])

    def stream(self, stream: int) -> str:
        number = self.stream_number(stream)
        return f'"stream {number}"' if self.era == "2021" else str(number)

    def stream_number(self, stream: int) -> int:
        return (0 if stream == 7 else stream - 13) if self.spec.rocm else stream

    # host

    def operators(self) -> Iterator[Op]:
        """Operators as the era shows them; Python frames only with stacks."""
        frames = self.spec.with_stack and self.era > "2021"
        for op in self.machine.ops:
            if op.cat != "python_function" or frames:
                yield op
        if frames:
            from making.machine import MAIN, Op

            first = Op(
                "train.py(12): <module>", "python_function", MAIN, 0, self.machine.now, 0, {}
            )
            yield first

    def operator(self, op: Op) -> str:
        if self.era == "2021":
            head = '"ph": "X", "cat": "Operator", \n    "name"'
        else:
            head = f'"ph": "X", "cat": "{op.cat}", "name"'
        return (
            f'  {{\n    {head}: {_quoted(op.name)}, "pid": {self.pid}, "tid": {self.tid(op.thread)},\n'
            f"    {self.times(op.start, op.end)},\n"
            f'    "args": {{\n      {json.dumps(self.of_operator(op))[1:-1]}\n    }}\n  }}'
        )

    def of_operator(self, op: Op) -> dict[str, Any]:
        if op.cat == "python_function":
            return {"Python parent id": None, "Python id": op.start, "Ev Idx": op.external}
        args: dict[str, Any] = {"External id": op.external}
        if self.era == "2021":
            args = {"Device": self.pid, **args, "Trace name": "PyTorch Profiler"}
            args["Trace iteration"] = 0
        elif self.era >= "2024-05":
            args["Record function id"] = op.external if self.era == "2024-05" else 0
        given = dict(op.args)
        dims, types = given.pop("dims", None), given.pop("types", None)
        if dims and self.spec.record_shapes:
            if self.era >= "2024-07":
                args["Concrete Inputs"] = [""] * len(dims)
                args["Input Strides"] = [[] for _ in dims]
            args |= {"Input Dims": dims, "Input type": types or [""] * len(dims)}
        args |= given
        if self.era > "2021":
            args["Ev Idx"] = op.external - 1
        return args

    def memory(self) -> Iterator[str]:
        """What the allocator did, where it was profiled: activations up in forward, down after."""
        if not self.spec.profile_memory:
            return
        held, reserved = 8 << 30, 12 << 30
        cat = "" if self.era == "2021" else '"cat": "cpu_instant_event", '
        for op in self.machine.ops:
            if "dims" not in op.args:
                continue
            size = 1 << 24
            size = -size if op.thread else size
            held += size
            reserved = max(reserved, held)
            args = {
                "Device Type": 1,
                "Device Id": self.device,
                "Addr": 139926520725504,
                "Bytes": size,
            }
            if self.era > "2021":
                args |= {"Total Allocated": held, "Total Reserved": reserved, "Ev Idx": op.external}
            yield (
                f'  {{\n    "ph": "i", {cat}"s": "t", "name": "[memory]",\n    "pid": {self.pid}, '
                f'"tid": {self.tids[op.thread]},\n    "ts": {self.instant(op.start)},\n'
                f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
            )

    def call(self, call: Call) -> str:
        cat = "Runtime" if self.era == "2021" else "cuda_runtime"
        if call.name.startswith("cu") and not call.name.startswith("cuda"):
            cat = "cuda_driver" if self.era >= "2024" else cat
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{call.name}", "pid": {self.pid}, '
            f'"tid": {self.tid(call.thread)},\n    {self.times(call.start, call.end)},\n'
            f'    "args": {{\n      {self.of_call(call)}\n    }}\n  }}'
        )

    def of_call(self, call: Call) -> str:
        number = CBID.get(call.name, 203)
        if self.era == "2021":
            since = f', "external ts": {self.instant(call.start)}'
            tail = f', "external id": {call.external}{since}' if call.external else ""
            return f'"cbid": {number}, "correlation": {call.correlation}{tail}'
        external = self.external(call.external, call.correlation)
        if not self.spec.rocm:
            return f'{external}      "cbid": {number}, "correlation": {call.correlation}'
        kernel = f'"kernel": {_quoted(call.kernel)}, ' if call.kernel else ""
        grid = ', "grid": [256, 1, 1], "block": [256, 1, 1], "shared memory": 0' if kernel else ""
        return f'{external}      {kernel}"cid": 107, "correlation": {call.correlation}{grid}'

    def external(self, external: int, correlation: int) -> str:
        """Until 2023 the External id of calls and kernels was their correlation."""
        if self.spec.gpu_only:
            return ""
        if self.era == "2022":
            return f'"External id": {correlation},'
        return f'"External id": {external},' if external else ""

    # device

    def work(self, work: Work) -> str:
        cat = work.cat
        if self.era == "2021":
            cat = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}[cat]
        start = work.start
        if self.spec.early_nccl and work.name.startswith("nccl"):
            start -= 9000
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": {_quoted(work.name)}, '
            f'"pid": {self.device}, "tid": {self.stream(work.stream)},\n'
            f"    {self.times(start, work.end)},\n"
            f'    "args": {{\n      {self.of_work(work)}\n    }}\n  }}'
        )

    def of_work(self, work: Work) -> str:
        stream = self.stream_number(work.stream)
        external = self.external(work.external, work.correlation)
        queued = '"queued": 0, ' if work.cat == "kernel" else ""
        place = f'{queued}"device": {self.device}, "context": 1,      "stream": {stream}'
        if self.spec.rocm:
            kind = "Dispatch Kernel" if work.cat == "kernel" else "DtoD"
            text = (
                f'{external} "device": {self.device}, "stream": {stream}, '
                f'"correlation": {work.correlation}, "kind": "{kind}"'
            )
            if work.cat == "kernel":
                text += ', "grid": [256, 1, 1], "block": [256, 1, 1]'
        elif self.era == "2021":
            tail = f', "external id": {work.external}' if work.external else ""
            text = f'{place}, "correlation": {work.correlation}{tail}'
        else:
            text = f'{external}      {place}, "correlation": {work.correlation}'
        if work.cat == "kernel" and not self.spec.rocm:
            text += (
                ',      "registers per thread": 96,      "shared memory": 49152,'
                '      "blocks per SM": 4.740741,      "warps per SM": 37.925926,'
                '      "grid": [512, 1, 1],      "block": [256, 1, 1],'
                '      "est. achieved occupancy %": 50'
            )
            if work.graphed and self.era >= "2024":
                text += f', "graph id": 3, "graph node id": {work.start % 100_000}'
        elif work.cat != "kernel":
            size = work.args.get("bytes", 0)
            rate = size / max(1, work.end - work.start)
            text += f', "bytes": {size}, "memory bandwidth (GB/s)": {rate}'
        if work.cat == "kernel" and work.args:
            text += f", {json.dumps(work.args)[1:-1]}"
        return text

    def flow(self, phase: str, number: int, pid: int, tid: str, at: int) -> str:
        cat, name = ("async", "launch") if self.era == "2021" else ("ac2g", "ac2g")
        end = ', "bp": "e"' if phase == "f" else ""
        return (
            f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, '
            f'"ts": {self.instant(at)},\n    "cat": "{cat}", "name": "{name}"{end}\n  }}'
        )

    def annotations_on_device(self) -> Iterator[str]:
        """The span of what an annotation launched, as Kineto draws it on the device."""
        by_launch = {w.correlation: w for w in self.machine.works if w.stream == 7}
        shown = ("ProfilerStep", "Optimizer.step")
        for op in self.machine.ops:
            if op.cat != "user_annotation" or not op.name.startswith(shown):
                continue
            inside = [
                by_launch[c.correlation]
                for c in self.machine.calls
                if op.start <= c.start < op.end and c.correlation in by_launch
            ]
            if inside:
                first, last = min(w.start for w in inside), max(w.end for w in inside)
                yield (
                    f'  {{\n    "ph": "X", "cat": "gpu_user_annotation", "name": {_quoted(op.name)}, '
                    f'"pid": {self.device}, "tid": {self.stream(7)},\n'
                    f"    {self.times(first, last)},\n"
                    f'    "args": {{\n      "External id": {op.external}\n    }}\n  }}'
                )

    # around it

    def metadata(self) -> Iterator[str]:
        name = ("process_name", {"name": "python3"}), ("process_labels", {"labels": "CPU"})
        for pid, label in ((self.pid, "CPU"), (self.device, f"GPU {self.device}")):
            named = (*name[:1], ("process_labels", {"labels": label}))
            for what, args in (*named, ("process_sort_index", {"sort_index": pid})):
                yield (
                    f'  {{\n    "name": "{what}", "ph": "M", "ts": {self.instant(0)}, "pid": {pid}, '
                    f'"tid": 0,\n    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
                )
        for number, tid in enumerate(self.tids):
            yield (
                f'  {{\n    "name": "thread_name", "ph": "M", "ts": {self.instant(0)}, '
                f'"pid": {self.pid}, "tid": {tid},\n    "args": {{\n'
                f'      "name": "thread {tid} ({("python3", "pt_autograd_0")[number]})"\n    }}\n  }}'
            )

    def profiler(self) -> Iterator[str]:
        if self.spec.profiler_us:
            yield (
                '  {\n    "ph": "X", "cat": "overhead", "name": "Activity Buffer Request", '
                f'"pid": -1, "tid": 0,\n    {self.times(1000, 400_000)}\n  }}'
            )
        yield (
            '  {\n    "ph": "X", "cat": "Trace", '
            f'{self.times(0, self.machine.now)},\n    "pid": "Spans", "tid": "PyTorch Profiler",\n'
            '    "name": "PyTorch Profiler (0)",\n    "args": {\n      "Op count": 0\n    }\n  }'
        )
        for name, at, place in (
            ("Iteration Start: PyTorch Profiler", 0, ("Traces", "Trace PyTorch Profiler")),
            ("Record Window End", self.machine.now, ("", "")),
        ):
            yield (
                f'  {{\n    "name": "{name}", "ph": "i", "s": "g",\n    "pid": "{place[0]}", '
                f'"tid": "{place[1]}", "ts": {self.instant(at)}\n  }}'
            )


def _launches(machine: Machine) -> list[Call]:
    return [c for c in machine.calls if c.launches]


def _fraction(ns: int) -> str:
    """Nanoseconds as microseconds with three decimals, exact."""
    sign = "-" if ns < 0 else ""
    whole, part = divmod(abs(ns), 1000)
    return f"{sign}{whole}.{part:03d}"
