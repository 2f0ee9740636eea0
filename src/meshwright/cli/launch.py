"""`meshwright launch`: the file that runs a plan on somebody's scheduler."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright import api
from meshwright.base.finding import exit_code
from meshwright.cli import output
from meshwright.cli.check import variables_of
from meshwright.train.launch.schedulers import SCHEDULERS

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.train.launch.target import Target

_EPILOG = """\b
Examples:
  meshwright launch plan.toml --on slurm --data shards/ --steps 1000 --out runs/a > job.sbatch
  meshwright launch plan.toml --on kubernetes --data /data/shards --steps 1000 --out /data/runs/a \\
      --image ghcr.io/me/train:1 --volume data > job.yaml && kubectl apply -f job.yaml
  meshwright launch plan.toml --on torchrun --steps 1000 --out runs/a -- --seed 1 > job.sh
"""


@click.command(epilog=_EPILOG)
@click.argument("plan")
@click.option("--on", "scheduler", type=click.Choice(SCHEDULERS), required=True)
@click.option("--data", metavar="SOURCE", help="What `train` reads, as the nodes see it.")
@click.option("--steps", type=click.IntRange(1), help="Optimizer steps of the run.")
@click.option("--out", required=True, metavar="FOLDER", help="Where every node sees the run.")
@click.option("--name", default="meshwright", show_default=True, help="Of the job.")
@click.option("--image", default="", metavar="IMAGE", help="Container that has meshwright[train].")
@click.option("--partition", default="", metavar="NAME", help="Slurm's; elsewhere of no use.")
@click.option("--account", default="", metavar="NAME", help="Slurm's; elsewhere of no use.")
@click.option("--time", default="", metavar="LIMIT", help="Slurm's time limit, as 2-00:00:00.")
@click.option("--namespace", default="", metavar="NAME", help="Of Kubernetes.")
@click.option("--volume", default="", metavar="CLAIM", help="Kubernetes: volume claim at /data.")
@click.option("--infra", default="", metavar="CLOUD", help="SkyPilot's, as aws or gcp/us-central1.")
@click.option("--env", "sets", multiple=True, metavar="VARIABLE=VALUE", help="Set on every node.")
@click.option("--max-restarts", type=click.IntRange(0), default=10, show_default=True)
@click.option("--grace", type=click.IntRange(1), default=120, show_default=True, metavar="SECONDS")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("options", nargs=-1, metavar="[-- TRAIN OPTIONS]")
def launch(
    plan: str, *, scheduler: str, options: tuple[str, ...], as_json: bool, **asked: Any
) -> int:
    """Write the file that runs `meshwright train` for PLAN on a scheduler.

    It goes to stdout. PLAN, --data and --out are paths as the nodes see them; nodes and GPUs are
    those of the plan. What the rules have against it goes to stderr; exits with 1 when one of them
    is an error. What stands behind -- is passed to `train` as it is.
    """
    from meshwright.train.launch.schedulers import job_file

    job = api.read_job(plan)
    target = _target(plan, job, options=options, asked=asked)
    text = job_file(scheduler, target)
    findings = api.check(job)
    if as_json:
        output.json(_record(scheduler, target, text, findings))
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
        _remark(findings)
    return exit_code(findings)


def _target(plan: str, job: Any, *, options: tuple[str, ...], asked: dict[str, Any]) -> Target:
    """What the command line describes; click.UsageError for options that `train` has not."""
    from meshwright.cli.train import train
    from meshwright.train.launch.target import Target, cores_per_rank, environment_of, nodes_of

    train.make_context("train", [plan, "--out", asked["out"], *options])  # not only in the queue
    own = {"--data": asked.pop("data"), "--steps": asked.pop("steps")}
    stated = [part for name, value in own.items() if value for part in (name, str(value))]
    nodes, ranks = nodes_of(job)
    variables = variables_of(asked.pop("sets"))
    return Target(
        plan=plan,
        nodes=nodes,
        ranks_per_node=ranks,
        gpu="" if job.cluster.gpu.generation == "cpu" else job.cluster.gpu.name,
        cores_per_rank=cores_per_rank(job),
        whole_nodes=ranks == job.cluster.gpus_per_node,
        memory_bytes=job.cluster.host.memory_bytes,
        options=(*stated, *options),
        environment=environment_of(job) | variables,
        grace_s=asked.pop("grace"),
        **asked,
    )


def _record(scheduler: str, target: Target, text: str, findings: list[Finding]) -> dict[str, Any]:
    from meshwright.report.findings import finding_record
    from meshwright.train.launch.target import arguments

    return {
        "on": scheduler,
        "nodes": target.nodes,
        "ranks_per_node": target.ranks_per_node,
        "command": shlex.join(arguments(target)),
        "environment": dict(target.environment),
        "file": text,
        "findings": [finding_record(f) for f in findings],
    }


def _remark(findings: list[Finding]) -> None:
    from meshwright.report.findings import findings_lines

    if findings:
        output.remark(*findings_lines(findings))
