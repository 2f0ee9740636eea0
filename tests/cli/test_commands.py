"""The command line: exit codes, streams, help, and errors that say what to type next."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from meshwright.cli.main import COMMANDS, run

SMALL = ["llama-3-8b", "--gpu", "H100:8", "--nodes", "1", "--seq-len", "4096"]
PLAN = ["plan", *SMALL, "--global-batch", "64", "--pin", "pp=1", "--pin", "cp=1"]


@pytest.fixture
def plan_file(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    assert run([*PLAN, "--write", str(path), "--top", "1"]) == 0
    capsys.readouterr()
    return path


def test_version_and_help(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("meshwright 0.")
    assert run(["--help"]) == 0
    assert all(name in capsys.readouterr().out for name in ["plan"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert run([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: meshwright {command}")


@pytest.mark.parametrize("command", ["plan", "predict", "explain", "show"])
def test_help_has_examples(command, capsys):
    run([command, "--help"])
    assert "Examples:\n" in capsys.readouterr().out


def test_plan_prints_a_table_to_stdout_and_nothing_to_stderr(capsys):
    assert run([*PLAN, "--top", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("llama-3-8b, 8.03B parameters; 8 x ")
    assert lines[1].startswith("assuming ")
    assert "peak GiB" in lines[3]
    assert lines[4].startswith("1  ")
    assert "rejected " in out
    assert lines[-1].startswith("next: ")


def test_plan_as_json_has_the_same_plans(capsys):
    run([*PLAN, "--top", "2", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["version"] == 1
    assert record["plans"][0]["plan"]["pp"] == 1
    assert record["plans"][0]["step_s"] <= record["plans"][1]["step_s"]
    assert record["feasible"] <= record["costed"] <= record["candidates"]
    assert sum(record["rejected"].values()) == record["candidates"] - record["feasible"]


def test_pins_hold(capsys):
    run([*PLAN, "--pin", "tp=2,4", "--pin", "precision=fp8", "--ban", "zero_stage=3", "--json"])
    for row in json.loads(capsys.readouterr().out)["plans"]:
        assert row["plan"]["tp"] in (2, 4)
        assert row["plan"]["zero_stage"] != 3
        assert row["plan"]["precision"] == "fp8"


def test_plans_on_fewer_gpus_say_so(capsys):
    arguments = ["plan", "llama-3-8b", "--gpu", "H100:8", "--nodes", "4", "--seq-len", "4096"]
    assert run([*arguments, "--global-batch", "8", "--objective", "cost", "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[3].split()[0] == "GPUs"
    run([*arguments, "--global-batch", "64", "--top", "2"])
    assert "GPUs" not in capsys.readouterr().out.splitlines()[3]


def test_nothing_fits_is_exit_1_with_the_reason(capsys):
    arguments = ["plan", "llama-3.1-70b", "--gpu", "A10:1", "--nodes", "2", "--seq-len", "2048"]
    assert run([*arguments, "--global-batch", "8"]) == 1
    out = capsys.readouterr().out
    assert "no plan fits" in out
    assert "nearest" in out
    assert "GPUs of this kind would do" in out


def test_pins_that_contradict_each_other_are_named(capsys):
    assert run([*PLAN, "--pin", "tp=8", "--ban", "tp=8"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "next: leave out the pin tp"


def test_a_pin_that_the_host_cannot_hold_says_by_how_much(capsys):
    arguments = ["plan", "llama-3.1-405b", "--gpu", "H100:8", "--seq-len", "8k"]
    assert run([*arguments, "--global-batch", "8", "--pin", "offload_optimizer=1"]) == 1
    out = capsys.readouterr().out
    assert "error[CMP209]: " in out
    assert "--pin offload_optimizer" not in out


def test_a_sequence_length_in_units_of_1024(capsys):
    lengths = {}
    for text in ("4k", "4K", "4096", "4,096"):
        arguments = [*PLAN[:6], "--seq-len", text, *PLAN[8:], "--top", "1", "--json"]
        assert run(arguments) == 0
        lengths[text] = json.loads(capsys.readouterr().out)["job"]["seq_len"]
    assert set(lengths.values()) == {4096}


@pytest.mark.parametrize("objective", ["memory", "cost"])
def test_only_the_fastest_plan_is_compared_by_speed(objective, capsys):
    assert run([*PLAN, "--objective", objective]) == 0
    out = capsys.readouterr().out
    assert "depends on" not in out
    assert "closest miss" not in out


def test_adapters_are_part_of_what_is_said(capsys):
    assert run([*PLAN, "--pin", "lora_rank=16", "--pin", "base_weight_bits=4"]) == 0
    assert "LoRA of rank 16 on 4-bit weights" in capsys.readouterr().out.splitlines()[1]


def test_memory_by_stage_adds_up(plan_file, capsys):
    run(["predict", str(plan_file)])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("stage0")).split()[1:]
    *parts, peak, needs = map(float, row)
    assert sum(parts) == pytest.approx(peak, abs=0.05)
    assert needs > peak
    said = next(line for line in lines if line.startswith("memory "))
    assert f"{needs:.1f} GiB with margin" in said


def test_predict_reads_what_plan_wrote(plan_file, capsys):
    assert run(["predict", str(plan_file)]) == 0
    out = capsys.readouterr().out
    assert "step " in out
    assert "fits" in out
    assert "stage0" in out


@pytest.mark.parametrize("by", ["stage", "term", "rank"])
def test_predict_by(plan_file, capsys, by):
    assert run(["predict", str(plan_file), "--by", by]) == 0
    expected = {"stage": "weights", "term": "time.compute.matmul", "rank": "0-7"}
    assert expected[by] in capsys.readouterr().out


def test_predict_and_plan_agree(plan_file, capsys):
    run(["predict", str(plan_file), "--json"])
    predicted = json.loads(capsys.readouterr().out)["prediction"]
    run([*PLAN, "--top", "1", "--json"])
    planned = json.loads(capsys.readouterr().out)["plans"][0]
    assert predicted["step_s"] == pytest.approx(planned["step_s"], rel=1e-12)
    assert predicted["peak_gib"] == pytest.approx(planned["peak_gib"], rel=1e-12)
    assert predicted["needs_gib"] == pytest.approx(planned["needs_gib"], rel=1e-12)


def test_predict_names_what_the_rules_have_against_a_plan(plan_file, capsys):
    text = plan_file.read_text().replace("dp = ", "# dp = ")
    plan_file.write_text(text.replace("tp = 1", "tp = 1").replace("pp = 1", "pp = 8\nvpp = 5"))
    code = run(["predict", str(plan_file)])
    err = capsys.readouterr().err
    assert code == 1
    assert "error[" in err


def test_explain_a_term(plan_file, capsys):
    assert run(["explain", str(plan_file), "memory.stage0", "--depth", "1"]) == 0
    out = capsys.readouterr().out
    assert "activations" in out
    assert run(["explain", str(plan_file), "memory.stage0", "--json"]) == 0
    terms = json.loads(capsys.readouterr().out)["terms"]
    assert all(name.startswith("memory.stage0") for name in terms)


def test_explain_an_unknown_term_lists_the_nearest(plan_file, capsys):
    assert run(["explain", str(plan_file), "memory.stage0.weigths"]) == 2
    assert "memory.stage0.weights" in capsys.readouterr().err


def test_explain_a_rule(capsys):
    assert run(["explain", "mod101"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MOD101: ")
    assert "5.1 Model parallelism: structure partitioning" in out
    assert "Source: " in out
    assert run(["explain", "MOD999"]) == 2
    assert "did you mean MOD" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["models", "gpus", "fabrics", "rules", "schedules", "stacks"])
def test_show(kind, capsys):
    assert run(["show", kind]) == 0
    table = capsys.readouterr().out.splitlines()
    assert run(["show", kind, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)[kind]
    assert len(table) == len(records) + 1 > 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pln"], "did you mean plan"),
        (["plan", "lama-3.1-70b", *SMALL[1:], "--global-batch", "8"], "did you mean llama-3.1-70b"),
        (["plan", "llama-3-8b", "--gpu", "H10:8", "--seq-len", "1", "--global-batch", "8"], "H100"),
        (["plan", *SMALL, "--global-batch", "4M"], "4Mtok"),
        (["plan", *SMALL, "--global-batch", "8", "--pin", "tpp=8"], "or tp"),
        (["plan", *SMALL, "--global-batch", "8", "--pin", "tp"], "FIELD=VALUE"),
        (["plan", *SMALL, "--global-batch", "8", "--pin", "schedule=1f2b"], "did you mean 1f1b"),
        (["plan", *SMALL, "--global-batch", "8", "--cluster", "x.toml"], "either --gpu or"),
        (["plan", *SMALL, "--global-batch", "8", "--objectiv", "cost"], "--objective"),
        (["plan", *SMALL, "--global-batch", "8", "--stack", "megatorn"], "unknown stack"),
        (["plan", *SMALL, "--global-batch", "8", "--tokens", "15Q"], "tokens"),
        (["plan", "no/such/config.json", *SMALL[1:], "--global-batch", "8"], "No such file"),
        (["plan", *SMALL, "--global-batch", "8", "--pin", "tp=8..2"], "tp=2..8"),
        (["predict", "no/such/plan.toml"], "No such file"),
        (["explain", "memory"], "plan.toml memory"),
        (["explain", "no-such-file.toml", "time"], "No such file"),
        (["show", "modles"], "models"),
        (["plan", *SMALL[:-1], "0", "--global-batch", "8"], "seq-len"),
        (["plan"], "MODEL"),
    ],
)
def test_wrong_usage_is_exit_2_with_a_hint_on_stderr(arguments, says, capsys):
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_a_broken_plan_file_is_reported_with_lines(plan_file, capsys):
    plan_file.write_text(plan_file.read_text().replace("seq_len = 4096", 'seq_len = "long"'))
    assert run(["predict", str(plan_file)]) == 2
    err = capsys.readouterr().err
    assert f"--> {plan_file}:" in err
    assert 'seq_len = "long"' in err
    assert "^^^" in err


def test_shells_can_complete_commands(monkeypatch, capsys):
    monkeypatch.setenv("_MESHWRIGHT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "meshwright pre")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run([]) == 0
    assert capsys.readouterr().out == "plain,predict\n"


def test_an_internal_error_is_one_line(monkeypatch, capsys):
    def fail(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.delenv("MESHWRIGHT_DEBUG", raising=False)
    monkeypatch.setattr("meshwright.cli.main._invoke", fail)
    assert run(["show", "gpus"]) == 2
    assert "internal error: ZeroDivisionError: oops" in capsys.readouterr().err


def test_an_interrupt_is_exit_130(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("meshwright.cli.main._invoke", interrupt)
    assert run(["show", "gpus"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def piped(arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "meshwright", *arguments],
        capture_output=True,
        env={**os.environ, **variables},
        check=True,
    ).stdout


def test_piped_output_does_not_depend_on_the_terminal():
    usual = piped(["show", "gpus"])
    for variables in ({"COLUMNS": "7"}, {"COLUMNS": "999", "FORCE_COLOR": "1"}, {"TERM": "dumb"}):
        assert piped(["show", "gpus"], **variables) == usual
    assert b"\x1b" not in usual


def test_a_reader_that_leaves_early_causes_no_noise():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "show", "models"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 0


def test_output_survives_an_ascii_terminal():
    assert piped(["show", "schedules"], PYTHONIOENCODING="ascii", PYTHONUTF8="0")
