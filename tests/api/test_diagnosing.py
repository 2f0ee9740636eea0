"""`meshwright.diagnose`: files found and read by processes, ranks put together, the bad told."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshwright
from making import Spec, write_run
from meshwright.api.diagnosing import guards, pool
from meshwright.api.diagnosing.given import sorted_files
from meshwright.api.diagnosing.own import own_job
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.diagnose.rank import Rank
from meshwright.diagnose.trace.columns import Meta

SMALL = Spec(layers=1, micro_batches=1, steps=3, hidden=1024, ffn=2048, dp=3, slow_rank=2)


@pytest.fixture(name="traces", scope="module")
def _traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(SMALL, folder)
    return folder


def test_a_folder_is_a_run(traces):
    found = meshwright.diagnose(traces)
    assert [rank.rank for rank in found.evidence.ranks] == [0, 1, 2]
    assert found.evidence.across.straggler_rank == 2
    assert found.step_us > found.lost_us > 0
    assert len(found.summary) == 3
    assert found.left == ()


def test_processes_answer_what_one_does(traces, capfd):
    shown = []
    many = meshwright.diagnose(traces, workers=2, progress=lambda *n: shown.append(n))
    one = meshwright.diagnose(traces, workers=1)
    assert shown == [(1, 3), (2, 3), (3, 3)]
    assert capfd.readouterr() == ("", "")
    assert many.causes == one.causes
    for ours, theirs in zip(many.evidence.ranks, one.evidence.ranks, strict=True):
        assert ours.attribution == theirs.attribution
        assert np.array_equal(ours.instances.start_ns, theirs.instances.start_ns)


def test_files_patterns_and_repetitions(traces):
    one = str(traces / "rank1.json")
    found = meshwright.diagnose([one, one, str(traces / "rank[12].json")])
    assert [rank.rank for rank in found.evidence.ranks] == [1, 2]
    assert any("rank 0 of 3 is missing" in guard for guard in found.guards)


def test_a_bad_file_among_good_ones_is_left_out_and_told(traces, tmp_path):
    bad = tmp_path / "torn.json"
    bad.write_text('{"traceEvents": 7}')
    for workers in (1, 2):
        found = meshwright.diagnose([traces, bad], workers=workers)
        assert len(found.evidence.ranks) == 3
        (left,) = found.left
        assert left.what == str(bad)
        assert left.reason


def test_only_bad_files_are_an_error_with_every_one_of_them(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"traceEvents": 7}')
    with pytest.raises(InvalidInput) as caught:
        meshwright.diagnose([tmp_path / "a.json", tmp_path / "b.json"])
    assert [Path(f.file).name for f in caught.value.findings] == ["a.json", "b.json"]
    assert all(f.message and f.hint for f in caught.value.findings)


def test_a_thousand_bad_files_are_not_a_thousand_errors(tmp_path):
    paths = [tmp_path / f"{n}.json" for n in range(100)]
    for path in paths:
        path.write_text("{")
    with pytest.raises(InvalidInput) as caught:
        meshwright.diagnose(paths)
    assert len(caught.value.findings) == 21
    assert "80 more files cannot be read" in caught.value.findings[-1].message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.json", b""),
        ("words.json", b"this is no trace"),
        ("zero.json", b"\0" * 100),
        ("torn.json.gz", b"\x1f\x8b\x08\0\0\0"),
        ("snap.pickle", b"\x80\x04\x95\x10"),
    ],
)
def test_files_that_are_no_traces(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        meshwright.diagnose(tmp_path / name)
    (finding,) = caught.value.findings
    assert finding.file == str(tmp_path / name)
    assert finding.hint


def test_pickles_are_refused_with_the_way_to_convert_them(tmp_path):
    path = tmp_path / "snap.pickle"
    path.write_bytes(b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.")
    with pytest.raises(InvalidInput) as caught:
        meshwright.diagnose(memory_snapshots=[path])
    assert "runs code" in caught.value.findings[0].message
    assert "json.dump" in caught.value.findings[0].hint


@pytest.mark.parametrize("paths", [(), [], "nowhere/", 3, [3], {"a": 1}, b"x", [None]])
def test_nothing_to_diagnose(paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MeshwrightError):
        meshwright.diagnose(paths)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_impossible_numbers_of_workers(traces, workers):
    with pytest.raises(MeshwrightError, match="workers"):
        meshwright.diagnose(traces, workers=workers)


def test_what_is_given_is_sorted(traces, tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text("node0:1:2 [0] NCCL INFO Bootstrap : Using eth0\n")
    found = sorted_files([traces, log], nccl_logs=[], snapshots=[])
    assert len(found.kineto) == 3
    assert found.nccl_logs == (log,)


# Processes


def workers_started(monkeypatch):
    """Every worker that the pool starts from now on."""
    started, own = [], pool._started
    monkeypatch.setattr(pool, "_started", lambda: started.append(own()) or started[-1])
    return started


def are_gone(started):
    return all(worker.process.poll() is not None for worker in started)


def test_workers_are_gone_when_all_is_read(traces, monkeypatch):
    started = workers_started(monkeypatch)
    meshwright.diagnose(traces, workers=2)
    assert len(started) == 2
    assert are_gone(started)


def test_no_more_workers_are_started_than_cores_can_use(monkeypatch):
    monkeypatch.setattr(pool, "_cores", lambda: 2)
    paths = [Path(f"rank{n}.json") for n in range(3000)]
    assert pool._workers_for(paths, 10**20) == 8
    assert pool._workers_for(paths, 3) == 3


def test_an_interruption_ends_the_workers(traces, monkeypatch):
    started = workers_started(monkeypatch)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        meshwright.diagnose(traces, workers=2, progress=interrupt)
    assert started
    assert are_gone(started)


def test_a_worker_that_dies_costs_its_file_alone(traces, monkeypatch):
    started, own = [], pool._started

    def start():
        started.append(own())
        if len(started) == 1:
            started[0].process.kill()
        return started[-1]

    monkeypatch.setattr(pool, "_started", start)
    found = meshwright.diagnose(traces, workers=2)
    assert len(found.evidence.ranks) == 2
    (left,) = found.left
    assert left.reason == "the process that read it was killed by signal 9"
    assert len(started) == 3
    assert are_gone(started)


def test_a_script_without_a_guard_may_use_processes(traces, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport meshwright\nprint('once')\n"
        "print(len(meshwright.diagnose(sys.argv[1], workers=2).evidence.ranks))\n"
    )
    done = subprocess.run(
        [sys.executable, script, traces], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["once", "3"]


def test_modules_that_lie_beside_traces_are_not_imported(traces, tmp_path, monkeypatch):
    for name in ("numpy", "msgspec", "signal", "meshwright"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    found = meshwright.diagnose(traces, workers=2)
    assert len(found.evidence.ranks) == 3


def test_orphans_end(traces, tmp_path):
    """Workers of a process that was killed end by themselves."""
    script = (
        "import sys, os, signal, meshwright\nfrom meshwright.api.diagnosing import pool\n"
        "own = pool._started\n"
        "def start():\n    worker = own()\n    print(worker.process.pid, flush=True)\n"
        "    return worker\n"
        "pool._started = start\n"
        "meshwright.diagnose(sys.argv[1], workers=2,"
        " progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, traces], capture_output=True, text=True, timeout=120
    )
    numbers = [int(word) for word in done.stdout.split()]
    assert len(numbers) == 2
    until = time.monotonic() + 30
    while any(map(is_alive, numbers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_alive, numbers))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


# Sets of ranks that are odd


def ranks_of(*numbers, world=4):
    return [
        Rank(
            file=f"{n}.json",
            file_bytes=1,
            json_bytes=1,
            events=1,
            device_events=0,
            bad_events=0,
            meta=Meta(),
            left=(),
            gpu=None,
            rank=n,
            world_size=world,
            backend=None,
            nccl_version=None,
            computes_on="device",
        )
        for n in numbers
    ]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (ranks_of(0, 1, 2, 3), []),
        (ranks_of(0, 0, 1, 2, 3), ["rank 0 is there more than once"]),
        (ranks_of(0, 3), ["ranks 1-2 of 4 are missing"]),
        (ranks_of(2), ["only rank 2 of 4"]),
        (ranks_of(None, None, world=None), ["2 traces of 2 do not say which rank"]),
        (
            [*ranks_of(0, 1, world=2), *ranks_of(2, world=8)],
            ["runs on 2, 8 ranks", "ranks 3-7 of 8 are missing"],
        ),
        (ranks_of(0, world=10**12), ["only rank 0 of 1000000000000"]),
        (ranks_of(-5, 7, world=10**12), ["are missing"]),
    ],
)
def test_odd_sets_of_ranks(ranks, words):
    told = list(guards.guards_of(ranks))
    assert len(told) == len(words)
    for guard, word in zip(told, words, strict=True):
        assert word in guard


@pytest.mark.parametrize(
    ("gpu", "computes_on", "word"),
    [
        ("NVIDIA B200", "device", "traces are of B200"),
        ("NVIDIA H100 80GB HBM3", "device", None),
        ("a device of no catalogue", "device", None),
        (None, "host", "computed on CPUs"),
    ],
)
def test_a_plan_for_another_device_is_noted(gpu, computes_on, word):
    job = meshwright.plan("llama-3.1-8b", "H100:8", seq_len=4096, global_batch=64).job
    ranks = [replace(rank, gpu=gpu, computes_on=computes_on) for rank in ranks_of(0, 1, 2, 3)]
    told = list(guards.guards_of(ranks, job))
    assert [word in one for one in told] == ([True] if word else [])


def test_steps_that_the_profiler_slows_down_are_noted():
    (told,) = guards.slowed(300_000.0, {"step_s_median": 0.2})
    assert "1.50 times the run's median of 200 ms" in told
    for step_us, metrics in ((210_000.0, {"step_s_median": 0.2}), (3e5, {}), (None, None)):
        assert list(guards.slowed(step_us, metrics)) == []


def test_two_traces_of_one_rank_make_an_answer(traces, tmp_path):
    copy = tmp_path / "copy.json"
    copy.write_bytes((traces / "rank1.json").read_bytes())
    found = meshwright.diagnose([traces, copy])
    assert len(found.evidence.ranks) == 4
    assert any("more than once" in guard for guard in found.guards)


# Other records


def test_a_fault_in_one_record_costs_that_record_only(traces, tmp_path, monkeypatch):
    def failing(_path):
        raise ValueError("a fault of ours")

    (tmp_path / "snap.json").write_text("{}")
    monkeypatch.setattr("meshwright.api.diagnosing.read_snapshot", failing)
    found = meshwright.diagnose(traces, memory_snapshots=[tmp_path / "snap.json"])
    assert found.evidence.ranks
    assert any("internal error: ValueError" in left.reason for left in found.left)


def test_logs_snapshots_and_metrics_are_read_beside_traces(traces, tmp_path):
    (tmp_path / "nccl.log").write_text(
        "node0:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "node0:1:1 [0] NCCL WARN NET/Socket : no interface\n"
    )
    segment = {"device": 0, "address": 0, "total_size": 4096, "blocks": []}
    segment["blocks"] = [{"size": 4096, "address": 0, "state": "active_allocated", "frames": []}]
    (tmp_path / "snap.json").write_text(json.dumps({"segments": [segment], "device_traces": []}))
    lines = [{"step": n, "step_s": 0.5, "loss": 2.0} for n in range(1, 9)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = meshwright.diagnose([traces, tmp_path])
    evidence = found.evidence
    assert len(evidence.ranks) == 3
    assert [log.version for log in evidence.nccl] == ["2.21.5"]
    assert [snapshot.peak_bytes for snapshot in evidence.memory] == [4096]
    assert evidence.metrics["step_s_median"] == 0.5
    alone = meshwright.diagnose(
        nccl_logs=[tmp_path / "nccl.log"], memory_snapshots=[tmp_path / "snap.json"]
    )
    assert alone.evidence.ranks == ()
    assert len(alone.evidence.nccl) == len(alone.evidence.memory) == 1


def test_records_that_cannot_be_read_are_left_out(traces, tmp_path):
    (tmp_path / "snap.json").write_text("{}")
    found = meshwright.diagnose(traces, memory_snapshots=[tmp_path / "snap.json"])
    assert len(found.evidence.ranks) == 3
    assert [one.what for one in found.left] == [str(tmp_path / "snap.json")]


@pytest.mark.parametrize(
    "plan", [b"a = " + b"[" * 5000, b'model = "/etc/passwd"', b'[model]\nfile = "../../x"', b"\xff"]
)
def test_a_trace_with_a_plan_that_is_none_has_no_job(plan):
    own = {"plan_toml_base64": base64.b64encode(plan).decode()}
    assert own_job([replace(rank, meta=Meta(own=own)) for rank in ranks_of(0)]) is None
