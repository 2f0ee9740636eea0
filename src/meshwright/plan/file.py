"""plan.toml: one `Job` as a file that people read, keep and edit.

    stack = "default"

    [model]
    name = "llama-3.1-70b"       # or path = "config.json", or the keys of a config.json

    [cluster]
    gpu = "H100:8"               # the keys of a cluster.toml, or path = "cluster.toml"
    nodes = 8
    fabric = "ib-ndr-400"        # may be left out, as may node and price_per_gpu_hour

    [workload]
    seq_len = 8192
    global_batch = "4Mtok"       # or a number of sequences
    train_tokens = "15T"

    [plan]
    tp = 8                       # the fields of `Plan`; dp follows from the GPUs when left out
    schedule = "interleaved"

Everything wrong with a file is reported at once, each finding with its line and column. What
`write_job` writes reads back to an equal `Job`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.decode import REFUSED, Decoder
from meshwright.base.encode import plain, to_toml
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.locate import SYNTAXES, parse, read
from meshwright.base.pattern import pattern
from meshwright.base.units import format_count, parse_tokens
from meshwright.plan.job import Job
from meshwright.plan.sections import (
    PRICED_HERE,
    WORKLOAD_KEYS,
    read_cluster,
    read_model,
    read_plan,
    read_stack,
    read_workload,
)
from meshwright.plan.words import plan_words

if TYPE_CHECKING:
    from meshwright.base.locate import Document
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Workload

_CLUSTER_NAME = pattern(r"(\d+) x (\d+) (.+) \((.+), (.+)\)\Z")
SECTIONS = ("stack", "model", "cluster", "workload", "plan")


def read_job(path: str | Path) -> Job:
    """The job in a plan.toml, or in YAML or JSON of the same shape by the file's ending.

    InvalidInput with every finding when it cannot be read.
    """
    syntax = SYNTAXES.get(Path(path).suffix.lower(), "toml")
    return job_of(read(path, syntax=syntax), folder=Path(path).parent)


def parse_job(text: str, *, file: str = "plan.toml", folder: str | Path = ".") -> Job:
    """Like `read_job` for a text; paths inside it are relative to `folder`."""
    return job_of(parse(text, syntax="toml", file=file), folder=Path(folder))


def job_of(document: Document, *, folder: Path) -> Job:
    """The job in a document of any syntax, or InvalidInput."""
    if not isinstance(document.data, dict) or not {*SECTIONS} & {*document.data}:
        hint = "`meshwright plan ... --write plan.toml` writes one"
        finding = document.finding((), f"{document.file} is no plan file", hint=hint)
        raise InvalidInput([finding.replace(value=None)])
    decoder = Decoder(document)
    decoder.unknown_keys((), SECTIONS)
    for name in SECTIONS[1:]:
        section = decoder.table(()).get(name)
        if section is None or (section == {} and name != "plan"):
            decoder.missing((name,), hint=f"add a section [{name}] with keys below it")
    model = read_model(decoder, folder)
    cluster = read_cluster(decoder, folder)
    workload = read_workload(decoder)
    plan = read_plan(decoder, num_gpus=None if cluster is REFUSED else cluster.num_gpus)
    stack = read_stack(decoder)
    if decoder.findings:
        raise InvalidInput(sorted(decoder.findings, key=lambda f: (f.file, f.line, f.column)))
    return Job(model=model, cluster=cluster, workload=workload, plan=plan, stack=stack)


def write_job(job: Job) -> str:
    """The plan.toml of a job with one plan; models and clusters of the catalogue go by name."""
    sections: dict[str, Any] = {} if job.stack == "default" else {"stack": job.stack}
    return to_toml(
        sections
        | {
            "model": _model_section(job.model),
            "cluster": _cluster_section(job.cluster),
            "workload": _workload_section(job.workload),
            "plan": plan_words(job.plan),
        }
    )


def _model_section(model: Model) -> dict[str, Any]:
    """The preset's name when it is one, else the model written out."""
    from meshwright.model.catalogue import load

    try:
        if load(model.name) == model:
            return {"name": model.name}
    except MeshwrightError:
        pass
    written: dict[str, Any] = plain(model)
    return written


def _cluster_section(cluster: Cluster) -> dict[str, Any]:
    """GPU, nodes and fabric by name when the catalogue has them, else the cluster written out."""
    from meshwright.hardware.catalogue import cluster as by_name

    for section in _names_in(cluster.name):
        arguments = dict(section)
        try:
            found = by_name(arguments.pop("gpu"), **arguments)
        except MeshwrightError:
            continue
        if found == cluster:
            return section
        unpriced = replace(
            found,
            price_per_gpu_hour=cluster.price_per_gpu_hour,
            price_source=cluster.price_source,
        )
        if unpriced == cluster and cluster.price_source == PRICED_HERE:
            return section | {"price_per_gpu_hour": cluster.price_per_gpu_hour}
    written: dict[str, Any] = plain(cluster)
    return written


def _names_in(name: str) -> list[dict[str, Any]]:
    """[cluster] sections that the name of a catalogue cluster suggests, the shortest first."""
    match = _CLUSTER_NAME.match(name)
    if match is None:
        return []
    nodes, count, gpu, node, fabric = match.groups()
    section: dict[str, Any] = {"gpu": f"{gpu}:{count}", "nodes": int(nodes)}
    return [
        section,
        section | {"fabric": fabric},
        section | {"node": node},
        section | {"node": node, "fabric": fabric},
    ]


def _workload_section(workload: Workload) -> dict[str, Any]:
    section: dict[str, Any] = plain(workload)
    section["global_batch"] = section.pop("global_batch_size")
    if workload.train_tokens is not None:
        text = format_count(workload.train_tokens)
        if parse_tokens(text) == workload.train_tokens:
            section["train_tokens"] = text
    return {name: section[name] for name in WORKLOAD_KEYS if name in section}
