"""`meshwright train`: runs a plan."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from meshwright.base.finding import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK, exit_code
from meshwright.cli import output
from meshwright.train.launch.codes import PREEMPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.api.training import Start, Trained

Command = TypeVar("Command")
_LINES_EVERY = 10  # steps, away from a terminal
_TRACEBACK = "Traceback (most recent call last):"
_EPILOG = """\b
Examples:
  meshwright train plan.toml --data shards/ --steps 1000 --out runs/a
  meshwright train plan.toml --data shards/ --steps 2000 --out runs/a --resume
  meshwright train plan.toml --data book.txt --tokenizer tokenizer/ --steps 500 --out runs/b \\
      --lr 3e-4 --lr-schedule wsd --warmup 50 --decay 100 --eval 100
  meshwright train plan.toml --steps 20 --out runs/try --device cpu --profile 10:12
  meshwright train plan.toml --data shards/ --steps 1000 --out runs/c \\
      --nnodes 2 --node-rank 0 --rdzv node0:29500

--resume goes on from the newest whole checkpoint in --out, also under another plan or on another
number of devices; where there is none yet, it starts. Ctrl-C saves a checkpoint and stops; a second
one stops at once. Exits with 0 when all steps are done, 1 when the plan cannot run or ranks failed,
2 for wrong input or a loss that is no number, 75 when it was asked to stop by SIGTERM and saved,
130 by Ctrl-C.
"""


def _window(_: Any, __: Any, value: str | None) -> tuple[int, int] | None:
    """The steps from A:B."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    if not colon or not first.isdigit() or not last.isdigit():
        raise click.BadParameter(f"{value!r} is no window of steps, as 10:12")
    return int(first), int(last)


