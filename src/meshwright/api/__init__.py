"""The verbs of the library, the same as those of the command line.

Each takes names, paths or the nouns themselves, and returns values; nothing is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError, UnknownName
from meshwright.base.finding import Finding, Severity
from meshwright.base.names import did_you_mean, nearest
from meshwright.base.units import parse_tokens
from meshwright.base.words import shown
from meshwright.hardware.cluster import Cluster
from meshwright.model.architecture import Model
from meshwright.plan.batch import sequences_for
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan
from meshwright.plan.words import FIELDS, INTERLEAVED, LARGEST, plan_problems, read_word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.api.converting import Conversion
    from meshwright.base.problem import Problem
    from meshwright.cost.predict import Prediction
    from meshwright.report.check.report import Report
    from meshwright.search import Options, Result

_MESH = frozenset({"tp", "pp", "cp", "dp"})
MOST_VALUES = 256  # that a pin or a ban may list
OBJECTIVES = ("throughput", "cost", "memory")


def load_model(name_or_path: str | Path | Model) -> Model:
    """A preset by name, a model from a config.json or its folder, or the model itself."""
    if isinstance(name_or_path, Model):
        return name_or_path
    _check_type("model", name_or_path, str | Path, "a preset's name or a path, as llama-3-8b")
    from meshwright.model.catalogue import load

    return load(name_or_path)


def cluster(
    gpus: str | Path | Cluster,
    *,
    nodes: int = 1,
    fabric: str | None = None,
    node: str | None = None,
) -> Cluster:
    """`nodes` nodes of "H100:8", the cluster in a TOML file, or the cluster itself."""
    if isinstance(gpus, Cluster):
        return gpus
    _check_type("cluster", gpus, str | Path, "a GPU and a count, as H100:8, or a cluster.toml")
    _check_type("number of nodes", nodes, Integral, "a whole number, as 8")
    for kind, name in (("fabric", fabric), ("node", node)):
        _check_type(kind, name, str | None, "a name")
    if isinstance(gpus, Path) or gpus.endswith(".toml"):
        from meshwright.hardware.file import read_cluster

        return read_cluster(gpus)
    from meshwright.hardware.catalogue import cluster as by_name

    return by_name(gpus, nodes=nodes, fabric=fabric, node=node)


def workload(
    *, seq_len: int, global_batch: int | str, train_tokens: float | str | None = None
) -> Workload:
    """A workload; `global_batch` is a number of sequences, or text such as "4Mtok".

    A batch in tokens becomes the roundest number of sequences near it (`sequences_for`).
    """
    _check_type("sequence length", seq_len, Integral, "tokens, as 8192")
    _check_type("length of the run", train_tokens, str | Real | None, "tokens, as 15T")
    if not 1 <= seq_len <= LARGEST:
        raise MeshwrightError(
            f"sequence length {seq_len} is not between 1 and {LARGEST}", hint="give tokens, as 8192"
        )
    return Workload(
        seq_len=seq_len,
        global_batch_size=_sequences(global_batch, seq_len),
        train_tokens=None if train_tokens is None else _run_length(train_tokens),
    )


def plan(
    model: str | Path | Model,
    gpus: str | Path | Cluster,
    *,
    nodes: int = 1,
    fabric: str | None = None,
    seq_len: int,
    global_batch: int | str,
    train_tokens: float | str | None = None,
    pins: Mapping[str, Any] | None = None,
    bans: Mapping[str, Any] | None = None,
    objective: str = "throughput",
    top: int = 5,
    stack: str = "default",
    exhaustive: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """The best plans for a model on a cluster, why the rest were refused, and what was assumed.

    `pins` fixes fields of the plan (`{"tp": 8, "schedule": "1f1b"}`, or a list of allowed values),
    `bans` excludes values. A search that finds nothing is a result without rows.
    """
    from meshwright.search import plan_job

    if str(objective) not in OBJECTIVES:
        raise UnknownName("objective", str(objective), suggestions=OBJECTIVES)
    _check_type("number of rows", top, Integral, "a whole number, as 5")
    if top < 1:
        raise MeshwrightError(f"{top} rows are no result", hint="give 1 or more")
    for given in (pins, bans):
        _check_type("pins or bans", given, Mapping | None, 'a mapping, as {"tp": 8}')
    return plan_job(
        load_model(model),
        cluster(gpus, nodes=nodes, fabric=fabric),
        workload(seq_len=seq_len, global_batch=global_batch, train_tokens=train_tokens),
        settings=options(pins or {}, bans or {}, exhaustive=exhaustive),
        top=top,
        objective=objective,
        stack=known_stack(stack),
        progress=progress,
    )


def refused_pins(result: Result, pins: Mapping[str, Any]) -> list[Finding]:
    """What the rules have against the single-valued pins themselves, whatever the rest of the plan.

    A rule is asked when it reads pinned fields alone, or the mesh alone; degrees that are not
    pinned take the GPUs that are left. Where these say nothing and no plan was even costed to be
    too large, the rules that refused the candidates are asked. `pins` are as given to `plan`.
    """
    from meshwright.rules.rule import check as check_job
    from meshwright.rules.rule import pruning_rules

    fixed = {n: v[0] for n, v in options(pins, {}).pins.items() if len(v) == 1}
    pinned = set(fixed)
    asked = [
        rule
        for rule in pruning_rules()
        if pinned & set(rule.reads)
        and (set(rule.reads) <= pinned | {"etp"} or set(rule.reads) <= _MESH)
    ]
    job = result.job.with_plan(Plan(**_filled(fixed, result.job.cluster.num_gpus)))
    found = check_job(job, asked)
    if found or not fixed or "memory" in result.rejected:
        return found
    return [f for f in check_job(job) if f.code in result.rejected and f.severity is Severity.ERROR]


def _filled(fixed: Mapping[str, Any], num_gpus: int) -> dict[str, Any]:
    """Pinned fields, and the first degree of the mesh that is free at the GPUs that are left."""
    taken = prod(fixed.get(name, 1) for name in _MESH)
    free = next((name for name in ("dp", "tp", "pp", "cp") if name not in fixed), None)
    return dict(fixed) if free is None else {**fixed, free: max(num_gpus // taken, 1)}


def known_stack(name: str) -> str:
    """`name`, if a calibration exists for that software stack; else UnknownName."""
    from meshwright.cost.calibration import default_calibration

    _check_type("stack", name, str, "a name, as default")
    stacks = default_calibration().stacks
    if name not in stacks:
        raise UnknownName("stack", name, suggestions=nearest(name, stacks) or tuple(stacks))
    return name


def options(
    pins: Mapping[str, Any], bans: Mapping[str, Any], *, exhaustive: bool = False
) -> Options:
    """The search's settings; every pin or ban that names no field or value is reported at once."""
    from meshwright.search import Options

    findings: list[Finding] = []
    fixed = {name: _values(name, given, findings, "pin") for name, given in pins.items()}
    banned = {name: _values(name, given, findings, "ban") for name, given in bans.items()}
    if findings:
        raise InvalidInput(findings)
    if INTERLEAVED in _listed(pins.get("schedule", ())):
        banned["vpp"] = (*banned.get("vpp", ()), 1)
    single = {name: values[0] for name, values in fixed.items() if len(values) == 1}
    return Options(pins=fixed, bans=banned, base=Plan(**single), exhaustive=exhaustive)


