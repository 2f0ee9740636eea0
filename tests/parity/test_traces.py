"""Real traces with known answers: the judge of tests/traces on what lies in ../shared/traces."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JUDGE = ROOT / "tests" / "traces" / "run.py"
PUBLIC = ROOT.parent / "shared" / "traces" / "public"
SMALLEST = "aorta-mi350x-tiny-uncompressed"


@pytest.fixture(scope="module")
def public() -> Path:
    if not PUBLIC.is_dir():
        pytest.skip(f"real traces are not part of the repository: no {PUBLIC}")
    return PUBLIC


def judged(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, str(JUDGE), str(folder), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode in (0, 1), run.stderr
    return run.returncode, json.loads(run.stdout)


def test_every_quantity_of_every_trace_is_reproduced(public: Path) -> None:
    code, results = judged(public)
    missed = {r["trace"]: r["misses"] for r in results if not r["ok"]}
    assert not missed
    assert code == 0
    assert len(results) == len(list(public.glob("*/expected.json")))
    assert not {r["trace"]: r["unknown"] for r in results if r["unknown"]}


@pytest.mark.parametrize(
    ("key", "value"),
    [("events", 344), ("same_stream_overlap_us", 5.0), ("principal", "compute"), ("streams", {})],
)
def test_the_judge_tells_what_is_not_as_expected(
    public: Path, tmp_path: Path, key: str, value: Any
) -> None:
    folder = tmp_path / "one"
    shutil.copytree(public / SMALLEST, folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    file = folder / "expected.json"
    expected = json.loads(file.read_text()) | {"a_new_name": 1}
    if key == "streams":
        expected["streams"] = {"0/9": 20}
    else:
        expected[key] = value
    file.write_text(json.dumps(expected))
    code, (result,) = judged(tmp_path)
    assert code == 1
    assert any(miss["key"].startswith(key) for miss in result["misses"])
    assert result["unknown"] == ["a_new_name"]


def test_a_trace_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "trace.json").write_text("no trace")
    (tmp_path / "broken" / "expected.json").write_text('{"file": "trace.json"}')
    code, (result,) = judged(tmp_path)
    assert code == 1
    assert result["misses"][0]["key"] == "diagnose"
