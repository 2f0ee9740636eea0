"""Files for schedulers: what they ask for, and that no name escapes from its place."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import subprocess

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError, UnknownName
from meshwright.plan.file import parse_job
from meshwright.train.launch.codes import PREEMPTED
from meshwright.train.launch.schedulers import SCHEDULERS, job_file
from meshwright.train.launch.skypilot import accelerator
from meshwright.train.launch.target import Target, environment_of, nodes_of

HOSTILE = (
    "$(touch owned) `touch owned` '; touch owned; \" \\ \n#SBATCH --wrap=x\n- {a: $$(B)} %s {}"
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def target(**changes):
    values = {
        "plan": "plan.toml",
        "out": "runs/a",
        "nodes": 2,
        "ranks_per_node": 8,
        "gpu": "H100-80G-SXM",
        "image": "ghcr.io/someone/train:1",
        "options": ("--data", "shards/", "--steps", "1000"),
        "environment": {"NCCL_ALGO": "Ring"},
    }
    return Target(**(values | changes))


def train_argv(scheduler, made, tmp_path, *, node=1):
    """What the file really runs on a node: argv and environment as `meshwright` sees them."""
    seen = tmp_path / "seen"
    for name in ("meshwright", "srun", "scontrol"):
        program = tmp_path / name
        program.write_text(PROGRAMS[name])
        program.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SEEN": str(seen),
        "SLURM_JOB_NODELIST": "n[0-1]",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": str(node),
        "JOB_COMPLETION_INDEX": str(node),
        "SKYPILOT_NODE_IPS": "n0\nn1",
        "SKYPILOT_NODE_RANK": str(node),
        "HEAD": "n0",
    }
    script, own = script_of(scheduler, made)
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(node)],
        cwd=tmp_path,
        env=variables | own,
        capture_output=True,
        text=True,
    )
    record = json.loads(seen.read_text())
    return record["argv"], record["environment"], done.returncode


PROGRAMS = {
    "meshwright": """#!/usr/bin/env python3
import json, os, sys
record = {"argv": sys.argv[1:], "environment": dict(os.environ)}
open(os.environ["SEEN"], "w").write(json.dumps(record))
sys.exit(int(os.environ.get("CODE", "0")))
""",
    "srun": """#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
os.execvp(words[0], words)
""",
    "scontrol": """#!/bin/sh
if [ "$1" = show ]; then printf 'n0\\nn1\\n'; else echo "$@" > requeued; fi
""",
}


def script_of(scheduler, made):
    """The shell text that one node runs, and the variables that the scheduler gives it."""
    if scheduler in ("slurm", "torchrun"):
        return made, {}
    documents = list(yaml.safe_load_all(made))
    if scheduler == "skypilot":
        return documents[0]["run"], documents[0]["envs"]
    container = documents[-1]["spec"]["template"]["spec"]["containers"][0]
    program, flag, line = container["command"]
    assert (program, flag) == ("bash", "-c")
    return expanded(line), {e["name"]: expanded(e["value"]) for e in container["env"]}


def expanded(text):
    """What Kubernetes makes of a value: third_party/forked/golang/expansion, nothing defined."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda m: "$" if m[1] == "$" else f"<{m[1]}>", text)


SHELLS = ["slurm", "torchrun", "kubernetes", "skypilot"]


@pytest.mark.parametrize("scheduler", SHELLS)
def test_each_node_runs_its_share(scheduler, tmp_path):
    argv, environment, code = train_argv(scheduler, job_file(scheduler, target()), tmp_path)
    assert code == 0
    assert argv[:2] == ["train", "plan.toml"]
    options = dict(itertools.pairwise(argv))
    assert options["--nnodes"] == "2"
    assert options["--node-rank"] == "1"
    assert re.fullmatch(r"(n0|meshwright-0\.meshwright):\d+", options["--rdzv"])
    assert options["--steps"] == "1000"
    assert "--resume" in argv
    assert environment["NCCL_ALGO"] == "Ring"