def predict(job: Job | str | Path) -> Prediction:
    """Memory and time of a job, or of the plan.toml at a path."""
    from meshwright.cost.predict import predict as predict_job

    return predict_job(read_job(job))


def check(job: Job | str | Path) -> list[Finding]:
    """What the rules have against a job, or against the plan.toml at a path; errors first."""
    from meshwright.rules.rule import check as check_job

    return check_job(read_job(job))


def check_files(paths: Sequence[str | Path], **given: Any) -> Report:
    """What is wrong with configurations of any framework; see `api.checking.check_files`."""
    from meshwright.api.checking import check_files as check_all

    return check_all(paths, **given)


def convert_files(paths: Sequence[str | Path], to: str, **given: Any) -> Conversion:
    """A configuration in another framework's words; see `api.converting.convert_files`."""
    from meshwright.api.converting import convert_files as convert_all

    return convert_all(paths, to, **given)


def read_job(job: Job | str | Path) -> Job:
    """The job in the plan.toml at a path, its software stack a known one; or the job itself."""
    if isinstance(job, Job):
        known_stack(job.stack)
        if problems := plan_problems(job.plan):
            raise InvalidInput(_plain_finding(problem) for problem in problems)
        return job
    _check_type("job", job, str | Path, "a Job, or the path of a plan.toml")
    from meshwright.plan.file import read_job as read_file

    read = read_file(job)
    known_stack(read.stack)
    return read


def _plain_finding(problem: Problem) -> Finding:
    """The finding of a value that stands in no file."""
    message = f"{problem.key} = {shown(problem.value)}: {problem.reason}"
    return Finding(message=message, key=problem.key, value=problem.value, hint=problem.hint)


def _check_type(noun: str, value: object, wanted: Any, example: str) -> None:
    """MeshwrightError when `value` is not of the wanted type; a truth value is no number."""
    if not isinstance(value, wanted) or isinstance(value, bool):
        reason = "is not a whole number" if wanted is Integral else "is not possible"
        raise MeshwrightError(f"{noun} {shown(value)} {reason}", hint=f"give {example}")


def _run_length(train_tokens: float | str) -> float:
    """Tokens of a whole run, at least one."""
    tokens = parse_tokens(train_tokens)
    if tokens < 1:
        raise MeshwrightError(f"a run of {train_tokens} tokens is none", hint='type it as "15T"')
    return tokens


def _sequences(global_batch: int | str, seq_len: int) -> int:
    """Sequences of a batch given as a number or as text."""
    text = str(global_batch).strip()
    if text.isdigit() and 1 <= int(text[:12]) <= LARGEST:
        return int(text)
    if "tok" not in text:
        hint = 'type a number of sequences, or tokens as "4Mtok"'
        raise MeshwrightError(f"global batch {text!r} does not say of what", hint=hint)
    tokens = parse_tokens(text)
    if not 1 <= tokens <= LARGEST * seq_len:
        raise MeshwrightError(f"global batch {text!r} is not possible", hint='type it as "4Mtok"')
    return sequences_for(tokens, seq_len)


def _values(name: str, given: Any, findings: list[Finding], kind: str) -> tuple[Any, ...]:
    """The values that a pin or ban lists, as a plan holds them; wrong ones are noted."""
    if name not in FIELDS:
        hint = did_you_mean(name, FIELDS, otherwise="fields:")
        findings.append(Finding(message=f"{kind} {name!r} is no field of a plan", hint=hint))
        return ()
    if len(_listed(given)) > MOST_VALUES:
        message = f"{kind} {name} lists {len(_listed(given))} values"
        hint = f"list at most {MOST_VALUES}, as {name}=1,2,4,8"
        findings.append(Finding(message=message, key=name, hint=hint))
        return ()
    values: list[Any] = []
    for item in _listed(given):
        value, problem = read_word(name, item)
        if problem:
            message = f"{kind} {name}={item}: {problem.reason}"
            findings.append(Finding(message=message, key=name, value=item, hint=problem.hint))
        else:
            values.append(value)
    return tuple(values)


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple | range) else (given,)
