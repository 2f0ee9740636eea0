from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.train.settings import Expected, Run, Telling
from meshwright.train.telling.boards import check_boards
from meshwright.train.telling.line import line_of
from meshwright.train.telling.metrics import METRICS, Metrics, cut_after, read_metrics
from meshwright.train.telling.record import Record
from meshwright.train.telling.summary import Course
from meshwright.train.telling.teller import Teller


def record(step: int, **changes) -> Record:
    made = Record(
        step=step,
        loss=2.5,
        learning_rate=1e-3,
        grad_norm=0.5,
        updated=True,
        first_sample=8 * (step - 1),
        last_sample=8 * step,
        tokens=1024,
        labels=1000,
        step_s=0.5,
        tokens_per_s=2048.0,
        tokens_per_s_per_device=1024.0,
        mfu=0.41,
        memory_bytes=2.0**30,
        data_wait_s=0.005,
        time_s=1.0,
    )
    return replace(made, **changes)


def test_every_line_is_there_when_add_returns(tmp_path):
    metrics = Metrics(tmp_path / METRICS)
    for step in (1, 2):
        metrics.add(record(step, evaluation_loss=3.0 if step == 2 else None))
        lines = (tmp_path / METRICS).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, step + 1))
    assert "evaluation_loss" not in json.loads(lines[0])
    assert json.loads(lines[1])["evaluation_loss"] == 3.0
    metrics.close()


def test_after_a_resume_no_step_is_there_twice_and_a_torn_line_is_gone(tmp_path):
    path = tmp_path / METRICS
    metrics = Metrics(path)
    for step in range(1, 6):
        metrics.add(record(step))
    metrics.close()
    with path.open("ab") as file:
        file.write(b'{"step": 6, "lo')
    cut_after(path, step=3)
    again = Metrics(path)
    again.add(record(4, loss=9.0))
    again.close()
    found = read_metrics(path)
    assert [r["step"] for r in found] == [1, 2, 3, 4]
    assert found[-1]["loss"] == 9.0


def test_a_line_that_lost_its_end_is_mended(tmp_path):
    path = tmp_path / METRICS
    path.write_text('{"step": 1}\n{"step": 2}')
    cut_after(path, step=2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    cut_after(tmp_path / "none", step=2)
    assert read_metrics(tmp_path / "none") == []


def test_the_line_has_predicted_beside_measured():
    expected = Expected(
        flops_per_token=1.0, convention="model_causal", step_s=0.4, peak_bytes=2.0**31
    )
    line = line_of(record(7), steps=100, left_s=46.5, expected=expected)
    assert line.startswith("step   7/100  loss 2.5  lr 1.00e-03  norm 0.5  ")
    for part in ("1024 tok/s/dev", "MFU 41.0%", "step 500 ms (400 ms predicted)"):
        assert part in line
    for part in ("mem 1.00 GiB (2.00 GiB predicted)", "data 1%", "left 46.5 s"):
        assert part in line


def test_the_line_tells_what_is_unlike_others():
    line = line_of(
        record(7, loss=None, grad_norm=None, updated=False, mfu=None, evaluation_loss=2.0),
        steps=9,
        left_s=0,
        expected=None,
    )
    assert "loss not finite" in line
    assert "not finite, left out" in line
    assert "evaluation 2" in line
    assert "MFU" not in line
    assert "predicted" not in line


def shown(tmp_path, telling: Telling, steps: int = 7) -> str:
    stream = io.StringIO()
    run = Run(steps=steps, out=str(tmp_path), telling=telling)
    with Teller(run, expected=None, facts={}, step=0, stream=stream) as teller:
        for step in range(1, steps + 1):
            teller.tell(record(step, updated=step != 5), left_s=1.0)
    return stream.getvalue()


def test_first_last_every_so_many_and_odd_steps_get_a_line(tmp_path):
    lines = shown(tmp_path, Telling(every_steps=3)).splitlines()
    assert [line.split("/")[0] for line in lines] == [f"step {step}" for step in (1, 3, 5, 6, 7)]
    assert len(read_metrics(tmp_path / METRICS)) == 7


def test_on_a_terminal_the_line_is_rewritten(tmp_path):
    text = shown(tmp_path, Telling(in_place=True))
    assert text.count("\r") == 7
    assert text.count("\n") == 1


def test_the_course_leaves_the_first_step_out_of_speeds():
    course = Course()
    course.add(record(1, step_s=60.0))
    assert course.step_s is None
    assert course.tokens_per_s is None
    for step in (2, 3):
        course.add(record(step, step_s=0.5, data_wait_s=0.05, updated=False))
    assert course.step_s == 0.5
    assert course.tokens_per_s == 2048
    assert course.wait_share == pytest.approx(0.1)
    assert course.left_out == 2


def test_a_board_that_is_not_installed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.train.telling.boards.find_spec", lambda _name: None)
    run = Run(steps=1, out=str(tmp_path), telling=Telling(wandb_project="p"))
    with pytest.raises(Exception, match="wandb is not installed") as error:
        check_boards(run)
    assert "pip install wandb" in error.value.hint
    check_boards(Run(steps=1, out=str(tmp_path)))


def test_a_full_disk_is_told():
    metrics = Metrics(Path("/dev/full"))
    with pytest.raises(MeshwrightError, match=r"cannot write metrics.jsonl: No space left"):
        metrics.add(record(1))
    metrics.close()
