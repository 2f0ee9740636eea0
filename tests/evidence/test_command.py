from __future__ import annotations

import csv
import json
import lzma
from importlib.resources import files

import pytest
from click.testing import CliRunner

from meshwright.evidence.command import fit, validate
from meshwright.evidence.validation import HEAD_COLUMNS


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Some rows of several sources in a file of their own."""
    packed = files("meshwright.evidence").joinpath("data/published-runs.csv.xz").read_bytes()
    lines = lzma.decompress(packed).decode().splitlines()
    sources = ("internevo-a100", "paper-zero-bubble", "mlperf-training-v4.0")
    path = tmp_path_factory.mktemp("runs") / "few.csv"
    kept = [line for line in lines[1:] if line.startswith(sources)]
    path.write_text("\n".join([lines[0], *kept]) + "\n")
    return path


def run(command, *arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def test_the_overview_and_the_rows(few, tmp_path) -> None:
    out = tmp_path / "rows.csv"
    result = run(validate, "--runs", few, "--per-row", out)
    assert result.exit_code == 0
    assert "internevo-a100" in result.stdout
    with out.open(newline="") as text:
        rows = list(csv.DictReader(text))
    with few.open(newline="") as text:
        ids = [line["id"] for line in csv.DictReader(text)]
    assert [row["id"] for row in rows] == ids
    assert tuple(rows[0])[: len(HEAD_COLUMNS)] == HEAD_COLUMNS
    for row in rows:
        assert bool(row["reason"]) != bool(row["predicted_step_time_s"])
        assert bool(row["reason"]) != bool(row["predicted_peak_upper_gib"])


def test_json_has_every_figure(few) -> None:
    summary = json.loads(run(validate, "--runs", few, "--json").stdout)
    assert summary["coverage"]["judged"] == 184
    assert summary["coverage"]["share"] == pytest.approx(1.0)
    assert set(summary["step_time"]["by_source"]) == {"internevo-a100", "paper-zero-bubble"}
    assert summary["ranking"]["groups"] > 3
    assert summary["by_axis"]["pp > 1"]["rows"] == 130
    assert 0 <= summary["interval_coverage"] <= 1


def test_the_page_names_goals_and_sources(few, tmp_path) -> None:
    page = tmp_path / "accuracy.md"
    run(validate, "--runs", few, "--write-docs", page)
    text = page.read_text()
    for title in ("# Accuracy", "## Goals", "## Coverage", "## Ranking", "by hardware"):
        assert title in text
    assert all(line.count("|") >= 3 for line in text.splitlines() if line.startswith("|"))


def test_bad_cells_are_told_on_stderr(few, tmp_path) -> None:
    lines = few.read_text().splitlines()
    fields = next(csv.reader([lines[1]]))
    fields[next(csv.reader([lines[0]])).index("tp")] = "two"
    bad = tmp_path / "bad.csv"
    with bad.open("w", newline="") as text:
        csv.writer(text).writerows([next(csv.reader([lines[0]])), fields])
    result = run(validate, "--runs", bad)
    assert result.exit_code == 0
    assert "tp is 'two', not a whole number" in result.stderr
    assert "bad.csv:2:" in result.stderr


def test_a_fit_is_written_and_read_back(few, tmp_path) -> None:
    pytest.importorskip("scipy")
    header, *lines = few.read_text().splitlines()
    one = tmp_path / "one.csv"
    one.write_text("\n".join([header, *(x for x in lines if x.startswith("internevo"))]) + "\n")
    start, out = tmp_path / "start.toml", tmp_path / "calibration.toml"
    start.write_text("[hardware.default]\nmatmul = 0.6\n[stack.default]\n")
    result = run(fit, "--runs", one, "--out", out, "--start", start, "--max-evaluations", "3")
    assert result.exit_code == 0
    before = run(validate, "--runs", one, "--calibration", start, "--json").stdout
    after = run(validate, "--runs", one, "--calibration", out, "--json").stdout
    errors = [json.loads(text)["step_time"]["median_source"] for text in (before, after)]
    assert errors[1] < 0.5 * errors[0]
    assert "internevo-a100 (54)" in out.read_text()
