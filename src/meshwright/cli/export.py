"""`meshwright export`: a checkpoint as a folder that from_pretrained and vLLM load."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.cli import output

if TYPE_CHECKING:
    from meshwright.train.export import Exported

_EPILOG = """\b
Examples:
  meshwright export runs/a/step-1000 -o hf/
  meshwright export runs/a/step-1000 -o hf/ --dtype bfloat16 --tokenizer tokenizer/
  meshwright export runs/a -o hf/ --force
  python -c "from transformers import AutoModelForCausalLM as M; M.from_pretrained('hf/')"
"""


@click.command(epilog=_EPILOG)
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("-o", "--output", "out", required=True, metavar="FOLDER", help="Write it there.")
@click.option("--dtype", metavar="NAME", help="float32, bfloat16, ...; as trained by default.")
@click.option("--tokenizer", metavar="FOLDER", help="Copy this tokenizer into it.")
@click.option(
    "--shard-size",
    default="5GB",
    metavar="SIZE",
    show_default=True,
    help="The largest file of weights.",
)
@click.option("--force", is_flag=True, help="Replace an earlier export in FOLDER.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(checkpoint: str, *, out: str, as_json: bool, **asked: Any) -> None:
    """Write the weights in CHECKPOINT as safetensors with a config.json.

    CHECKPOINT is one of a run, as runs/a/step-1000, or the folder of a run: then it is the newest
    one that is whole. The folder loads with AutoModelForCausalLM.from_pretrained and in vLLM, also
    for mixtures of experts. Weights are streamed: no model is held in memory.
    """
    from meshwright.base.units import parse_bytes

    shard_bytes = int(parse_bytes(asked["shard_size"]))
    if shard_bytes < 1:
        raise MeshwrightError("--shard-size must be at least one byte", hint="write it as 5GB")
    done = _exported(
        checkpoint,
        out,
        dtype=asked["dtype"],
        tokenizer=asked["tokenizer"],
        shard_bytes=shard_bytes,
        force=asked["force"],
    )
    if as_json:
        output.json(_record(done))
    else:
        output.remark(*_lines(done))


def _exported(checkpoint: str, out: str, **options: Any) -> Exported:
    """Exports, once it is clear that what that takes is there."""
    from meshwright.api.training import need_libraries

    need_libraries("exporting a checkpoint")
    from meshwright.train.export import export as write

    return write(checkpoint, out, **options, tell=_progress())


def _progress() -> Any:
    """Shows what is done, on a terminal."""
    if not sys.stderr.isatty():
        return lambda _done, _total: None

    def tell(done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        share = f"\r{done / max(total, 1):4.0%} of {total / 1e9:.2f} GB"
        click.echo(share + end, nl=False, err=True)

    return tell


def _record(done: Exported) -> dict[str, Any]:
    return {
        "folder": str(done.folder),
        "step": done.step,
        "model_type": done.model_type,
        "parameters": done.parameters,
        "dtype": done.dtype,
        "files": done.files,
        "damage": [found.one_line() for found in done.damage],
    }


def _lines(done: Exported) -> tuple[str, ...]:
    from meshwright.base.units import format_bytes

    passed = tuple(f"warning: passed over: {found.one_line()}" for found in done.damage)
    size = format_bytes(sum(done.files.values()))
    return (
        *passed,
        f"{done.folder}: {done.model_type}, {done.parameters:,} parameters of step {done.step} in "
        f"{done.dtype}, {size} in {len(done.files)} files",
    )