def _group(*options: Any) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which they are listed."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_run = _group(
    click.option(
        "--data",
        default="synthetic",
        show_default=True,
        metavar="SOURCE",
        help="Folder or blend.toml of `data build`, prefix of .bin and .idx, text or .jsonl.",
    ),
    click.option("--tokenizer", metavar="PATH", help="For text: tokenizer.json or its folder."),
    click.option("--steps", type=int, help="Optimizer steps; else the plan's train_tokens."),
    click.option("--out", required=True, metavar="FOLDER", help="Checkpoints, metrics, logs."),
    click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in --out."),
    click.option("--weights", metavar="FOLDER", help="Start from these safetensors."),
    click.option("--seed", type=int, help="Of first values and of the order of the data."),
    click.option("--dry-run", is_flag=True, help="Say what would be run; start nothing."),
    click.option("--ignore", multiple=True, metavar="CODES", help="Rules that are not to refuse."),
    click.option("--json", "as_json", is_flag=True, help="Print how it ended as JSON."),
)
_machine = _group(
    click.option("--device", metavar="cpu|cuda", help="By default GPUs where there are any."),
    click.option("--nnodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes."),
    click.option("--node-rank", type=click.IntRange(0), default=0, help="Which of them this is."),
    click.option("--rdzv", default="", metavar="HOST:PORT", help="Where the nodes meet."),
    click.option("--max-restarts", type=click.IntRange(0), default=3, show_default=True),
    click.option("--threads", type=int, help="Of each rank; by default the cores, shared out."),
    click.option("--backend", metavar="NAME", help="Of torch.distributed: nccl, gloo."),
    click.option("--dtype", metavar="NAME", help="float64, float32, bfloat16: over the plan's."),
    click.option("--schedule-table", metavar="FILE", help="Operations instead of the schedule."),
    click.option("--compile", "compile_", is_flag=True, default=None, help="torch.compile layers."),
    click.option("--deterministic", is_flag=True, default=None, help="Only such kernels."),
)
_learning = _group(
    click.option("--lr", "learning_rate", type=float, help="Peak learning rate."),
    click.option("--lr-schedule", metavar="NAME", help="cosine, wsd, linear, constant."),
    click.option("--min-lr-ratio", type=float, help="Where it ends, as a share of the peak."),
    click.option("--warmup", "warmup_steps", type=int, help="Steps of linear warm-up."),
    click.option("--decay", "decay_steps", type=int, help="Last steps, in which wsd falls."),
    click.option("--weight-decay", type=float, help="Of matrices; norms and biases have none."),
    click.option("--beta1", type=float, help="Of Adam."),
    click.option("--beta2", type=float, help="Of Adam."),
    click.option("--epsilon", type=float, help="Of Adam."),
    click.option("--momentum", type=float, help="Of Muon and SGD."),
    click.option("--clip", "clip_norm", type=float, help="Largest gradient norm; 0 = none."),
    click.option("--router-aux-loss", type=float, help="Weight of the router's balancing loss."),
)
_feeding = _group(
    click.option("--eval", "evaluate_every", type=int, help="Steps between evaluations."),
    click.option("--eval-data", "evaluation", metavar="SOURCE", help="Else what is held out."),
    click.option("--eval-steps", "evaluate_steps", type=int, help="Batches of an evaluation."),
    click.option(
        "--document-masks/--no-document-masks",
        default=None,
        help="Documents of a row do not see each other (default), or do.",
    ),
    click.option("--shuffle/--no-shuffle", default=None, help="Rows in an order by the seed."),
    click.option("--prefetch", type=int, help="Batches that are made ahead."),
)
_saving = _group(
    click.option(
        "--checkpoint-every",
        type=int,
        help="Steps; 0 (default) = by what one costs and MTBF, -1 = only at the end.",
    ),
    click.option("--keep", type=int, help="Newest checkpoints that are kept."),
    click.option("--keep-every", type=int, help="Steps whose checkpoints are kept for good."),
    click.option("--mtbf", "mtbf_s", type=float, help="Seconds between failures of the job."),
    click.option("--asynchronous/--synchronous", default=None, help="Behind the next steps."),
    click.option("--save-last/--no-save-last", default=None, help="A checkpoint at the end."),
)
_telling = _group(
    click.option("--log-every", type=int, help="Steps between lines; files have every step."),
    click.option("--tensorboard", is_flag=True, default=None, help="Into FOLDER/tensorboard."),
    click.option("--wandb", "wandb_project", metavar="PROJECT", help="Weights & Biases, too."),
    click.option("--profile", callback=_window, metavar="A:B", help="Trace steps A to B."),
    click.option("--hang", "hang_s", type=float, help="Seconds without a step; 0 = for ever."),
    click.option("--grace", "grace_s", type=float, help="Seconds to save when asked to stop."),
    click.option("--nonfinite", metavar="skip|stop", help="What a loss that is no number does."),
    click.option("--nonfinite-limit", type=int, help="Updates left out in a row before it ends."),
)


@click.command(epilog=_EPILOG)
@click.argument("plan")
@_run
@_machine
@_learning
@_feeding
@_saving
@_telling
def train(plan: str, *, as_json: bool, dry_run: bool, max_restarts: int, **asked: Any) -> int:
    """Train the model of PLAN, a plan.toml, under its plan.

    The ranks of the plan are started here, on GPUs or as processes on the CPU; with --nnodes on
    every node by the same command. What the rules, the engine or the data have against it is told
    before anything is started. OUT holds metrics.jsonl, checkpoints as step-N, logs of all ranks
    and the plan itself.
    """
    from meshwright.api.training import begin, launch

    start = begin(plan, **_arguments(asked))
    code = exit_code(start.findings)
    if code != EXIT_OK or not as_json:
        _remark(start, plan)
    if code != EXIT_OK:
        return EXIT_FINDINGS
    if dry_run:
        return _dry(start, as_json=as_json)
    shown = _Screen()
    ended = launch(start, max_restarts=max_restarts, on_event=shown.show, on_progress=output.remark)
    code = _finish(ended, as_json=as_json) if start.nodes.rank == 0 else ended.code
    return EXIT_INTERRUPTED if shown.is_interrupted and code == PREEMPTED else code


