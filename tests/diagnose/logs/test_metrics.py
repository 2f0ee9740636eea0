"""The metrics of `meshwright train` as figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.logs.metrics import read_metrics

if TYPE_CHECKING:
    from pathlib import Path


def record(step: int, **given: Any) -> dict[str, Any]:
    """A line as `train` writes it."""
    made = {
        "step": step,
        "loss": 8.0 - 0.1 * step,
        "learning_rate": 3e-4,
        "grad_norm": 1.0,
        "updated": True,
        "first_sample": 16 * step,
        "last_sample": 16 * (step + 1),
        "tokens": 4096,
        "labels": 4000,
        "step_s": 2.0,
        "tokens_per_s": 2048.0,
        "tokens_per_s_per_device": 1024.0,
        "memory_bytes": 1e9 + step,
        "data_wait_s": 0.5,
        "time_s": 1000.0 + 2.0 * step,
        "attempt": 0,
    }
    return made | given


def run() -> list[dict[str, Any]]:
    """20 steps: a slow first one, a save each 5 steps, an evaluation."""
    made = [record(n) for n in range(1, 21)]
    made[0] |= {"step_s": 9.0}
    for n in (5, 10, 15, 20):
        made[n - 1] |= {"save_s": 0.5}
    made[9] |= {"evaluate_s": 3.0, "evaluation_loss": 7.0}
    return made


def write(folder: Path, records: list[dict[str, Any]], *, summary: Any = None) -> Path:
    lines = (json.dumps(r) for r in records)
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_a_run(tmp_path: Path) -> None:
    summary = {"world_size": 2, "device": "cpu", "ended": "done", "predicted_step_s": 1.6}
    summary |= {"predicted_bytes": 5e8, "checkpoint_stall_s": 2.0, "mfu": None}
    found = read_metrics(write(tmp_path, run(), summary=summary))
    assert (found["steps"], found["attempts"], found["restarts"]) == (20, 1, 0)
    assert (found["step_s_median"], found["first_step_s_median"]) == (2.0, 9.0)
    assert found["step_s_variation"] == 0.0
    assert found["data_wait_share"] == pytest.approx(0.25)
    assert (found["save_s_count"], found["save_s_median"]) == (4, 0.5)
    assert found["save_share"] == pytest.approx(2 / (47 + 2 + 3))
    assert found["evaluate_share"] == pytest.approx(3 / (47 + 2 + 3))
    assert found["unlabelled_share"] == pytest.approx(96 / 4096)
    assert found["memory_bytes_max"] == 1e9 + 20
    assert found["step_over_plan"] == pytest.approx(2.0 / 1.6)
    assert found["bytes_over_plan"] == pytest.approx((1e9 + 20) / 5e8)
    assert (found["ended"], found["world_size"], found["device"]) == ("done", 2, "cpu")
    assert (found["loss_first"], found["loss_last"]) == (7.9, 6.0)
    assert "mfu_median" not in found
    assert found["left"] == ()


def test_the_file_itself_can_be_given(tmp_path: Path) -> None:
    folder = write(tmp_path, run())
    assert read_metrics(folder / "metrics.jsonl") == read_metrics(folder)


def test_slow_steps_and_their_rhythm(tmp_path: Path) -> None:
    records = run()
    for n in (4, 8, 12, 16, 20):
        records[n - 1]["step_s"] = 4.0
    found = read_metrics(write(tmp_path, records))
    assert (found["slow_steps"], found["slow_steps_every"]) == (5, 4)
    assert found["slow_steps_share"] == pytest.approx(10 / 48)


def test_restarts_and_what_they_cost(tmp_path: Path) -> None:
    records = run()
    for n, r in enumerate(records):
        if n >= 10:
            r |= {"attempt": 1, "time_s": r["time_s"] + 60.0}
    records[10] |= {"step_s": 9.0}
    found = read_metrics(write(tmp_path, records))
    assert (found["attempts"], found["restarts"]) == (2, 1)
    assert found["between_attempts_s"] == pytest.approx(62.0 - 9.0)
    assert found["step_s_median"] == 2.0
    assert found["step_s_variation"] == 0.0  # the first step of each start stands apart


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    folder = write(tmp_path, run())
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text()[:-40])
    found = read_metrics(folder)
    assert found["steps"] == 19
    (left,) = found["left"]
    assert (left.count, left.reason) == (1, "the last one is torn")


def test_steps_that_changed_nothing(tmp_path: Path) -> None:
    records = run()
    for n in (3, 7):
        records[n] |= {"updated": False}
        del records[n]["loss"]
    found = read_metrics(write(tmp_path, records))
    assert (found["skipped_steps"], found["not_finite_steps"]) == (2, 2)


def test_one_step_is_enough(tmp_path: Path) -> None:
    found = read_metrics(write(tmp_path, run()[:1]))
    assert (found["steps"], found["step_s_median"], found["first_step_s_median"]) == (1, 9.0, 9.0)


@pytest.mark.parametrize("text", ["", "\n", "{}\n", "[1]\n", '{"step": "x", "step_s": 1}\n', "x\n"])
def test_what_has_no_step_is_refused_with_what_to_type(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_metrics(tmp_path)
    assert caught.value.findings


def test_a_folder_without_metrics_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        read_metrics(tmp_path)


def test_a_damaged_summary_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path, run())
    (folder / "summary.json").write_text('{"world_size": ')
    (left,) = read_metrics(folder)["left"]
    assert left.what == "summary.json"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(changes=[(1, "step_s", 1.4e154)])  # whose square is no number
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 19), st.sampled_from([*sorted(record(1)), "save_s"]), VALUES),
        max_size=8,
    )
)
def test_any_values_give_sound_figures(tmp_path: Path, changes: list[Any]) -> None:
    records = run()
    for at, name, value in changes:
        records[at][name] = value
    found = read_metrics(write(tmp_path, records))
    assert 0 < found["steps"] <= 20
    for name, value in found.items():
        if name.endswith(("_share", "_count")):
            assert value >= 0, name
        if name.endswith("_share"):
            assert value <= 1 + 1e-9, name