@pytest.mark.parametrize("scheduler", SHELLS)
def test_a_single_node_needs_no_meeting(scheduler, tmp_path):
    argv, *_ = train_argv(scheduler, job_file(scheduler, target(nodes=1)), tmp_path)
    assert "--rdzv" not in argv


@pytest.mark.parametrize("scheduler", SHELLS)
def test_hostile_words_arrive_as_they_are(scheduler, tmp_path):
    made = job_file(
        scheduler,
        target(plan=HOSTILE, options=("--data", HOSTILE), environment={"A": HOSTILE}),
    )
    argv, environment, _ = train_argv(scheduler, made, tmp_path)
    assert argv[1] == HOSTILE
    assert argv[argv.index("--data") + 1] == HOSTILE
    assert environment["A"] == HOSTILE
    assert not (tmp_path / "owned").exists()


@settings(max_examples=25)
@given(plan=texts, out=texts, option=texts, value=texts)
def test_any_words_come_back_from_shell_and_yaml(plan, out, option, value):
    made = target(plan=plan, out=out, options=(option,), environment={"A": value})
    for scheduler in SHELLS:
        script, own = script_of(scheduler, job_file(scheduler, made))
        words = shlex.split(script, comments=True)
        if scheduler == "slurm":
            words += shlex.split(words[words.index("-c") + 1])
        start = words.index("train", words.index("meshwright"))
        assert words[start + 1] == plan
        assert words[words.index("--out", start) + 1] == out
        assert option in words[words.index("--grace", start) + 2 :]
        assert own.get("A", value) == value


@settings(max_examples=25)
@given(gpu=texts)
def test_no_gpu_name_leaves_the_comment(gpu):
    for scheduler in ("slurm", "torchrun", "ray"):
        text = job_file(scheduler, target(gpu=f"x{gpu}"))
        comment = [line for line in re.split(r"[\n\r\v\f\x85\u2028\u2029]", text) if " x x" in line]
        assert len(comment) == 1
        assert comment[0].startswith("# 2 nodes of 8 x x")


@pytest.mark.parametrize("what", ["name", "partition", "account", "time"])
def test_directives_take_no_hostile_name(what):
    with pytest.raises(MeshwrightError, match="no name that a scheduler takes"):
        job_file("slurm", target(**{what: HOSTILE}))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_hostile_name_of_a_variable_is_refused(scheduler):
    with pytest.raises(MeshwrightError, match="no name of an environment variable"):
        job_file(scheduler, target(environment={"A=1; touch owned; B": "x"}))


def directives(text):
    lines = [line for line in text.split("\n") if line.startswith("#SBATCH --")]
    return dict([*line[10:].split("=", 1), ""][:2] for line in lines)


def test_slurm_is_asked_for_whole_nodes_signals_and_another_try():
    asked = directives(job_file("slurm", target(partition="h100", time="2-00:00:00")))
    assert asked["nodes"] == "2"
    assert asked["ntasks-per-node"] == "1"
    assert asked["gpus-per-node"] == "8"
    assert asked["signal"] == "TERM@180"
    assert asked["partition"] == "h100"
    assert asked["time"] == "2-00:00:00"
    assert {"requeue", "exclusive"} <= set(asked)


def test_slurm_shares_a_node_where_the_plan_needs_a_part_of_it():
    few = target(nodes=1, ranks_per_node=2, whole_nodes=False, cores_per_rank=14)
    asked = directives(job_file("slurm", few))
    assert asked["cpus-per-task"] == "28"
    assert "exclusive" not in asked


def test_slurm_queues_a_stopped_run_again_and_only_that(tmp_path, monkeypatch):
    text = job_file("slurm", target())
    for code, again in ((0, False), (1, False), (PREEMPTED, True)):
        made = text.replace("set -euo pipefail", f"set -euo pipefail\nexport CODE={code}")
        assert train_argv("slurm", made, tmp_path)[2] == code
        assert (tmp_path / "requeued").exists() == again


def documents(**changes):
    return list(yaml.safe_load_all(job_file("kubernetes", target(**changes))))


