"""`meshwright plan`: from a model and a cluster to the best parallel strategy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright import api
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK
from meshwright.cli import output
from meshwright.cli.length import sequence_length
from meshwright.cli.pins import parse_pins

if TYPE_CHECKING:
    from meshwright.search import Result

_EPILOG = """\b
Examples:
  meshwright plan llama-3.1-70b --gpu H100:8 --nodes 8 --seq-len 8192 --global-batch 4Mtok
  meshwright plan deepseek-v3 --gpu H800:8 --nodes 256 --seq-len 4096 --global-batch 63Mtok
  meshwright plan llama-3.1-8b --gpu RTX4090:8 --seq-len 2k --global-batch 64 \\
      --pin lora_rank=16 --pin base_weight_bits=4
  meshwright plan config.json --cluster cluster.toml --seq-len 131072 --global-batch 16Mtok \\
      --pin tp=8 --pin cp=2..8 --ban schedule=gpipe --top 10 --objective cost --write plan.toml
"""


@click.command(epilog=_EPILOG)
@click.argument("model")
@click.option("--gpu", metavar="NAME:COUNT", help="GPU type and GPUs per node, as H100:8.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@click.option("--fabric", metavar="NAME", help="Network between nodes, see `show fabrics`.")
@click.option("--cluster", metavar="FILE", help="A cluster.toml instead of --gpu.")
@click.option(
    "--seq-len",
    metavar="TOKENS",
    callback=sequence_length,
    required=True,
    help="Tokens of a sequence, as 8192 or 8k.",
)
@click.option("--global-batch", required=True, help="Sequences a step, or tokens, as 4Mtok.")
@click.option("--tokens", help="Tokens of the whole run, as 15T.")
@click.option("--pin", "pins", multiple=True, metavar="FIELD=VALUES", help="tp=8, pp=2..8, cp=1,2.")
@click.option("--ban", "bans", multiple=True, metavar="FIELD=VALUES", help="Values not to use.")
@click.option("--precision", help="bf16, fp16, fp8, mxfp8, nvfp4; short for --pin precision=...")
@click.option("--optimizer", help="adam, adam-8bit, adafactor, muon, sgd, sgd-momentum.")
@click.option("--objective", type=click.Choice(api.OBJECTIVES), default="throughput")
@click.option("--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Rows.")
@click.option(
    "--stack", default="default", show_default=True, help="Software stack, see `show stacks`."
)
@click.option("--exhaustive", is_flag=True, help="Try every option, dominated ones too.")
@click.option("--write", metavar="FILE", help="Keep the best plan in a plan.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(model: str, *, write: str | None, as_json: bool, **asked: Any) -> int:
    """Find the best parallel strategy for MODEL, with the reason for every number.

    MODEL is a preset (see `meshwright show models`), a config.json, or a folder that holds one.
    --pin and --ban take any field of a plan.toml; a wrong name lists them all. Exits with 1 when no
    plan fits.
    """
    if write is not None:
        output.check_writable(write)
    result = _search(model, asked)
    if write and result.best is not None:
        from meshwright.plan.file import write_job

        output.write_file(write, write_job(result.best.job))
    refused = [] if result.rows else api.refused_pins(result, _pins(asked))
    refused = refused or list(result.refusals)
    if as_json:
        from meshwright.report.result import result_record

        output.json(result_record(result, refused=refused))
    else:
        from meshwright.report.result import result_page

        output.page(result_page(result, written=write or "", refused=refused))
    if result.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if result.rows else EXIT_FINDINGS


def _search(model: str, asked: dict[str, Any]) -> Result:
    """Runs the search that the options describe; on a terminal stderr shows how far it is."""
    watched = sys.stderr.isatty()
    result = api.plan(
        model,
        _gpus(asked["gpu"], asked["cluster"]),
        nodes=asked["nodes"],
        fabric=asked["fabric"],
        seq_len=asked["seq_len"],
        global_batch=asked["global_batch"],
        train_tokens=asked["tokens"],
        pins=_pins(asked),
        bans=parse_pins(asked["bans"]),
        objective=asked["objective"],
        top=asked["top"],
        stack=asked["stack"],
        exhaustive=asked["exhaustive"],
        progress=_progress if watched else None,
    )
    if watched:
        click.echo("\r\033[K", err=True, nl=False)
    return result


def _gpus(gpu: str | None, cluster: str | None) -> str:
    """The one of --gpu and --cluster that was given."""
    if bool(gpu) == bool(cluster):
        hint = "as --gpu H100:8 --nodes 8, or --cluster cluster.toml"
        raise MeshwrightError("give either --gpu or --cluster", hint=hint)
    if cluster and not cluster.endswith(".toml"):
        raise MeshwrightError(f"--cluster {cluster!r} is no .toml file", hint="or type --gpu NAME")
    return str(gpu or cluster)


def _pins(asked: dict[str, Any]) -> dict[str, Any]:
    """--pin, with the options that are short for a pin."""
    short = {name: asked[name] for name in ("precision", "optimizer") if asked[name]}
    return parse_pins(asked["pins"]) | short


def _progress(done: int, total: int) -> None:
    """One line on stderr, rewritten in place."""
    share = 100 * done // max(total, 1)
    click.echo(f"\r{share:3d}% searched", err=True, nl=False)
