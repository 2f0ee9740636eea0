"""Trains under a plan: `meshwright.train` and `meshwright train`.

Nothing here imports torch: what can be refused is refused at once, then processes are started that
do the work (`train.launch`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.api import check, predict, read_job
from meshwright.api.training.data import prepared, source_findings
from meshwright.api.training.options import run_of
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.cost.predict import mfu_convention
from meshwright.data.needs import need_all
from meshwright.model.flops import flops_per_token
from meshwright.plan.file import write_job
from meshwright.plan.job import num_microbatches, world_size
from meshwright.plan.plan import PEAK_NAME, Precision
from meshwright.rules.costed import is_laid
from meshwright.train.launch.codes import DONE
from meshwright.train.launch.devices import visible_gpus
from meshwright.train.model.beginning import Beginning, beginning
from meshwright.train.model.configuration import CONFIG, keys_behind
from meshwright.train.refusals import refusals
from meshwright.train.remarks import remarks
from meshwright.train.settings import Expected, Run, Spec, write_spec
from meshwright.train.tables import read_table
from meshwright.train.telling.boards import check_boards
from meshwright.train.telling.summary import SUMMARY, Summary, read_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from meshwright.plan.job import Job
    from meshwright.train.launch.event import Event

SPEC, PLAN, LOGS = "run.json", "plan.toml", "logs"  # in the folder of a run
CPU, CUDA = "cpu", "cuda"
_LIBRARIES = ("torch", "transformers", "safetensors", "xxhash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Which of how many nodes this one is; `endpoint` is "host:port" of the first."""

    count: int = 1
    rank: int = 0
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A run that may begin: everything that was found, and what its ranks will read.

    `told` are the findings that `meshwright check` of the plan alone does not have.
    """

    job: Job
    run: Run
    nodes: Nodes
    ranks_per_node: int
    spec: Spec
    findings: tuple[Finding, ...]
    told: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How a start of a run ended; `code` as in `train.launch.codes`, 0 when all steps are done."""

    code: int
    out: Path
    summary: Summary | None
    findings: tuple[Finding, ...]

    @property
    def done(self) -> bool:
        """Whether all steps are done."""
        return self.code == DONE


def train(
    job: Job | str | Path,
    *,
    out: str | Path,
    data: str = "synthetic",
    steps: int | None = None,
    resume: bool = False,
    device: str | None = None,
    nnodes: int = 1,
    node_rank: int = 0,
    rdzv: str = "",
    max_restarts: int = 3,
    ignore: Sequence[str] = (),
    on_event: Callable[[Event], object] | None = None,
    on_progress: Callable[[str], object] | None = None,
    **options: Any,
) -> Trained:
    """Trains a job, or the plan.toml at a path, on this node's devices; returns when it has ended.

    `out` gets plan, metrics.jsonl, checkpoints and logs. Without `steps` the plan's train_tokens
    say how many. `resume` goes on from the newest checkpoint in `out`, which may be of another plan
    or world size. `options` are those of the command line in Python's spelling (`learning_rate`,
    `checkpoint_every`, ...: `training.options.OPTIONS`). `on_event` is called with what happens,
    `on_progress` with lines about data that is built first.

    Raises InvalidInput with all findings where the plan, the data or an option cannot be used, and
    MeshwrightError where `out` holds another run.
    """
    start = begin(
        job,
        out=out,
        data=data,
        steps=steps,
        resume=resume,
        device=device,
        nodes=Nodes(count=nnodes, rank=node_rank, endpoint=rdzv),
        ignore=ignore,
        **options,
    )
    errors = [f for f in start.findings if f.severity is Severity.ERROR]
    if errors:
        raise InvalidInput(errors)
    return launch(start, max_restarts=max_restarts, on_event=on_event, on_progress=on_progress)


def begin(
    job: Job | str | Path,
    *,
    out: str | Path,
    data: str,
    steps: int | None,
    resume: bool,
    device: str | None,
    nodes: Nodes,
    ignore: Sequence[str] = (),
    **options: Any,
) -> Start:
    """Everything about a run that can be known before it is started; nothing is written.

    Findings of the rules, of the engine and of the data are in `Start.findings`, those with the
    codes in `ignore` left out. An option that cannot be is InvalidInput.
    """
    started_s = time.time()
    known = read_job(job)
    kind = device or (CUDA if visible_gpus() else CPU)
    run = run_of(
        known,
        {"out": str(out), "source": str(data), "steps": steps, "resume": resume, "device": kind}
        | options,
    )
    if run.schedule_table is not None:
        read_table(run.schedule_table, known.plan, microbatches=int(num_microbatches(known)))
    ranks, told = _ranks_per_node(known, kind, nodes)
    began = _beginning(known, job, run)
    told += [*refusals(known), *remarks(known), *began.findings]
    told += source_findings(known, run.feed)
    spec = Spec(
        plan_toml=write_job(known),
        config=dict(began.keys),
        run=run,
        expected=_expected(known, kind),
        started_s=started_s,
    )
    return Start(
        job=known,
        run=run,
        nodes=nodes,
        ranks_per_node=ranks,
        spec=spec,
        findings=_kept((*told, *check(known)), ignore),
        told=_kept(told, ignore),
    )


def _kept(findings: Iterable[Finding], ignore: Sequence[str]) -> tuple[Finding, ...]:
    """Findings that are not of an ignored rule."""
    return tuple(f for f in findings if f.code not in ignore or not f.code)


