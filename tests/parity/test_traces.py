"""Real traces with known answers: the judge of tests/traces on what lies in ../shared/traces."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from answers import answer_of
from comparing_answers import WORDS, compared
from tolerances import fields, matched, time

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
JUDGE = ROOT / "tests" / "traces" / "run.py"
PUBLIC = ROOT.parent / "shared" / "traces" / "public"
SMALLEST = "aorta-mi350x-tiny-uncompressed"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every number and word in a JSON value."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from leaves(item, (*path, name))
    else:
        yield path


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    """The value with another leaf at the path."""
    if not path:
        return 17 if value is None else f"x{value}" if isinstance(value, str) else 3 * value + 11
    one = copy(value)
    one[path[0]] = changed(value[path[0]], path[1:])
    return one


def is_compared(path: tuple[Any, ...]) -> bool:
    """Not words for readers; kernel classes are compared to 5% of all kernel time."""
    return not {*path} & {*WORDS, "rule", "principal", "second", "kernel_class_sum_us"}


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


@pytest.mark.parametrize(
    "name", [SMALLEST, "hta-no-gpu-events", "tracelens-b200-tp8-eager", "bytedance-llm-slow-worker"]
)
def test_whatever_is_changed_in_what_is_expected_is_a_miss(public: Path, name: str) -> None:
    expected = json.loads((public / name / "expected.json").read_text())
    found = answer_of(public / name)
    paths = list(filter(is_compared, leaves(expected)))
    passed = [path for path in paths if not list(compared(changed(expected, path), found, set()))]
    assert len(paths) > 10
    assert passed == []


def test_a_trace_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "trace.json").write_text("no trace")
    (tmp_path / "broken" / "expected.json").write_text('{"file": "trace.json"}')
    code, (result,) = judged(tmp_path)
    assert code == 1
    assert result["misses"][0]["key"] == "diagnose"


def test_kernels_whose_names_are_cut_to_the_same_are_each_compared() -> None:
    compare = matched(lambda kernel: kernel["name"][:3], fields({"us": time, "name": None}, set()))
    found = [{"name": "abc1", "us": 90.0}, {"name": "abc2", "us": 50.0}]
    assert not list(compare("kernels", found, found))
    swapped = [{"name": "abc", "us": 50.0}, {"name": "abc", "us": 90.0}]
    assert len(list(compare("kernels", swapped, found))) == 2
    assert len(list(compare("kernels", [*found, found[0]], found))) == 1
