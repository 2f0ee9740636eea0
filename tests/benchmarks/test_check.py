"""The benchmark of `check` measures what it says: many configurations, no two alike."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "check.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("check_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_configurations_differ_and_every_written_framework_is_there(benchmark):
    from meshwright.frameworks.framework import all_frameworks

    found = benchmark.texts(60)
    assert len(found) == 60
    assert len({text for _, _, text in found}) == 60
    written = {item.name for item in all_frameworks() if item.express}
    assert {name for name, _, _ in found} == written


def test_a_part_of_the_folder_has_a_part_of_the_time(benchmark):
    files = {"a": {"ms": 299.0, "gpus_ms": 299.0}, "b": {"ms": 301.0, "gpus_ms": 302.0}}
    report = {"files": 100, "folder_s": 1.9, "file": files}
    assert benchmark.missed(report) == ["b: 301 ms > 300", "b: 302 gpus_ms > 300"]
    assert benchmark.missed(report | {"folder_s": 2.1, "file": {}}) == ["folder: 2.1 s > 2.0"]


def test_every_phase_of_a_check_is_measured(benchmark, tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}')
    found = benchmark.phases(str(path), None, times=1)
    assert list(found) == ["start", "import", "read", "judge", "compare", "print"]
    assert found["compare"] == 0.0
    assert all(ms > 0 for name, ms in found.items() if name != "compare")