def launch(
    start: Start,
    *,
    max_restarts: int = 3,
    on_event: Callable[[Event], object] | None = None,
    on_progress: Callable[[str], object] | None = None,
) -> Trained:
    """Starts the ranks of this node and waits for their end."""
    from meshwright.train.launch.local import supervise
    from meshwright.train.launch.settings import EXECUTE, FORK
    from meshwright.train.watch.lag import Limits

    need_libraries()
    check_boards(start.run)
    out = Path(start.run.out)
    is_first = start.nodes.rank == 0
    path = out / (SPEC if is_first else f"run-node-{start.nodes.rank}.json")

    def write() -> None:
        if is_first:  # the others find what the first has just written
            _refuse_second(out, resume=start.run.resume)
        spec = prepared(start.job, start.spec, is_first=is_first, tell=on_progress)
        _write(spec, path, is_first=is_first)

    if is_first:
        _refuse_second(out, resume=start.run.resume)
    hang_s = start.run.guard.hang_s or float("inf")
    code = supervise(
        ("meshwright.train.worker", str(path)),
        ranks_per_node=start.ranks_per_node,
        nodes=start.nodes.count,
        node_rank=start.nodes.rank,
        endpoint=start.nodes.endpoint,
        run=out.name or "run",
        max_restarts=max_restarts,
        grace_s=start.run.guard.grace_s,
        log_folder=out / LOGS,
        start=EXECUTE if start.run.device == CUDA else FORK,
        limits=Limits(step_s=hang_s, phase_s=max(hang_s, Limits().phase_s)),
        before=write,
        on_event=on_event,
    )
    return Trained(code=code, out=out, summary=read_summary(out), findings=start.findings)


def need_libraries(purpose: str = "training") -> None:
    """MeshwrightError where what the engine stands on is not installed."""
    need_all(_LIBRARIES, purpose, extra="train")


def _refuse_second(out: Path, *, resume: bool) -> None:
    """A folder with a run in it is gone on with, or left alone."""
    if (out / SPEC).exists() and not resume:
        raise MeshwrightError(
            f"{str(out)!r} holds a run already",
            hint="add --resume to go on with it, or name another folder with --out",
        )
    if out.exists() and not out.is_dir():
        raise MeshwrightError(f"{str(out)!r} is no folder", hint="name another with --out")


def _write(spec: Spec, path: Path, *, is_first: bool) -> None:
    """The file that the ranks of this node read; the first node writes plan and model beside it."""
    out = path.parent
    try:
        write_spec(spec, path)
        if is_first:
            (out / SUMMARY).unlink(missing_ok=True)
            (out / PLAN).write_text(spec.plan_toml, encoding="utf-8")
            (out / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(spec.config)))
    except OSError as error:
        raise MeshwrightError(
            f"cannot write into {str(out)!r}: {error.strerror or error}",
            hint="name another folder with --out",
        ) from None


def config_keys(job: Job, given: Job | str | Path) -> Mapping[str, Any]:
    """The keys of the model's config.json, as the plan file has them where there is one."""
    section, folder = _model_section(given)
    return keys_behind(job.model, section=section, folder=folder)


def _beginning(job: Job, given: Job | str | Path, run: Run) -> Beginning:
    """The configuration that the run begins with: the plan's, its weights' or its own."""
    section, folder = _model_section(given)
    gone_on_with = run.out if run.resume else None
    return beginning(
        job.model, section=section, folder=folder, weights=run.weights, run=gone_on_with
    )


def _model_section(given: Job | str | Path) -> tuple[Mapping[str, Any] | None, Path]:
    """The [model] section of a plan file and the file's folder, None where there is no file."""
    if not isinstance(given, str | Path):
        return None, Path()
    from meshwright.base.locate import SYNTAXES, read

    document = read(given, syntax=SYNTAXES.get(Path(given).suffix.lower(), "toml"))
    return document.data["model"], Path(given).parent


def _expected(job: Job, device: str) -> Expected:
    """What the cost model says, where the plan's cluster is the machine of the run."""
    convention = mfu_convention(job)
    flops = float(flops_per_token(job.model, job.workload.seq_len, convention=convention))
    gpu = job.cluster.gpu
    if device == CPU and gpu.curves is None:  # a plan for GPUs, tried out on a CPU
        return Expected(flops_per_token=flops, convention=convention)
    peak = gpu.peak_flops.get(PEAK_NAME[Precision(int(job.plan.precision))])
    prediction = predict(job) if is_laid(job) else None
    return Expected(
        flops_per_token=flops,
        convention=convention,
        peak_flops=peak or max(gpu.peak_flops.values()),
        step_s=prediction.step_time_s if prediction else None,
        peak_bytes=prediction.peak_bytes if prediction else None,
    )


def _ranks_per_node(job: Job, device: str, nodes: Nodes) -> tuple[int, list[Finding]]:
    """Ranks of this node, and what is wrong with the nodes."""
    ranks = int(world_size(job.plan))
    if ranks % nodes.count:
        message = f"{ranks} ranks do not divide over {nodes.count} nodes"
        hint = f"give a divisor of {ranks} as --nnodes"
        return 1, [Finding(message=message, key="nnodes", value=nodes.count, hint=hint)]
    here = ranks // nodes.count
    found = []
    if device == CUDA and here > (gpus := visible_gpus()):
        needed = -(-ranks // gpus) if gpus else 0
        hint = f"--nnodes {needed} --node-rank R --rdzv HOST:PORT" if gpus else "--device cpu"
        message = f"the plan needs {here} GPUs on this node, which has {gpus}"
        found.append(Finding(message=message, key="nnodes", value=nodes.count, hint=hint))
    if not 0 <= nodes.rank < nodes.count:
        message = f"node {nodes.rank} is none of {nodes.count} nodes"
        hint = f"--node-rank 0 to {nodes.count - 1}"
        found.append(Finding(message=message, key="node_rank", value=nodes.rank, hint=hint))
    return here, found