def _arguments(asked: dict[str, Any]) -> dict[str, Any]:
    """The options in the words of the library."""
    from meshwright.api.training import Nodes
    from meshwright.report.page import is_terminal

    nodes = Nodes(
        count=asked.pop("nnodes"), rank=asked.pop("node_rank"), endpoint=asked.pop("rdzv")
    )
    codes = {code.strip() for text in asked.pop("ignore") for code in text.split(",")}
    asked["compile"] = asked.pop("compile_")
    asked["in_place"] = is_terminal(sys.stderr) or None
    if asked["log_every"] is None:
        asked["log_every"] = _LINES_EVERY
    return asked | {"nodes": nodes, "ignore": tuple(codes)}


def _remark(start: Start, plan: str) -> None:
    """What was found, on stderr: errors stop the run, warnings about the plan are counted."""
    from meshwright.base.finding import Severity
    from meshwright.report.findings import findings_lines

    errors = [f for f in start.findings if f.severity is Severity.ERROR]
    if errors:
        output.remark(*findings_lines(errors))
        return
    told = [f for f in start.told if f.severity is Severity.WARNING]
    if told:
        output.remark(*findings_lines(told))
    warnings = sum(f.severity is Severity.WARNING for f in start.findings) - len(told)
    if warnings:
        words = "1 warning" if warnings == 1 else f"{warnings} warnings"
        output.remark(f"{words} about the plan: meshwright check {plan} shows them")


def _dry(start: Start, *, as_json: bool) -> int:
    """What would be run."""
    from meshwright.report.training import start_lines

    if as_json:
        import msgspec

        output.json(msgspec.to_builtins(start.spec))
        return EXIT_OK
    lines = start_lines(
        start.job,
        start.run,
        expected=start.spec.expected,
        nodes=start.nodes.count,
        ranks_per_node=start.ranks_per_node,
    )
    output.page(lines)
    return EXIT_OK


def _finish(ended: Trained, *, as_json: bool) -> int:
    """How it ended."""
    from meshwright.report.training import summary_page, summary_record

    out = str(ended.out)
    if as_json:
        output.json(summary_record(ended.summary, out=out, code=ended.code))
    elif ended.summary is not None:
        traced = (ended.out / "traces").is_dir()
        output.page(summary_page(ended.summary, out=out, traced=traced))
    return ended.code


class _Screen:
    """What happens to a run, on stderr."""

    def __init__(self) -> None:
        self._in_line = False
        self._is_traceback = False
        self.is_interrupted = False

    def show(self, event: Any) -> None:
        """One event of the supervisor."""
        from meshwright.train.launch import event as kinds

        if event.kind == kinds.LINE:
            self._pass_on(event.text)
        elif event.kind == kinds.ENDED:
            self.is_interrupted = event.sign == signal.SIGINT
        elif event.kind in (kinds.STARTING, kinds.RANKS):
            self._is_traceback = False
        else:
            self._say(f"{event.kind}: {event.text}" if event.text else event.kind)
            if event.kind != kinds.FAILED or event.rank != 0 or self._is_traceback:
                self._say(*(f"  {line}" for line in event.lines))

    def _pass_on(self, text: str) -> None:
        """What rank 0 wrote, but for a traceback: that of the rank to blame is told instead."""
        if self._is_traceback:
            return
        text, found, _ = text.partition(_TRACEBACK)
        self._is_traceback = bool(found)
        sys.stderr.write(text)
        sys.stderr.flush()
        self._in_line = bool(text) and not text.endswith("\n")

    def _say(self, *lines: str) -> None:
        if not lines:
            return
        sys.stderr.write("\n" * self._in_line + "".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
        self._in_line = False