def test_pods_find_each_other_by_a_headless_service():
    service, job = documents(name="a-run")
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert pod["subdomain"] == service["metadata"]["name"] == "a-run"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "a-run"}
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert pod["restartPolicy"] == "Never"  # what a pod failure policy demands
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}


def test_a_stopped_pod_is_replaced_and_wrong_input_ends_the_job():
    rules = documents()[-1]["spec"]["podFailurePolicy"]["rules"]
    by_code = {
        code: rule["action"]
        for rule in rules
        for code in rule.get("onExitCodes", {}).get("values", [])
    }
    assert by_code == {75: "Ignore", 2: "FailJob"}


@pytest.mark.parametrize("name", ["A_Run", "a.run", "-a", "a" * 53, "a\nb"])
def test_kubernetes_takes_only_names_of_hosts(name):
    with pytest.raises(MeshwrightError, match="none that Kubernetes takes"):
        documents(name=name)


def test_kubernetes_needs_an_image():
    with pytest.raises(MeshwrightError, match="image"):
        documents(image="")


def test_skypilot_recovers_stopped_runs():
    (task,) = yaml.safe_load_all(job_file("skypilot", target(infra="gcp/us-central1", image="")))
    assert task["num_nodes"] == 2
    assert task["resources"]["accelerators"] == "H100:8"
    assert task["resources"]["infra"] == "gcp/us-central1"
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [PREEMPTED]
    assert "meshwright[train]" in task["setup"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("H100-80G-SXM", "H100"),
        ("A100-80G-SXM", "A100-80GB"),
        ("A100-40G-SXM", "A100"),
        ("H200-141G-SXM", "H200"),
        ("RTX-4090", "RTX4090"),
        ("L40S", "L40S"),
        ("GB200", "GB200"),
        ("MI300X", "MI300X"),
        ("T4", "T4"),
    ],
)
def test_skypilot_has_its_own_names_of_gpus(ours, theirs):
    assert accelerator(ours) == theirs


def test_the_driver_for_ray_holds_hostile_words_as_data():
    made = job_file("ray", target(plan=HOSTILE, environment={"A": HOSTILE}))
    settings = next(
        node.value.args[0].value
        for node in ast.parse(made).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "JOB"
    )
    told = json.loads(settings)
    assert told["command"][:3] == ["meshwright", "train", HOSTILE]
    assert told["environment"] == {"A": HOSTILE}
    assert told["bundle"] == {"CPU": 1, "GPU": 8}


def test_an_unknown_scheduler_is_refused():
    with pytest.raises(UnknownName, match="slrum"):
        job_file("slrum", target())


def job(nodes, plan, gpu="H100:8", extra=""):
    text = f"""
[model]
name = "llama-3-8b"
[cluster]
gpu = "{gpu}"
nodes = {nodes}
[workload]
seq_len = 8192
global_batch = 768
{extra}
[plan]
{plan}
"""
    return parse_job(text)


@pytest.mark.parametrize(
    ("nodes", "plan", "placed"),
    [
        (2, "tp = 8", (2, 8)),
        (2, "tp = 2\ndp = 1", (1, 2)),
        (2, "tp = 2\ndp = 6", (2, 6)),
        (4, "tp = 1\ndp = 9", (3, 3)),
    ],
)
def test_every_node_has_as_many_ranks(nodes, plan, placed):
    assert nodes_of(job(nodes, plan)) == placed


def test_variables_are_those_that_plan_and_rules_ask_for():
    stated = '[workload.runtime]\nnccl_algo = "Ring"\nenvironment = { A = "1" }'
    small = environment_of(job(2, "tp = 8", extra=stated))
    assert small["NCCL_ALGO"] == "Ring"
    assert small["A"] == "1"
    assert int(small["OMP_NUM_THREADS"]) >= 1
    assert "NCCL_IB_TIMEOUT" not in small
    assert environment_of(job(1024, "tp = 8"))["NCCL_IB_TIMEOUT"] == "20"
