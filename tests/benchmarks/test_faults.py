"""What the benchmark of faults would notice."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "faults.py"


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location("faults_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_run(folder, steps, *, weights=b"weights"):
    checkpoint = folder / f"step-{steps}"
    checkpoint.mkdir(parents=True)
    for rank in range(2):
        (checkpoint / f"rank-{rank}.safetensors").write_bytes(weights + bytes([rank]) * 99)
    (checkpoint / "manifest.json").write_text("{}")
    records = [
        {"step": s + 1, "first_sample": 8 * s, "last_sample": 8 * s + 8, "loss": 1 / (s + 1)}
        for s in range(steps)
    ]
    write_metrics(folder, records)
    return folder


def write_metrics(folder, records):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def wrong(faults, folder, whole, *, seen=()):
    return faults.checked(faults.Course(folder, Path("plan.toml"), seen=set(seen)), whole)


def test_equal_runs_have_nothing_wrong(faults, tmp_path):
    runs = [write_run(tmp_path / name, faults.STEPS) for name in "ab"]
    assert wrong(faults, *runs) == ""


@pytest.mark.parametrize("change", ["lost", "twice", "moved", "loss"])
def test_lost_and_repeated_steps_and_samples_are_noticed(faults, tmp_path, change):
    whole, other = (write_run(tmp_path / name, faults.STEPS) for name in "ab")
    records = faults.metrics(other)
    if change == "lost":
        del records[5]
    elif change == "twice":
        records.insert(5, records[5])
    elif change == "moved":
        records[5]["first_sample"] += 1
    else:
        records[5]["loss"] += 1e-12
    write_metrics(other, records)
    assert "steps or samples differ" in wrong(faults, other, whole)


def test_other_weights_are_noticed(faults, tmp_path):
    whole = write_run(tmp_path / "a", faults.STEPS)
    other = write_run(tmp_path / "b", faults.STEPS, weights=b"Weights")
    assert "weights differ" in wrong(faults, other, whole)


def test_a_process_that_is_left_is_noticed(faults, tmp_path):
    whole = write_run(tmp_path / "a", faults.STEPS)
    assert "1 processes are left" in wrong(faults, whole, whole, seen=[os.getpid()])


@pytest.mark.parametrize("seed", range(5))
def test_every_tear_damages_one_file(faults, tmp_path, seed):
    for how in faults.TORN:
        run = write_run(tmp_path / how, 1)
        checkpoint = run / "step-1"
        before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
        faults.tear(checkpoint, how, random.Random(seed))
        after = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
        assert sum(after.get(name) != data for name, data in before.items()) == 1


def test_twenty_kills_of_every_kind(faults):
    assert len(faults.KILLS) == 20
    assert set(faults.KILLS) == {
        faults.RANK,
        faults.STARTING,
        faults.AGENT,
        faults.COMMAND,
        faults.SAVING,
    }
