"""The public traces of pipelines, against what was derived and published of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.pipeline.read import read_pipeline
from meshwright.report.diagnosis.record import plain

PUBLIC = Path(__file__).parents[4] / "shared" / "traces" / "public"
FOLDERS = {
    "bytedance-llm-stage-imbalance": "timeline-*.json.gz",
    "bytedance-llm-slow-worker": "timeline-*.json.gz",
    "primus-pp8": "pp_rank_*.json",
}
SAID = {"name", "repo", "commit", "path", "licence", "sha256", "format", "shows", "derivation"}
SHARE = 0.05  # of the published times, and of shares in points


def _case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = PUBLIC / name
    if not folder.is_dir():
        pytest.skip("the real traces are not here: they stay outside of the repository")
    expected = json.loads((folder / "expected.json").read_text())
    record = plain(read_pipeline(sorted(folder.glob(FOLDERS[name]))))
    return record, {name: value for name, value in expected.items() if name not in SAID}


def _differences(own: Any, expected: Any, path: str) -> list[str]:
    if isinstance(expected, dict):
        return [d for k, v in expected.items() for d in _differences(own[k], v, f"{path}.{k}")]
    if isinstance(expected, list):
        pairs = zip(own, expected, strict=True)
        return [d for a, b in pairs for d in _differences(a, b, path)]
    if isinstance(expected, float):
        return [] if own == pytest.approx(expected, rel=1e-3, abs=1e-9) else [f"{path}: {own}"]
    return [] if own == expected else [f"{path}: {own}"]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_quantity_is_reproduced(name: str) -> None:
    record, expected = _case(name)
    published = {k for k in expected if k.startswith("published_")}
    plain = {k: v for k, v in expected.items() if k not in published}
    assert not _differences(record, plain, name)


@pytest.mark.parametrize("name", [n for n in FOLDERS if n.startswith("bytedance")])
def test_published_what_ifs_are_reproduced(name: str) -> None:
    record, expected = _case(name)
    assert record["slowdown"] == pytest.approx(expected["published_slowdown"], rel=SHARE)
    for which in ("ms", "mw"):
        for key, value in expected[f"published_{which}"].items():
            shares = {"rem", "add", "Ms", "Mw"}
            wanted = (
                pytest.approx(value, abs=SHARE) if key in shares else pytest.approx(value, SHARE)
            )
            assert record[which][key] == wanted, (which, key)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_replay_of_what_happened_takes_as_long_as_it_took(name: str) -> None:
    record, expected = _case(name)
    measured = expected.get("step_span_us_median") or 1e3 * expected["step_ms"]
    assert record["replay_us"] == pytest.approx(measured, rel=0.03)
