"""A cluster from a user's own table (TOML): by catalogue names, by overrides, or from scratch.

    gpu = "H100:8"                 or   [gpu] like = "H100", memory_gib = 94, peak_tflops.bf16 = 800
    nodes = 8
    node = "aws-p5"                     only with a catalogue GPU
    fabric = "roce-400"
    price_per_gpu_hour = 2.2
    [host] memory_gb = 1000, cores = 96, gb_per_s_per_gpu = 25
    [[links]] name, kind, domain, gb_per_s, latency_us, oversubscription, peer_gb_per_s,
              nics_per_node, in_network_reduction       from the inside out; replaces all links
    [measured] ...                      curves and overheads that `calibrate` or `diagnose
                                        --calibrate` wrote, see hardware/measured_table.py; only
                                        with a [gpu] of its own

Rates are in GB/s (10^9) per GPU and direction, memory of the GPU in GiB (2^30).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.names import nearest
from meshwright.base.problem import Problem
from meshwright.hardware import catalogue
from meshwright.hardware.assemble import GIB, MOST_NODES
from meshwright.hardware.cluster import Cluster, Gpu, Host, Link
from meshwright.hardware.measured_table import check_measured, measurements
from meshwright.hardware.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.hardware.records import Kind

KEYS = ("name", "gpu", "gpus_per_node", "nodes", "node", "fabric", "price_per_gpu_hour")
TABLES = ("gpu", "host", "links", "measured")
GPU_KEYS = (
    *("like", "name", "generation", "sm_count"),
    *("memory_gib", "memory_gb_per_s", "peak_tflops"),
)
HOST_KEYS = ("memory_gb", "cores", "gb_per_s_per_gpu", "storage_gb_per_s")
IN_NODE_KINDS = ("nvlink", "xgmi", "pcie", "ici", "hccs", "memory")
LINK_KINDS = (*IN_NODE_KINDS, *("infiniband", "roce", "efa", "ethernet"))
LINK_NUMBERS = ("gb_per_s", "latency_us", "oversubscription", "peer_gb_per_s")
LINK_KEYS = ("name", "kind", "domain", *LINK_NUMBERS, "nics_per_node", "in_network_reduction")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")
PEAK_HINT = "write peak_tflops.bf16 = 989"
LARGEST = 1e9  # nothing in a cluster file is more, in its own unit


class InvalidCluster(MeshwrightError):  # noqa: N818 - says what it is
    """A cluster table that cannot be read; `problems` lists everything wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def cluster_from_table(table: Mapping[str, Any]) -> Cluster:
    """The cluster that the table describes. Raises `InvalidCluster` with every problem found."""
    if not isinstance(table, dict):
        raise InvalidCluster([Problem("", table, "is no table of keys and values")])
    problems = [*_unknown(table, (*KEYS, *TABLES), ""), *_check(table)]
    if problems:
        raise InvalidCluster(problems)
    try:
        return _build(table)
    except InvalidCluster:
        raise
    except MeshwrightError as error:  # names that exist but do not go together
        problem = Problem("gpu", table["gpu"], error.message, error.hint)
        raise InvalidCluster([problem]) from error


def _check(table: Mapping[str, Any]) -> list[Problem]:
    """Everything wrong with types and ranges."""
    found: list[Problem] = []
    if "nodes" not in table:
        found.append(
            Problem("nodes", None, "is missing", "state how many nodes there are, as nodes = 1")
        )
    found += _whole(table, ("nodes", "gpus_per_node"), "")
    if _is_whole(table.get("nodes")) and table["nodes"] > MOST_NODES:
        reason = f"is no number from 1 to {MOST_NODES}"
        found.append(Problem("nodes", table["nodes"], reason, "as 8"))
    found += _texts(table, ("name", "node", "fabric"), "")
    found += _numbers(table, ("price_per_gpu_hour",), "")
    found += _check_gpu(table.get("gpu"))
    found += _check_names(table)
    if isinstance(gpu := table.get("gpu"), str) and ":" in gpu and "gpus_per_node" in table:
        reason = f"is stated twice, as gpu = {gpu!r} too"
        hint = "keep one of the two"
        found.append(Problem("gpus_per_node", table["gpus_per_node"], reason, hint))
    found += _check_host(table.get("host", {}))
    found += _check_links(table.get("links", []))
    if "measured" in table:
        found += check_measured(table["measured"])
        if isinstance(gpu, str) or not table.get("links"):
            reason = "goes with a [gpu] and [[links]] of its own"
            found.append(Problem("measured", "...", reason, "keep the file as calibrate wrote it"))
    return found


def _check_names(table: Mapping[str, Any]) -> list[Problem]:
    """Names that the catalogue does not know, or knows several of."""
    gpu = table.get("gpu")
    named: list[tuple[Kind, str, object]] = [
        ("nodes", "node", table.get("node")),
        ("fabrics", "fabric", table.get("fabric")),
        ("gpus", "gpu", gpu.partition(":")[0] if isinstance(gpu, str) else None),
        ("gpus", "gpu.like", gpu.get("like") if isinstance(gpu, dict) else None),
    ]
    found: list[Problem] = []
    for kind, key, name in named:
        if isinstance(name, str):
            try:
                record(kind, name)
            except MeshwrightError as error:
                found.append(Problem(key, name, error.message, error.hint))
    return found


def _check_gpu(gpu: object) -> list[Problem]:
    if isinstance(gpu, str):
        return []
    if not isinstance(gpu, dict):
        reason = "is missing" if gpu is None else "is neither a name nor a table"
        return [Problem("gpu", gpu, reason, 'write gpu = "H100:8"')]
    found = _unknown(gpu, GPU_KEYS, "gpu.")
    found += _texts(gpu, ("like", "name", "generation"), "gpu.")
    found += _numbers(gpu, ("memory_gib", "memory_gb_per_s"), "gpu.")
    found += _whole(gpu, ("sm_count",), "gpu.")
    peak = gpu.get("peak_tflops", {})
    if not isinstance(peak, dict):
        return [*found, Problem("gpu.peak_tflops", peak, "is no table", PEAK_HINT)]
    found += _unknown(peak, PRECISIONS, "gpu.peak_tflops.")
    found += _numbers(peak, PRECISIONS, "gpu.peak_tflops.")
    if "like" not in gpu and not {"bf16", "fp16", "fp32"} & set(peak):
        found.append(Problem("gpu.peak_tflops.bf16", None, "is missing", PEAK_HINT))
    if "like" not in gpu:
        needed = ("name", "memory_gib", "memory_gb_per_s")
        found += _missing(gpu, needed, "gpu.", "or name a similar device with like")
    return found


def _check_host(host: object) -> list[Problem]:
    if not isinstance(host, dict):
        return [Problem("host", host, "is no table", "write [host] on a line of its own")]
    found = _unknown(host, HOST_KEYS, "host.")
    return [*found, *_numbers(host, HOST_KEYS, "host.")]


def _check_links(links: object) -> list[Problem]:
    if not isinstance(links, list):
        return [Problem("links", links, "is no list of tables", "write [[links]] for each level")]
    found: list[Problem] = []
    for index, link in enumerate(links):
        found += _check_link(link, f"links.{index}")
    return found or _check_order([link["domain"] for link in links])


def _check_order(domains: list[int]) -> list[Problem]:
    """Each level joins more GPUs than the one inside it."""
    if all(inner < outer for inner, outer in pairwise(domains)):
        return []
    reason = "the levels do not grow outwards"
    return [Problem("links", domains, reason, "order them from the inside out")]


def _check_link(link: object, key: str) -> list[Problem]:
    if not isinstance(link, dict):
        return [Problem(key, link, "is no table", "write [[links]] for each level")]
    found = _unknown(link, LINK_KEYS, f"{key}.")
    found += _missing(link, ("kind", "domain", "gb_per_s"), f"{key}.", "every link states it")
    found += _texts(link, ("name", "kind"), f"{key}.")
    found += _whole(link, ("domain", "nics_per_node"), f"{key}.")
    found += _numbers(link, LINK_NUMBERS, f"{key}.")
    in_network = link.get("in_network_reduction", False)
    if not isinstance(in_network, bool):
        reason = "is neither true nor false"
        hint = "write true or false"
        found.append(Problem(f"{key}.in_network_reduction", in_network, reason, hint))
    kind = link.get("kind")
    if isinstance(kind, str) and kind not in LINK_KINDS:
        hint = _suggest(kind, LINK_KINDS)
        found.append(Problem(f"{key}.kind", kind, "is no kind of link", hint))
    share = link.get("oversubscription", 1.0)
    if _is_number(share) and 0 < share < 1:
        reason = "is below 1"
        found.append(Problem(f"{key}.oversubscription", share, reason, "2 means half the rate"))
    return found


def _unknown(table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> list[Problem]:
    return [
        Problem(f"{prefix}{key}", value, "is no key of a cluster", _suggest(str(key), known))
        for key, value in table.items()
        if key not in known
    ]


def _missing(
    table: Mapping[str, Any], keys: tuple[str, ...], prefix: str, hint: str
) -> list[Problem]:
    return [Problem(f"{prefix}{key}", None, "is missing", hint) for key in keys if key not in table]


def _texts(table: Mapping[str, Any], keys: tuple[str, ...], prefix: str) -> list[Problem]:
    return [
        Problem(f"{prefix}{key}", table[key], "is no text", "put it in quotes")
        for key in keys
        if key in table and not isinstance(table[key], str)
    ]


def _whole(table: Mapping[str, Any], keys: tuple[str, ...], prefix: str) -> list[Problem]:
    return [
        Problem(f"{prefix}{key}", table[key], "is no whole number from 1 to 10^9", "as 8")
        for key in keys
        if key in table and not _is_whole(table[key])
    ]


def _numbers(table: Mapping[str, Any], keys: tuple[str, ...], prefix: str) -> list[Problem]:
    return [
        Problem(f"{prefix}{key}", table[key], "is no number above 0 and up to 10^9", "as 1.5")
        for key in keys
        if key in table and not (_is_number(table[key]) and 0 < table[key] <= LARGEST)
    ]


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def _suggest(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _build(table: Mapping[str, Any]) -> Cluster:
    gpu = table["gpu"]
    base = _by_name(table, gpu) if isinstance(gpu, str) else _own_gpu(table, gpu)
    changes: dict[str, Any] = {}
    if "links" in table:
        changes["links"] = _links(table["links"], base.num_gpus)
    if "host" in table:
        changes["host"] = _host(table["host"], base.host)
    if "name" in table:
        changes["name"] = table["name"]
    if "price_per_gpu_hour" in table:
        changes["price_per_gpu_hour"] = float(table["price_per_gpu_hour"])
        changes["price_source"] = "given in the cluster file"
    built = replace(base, **changes)
    return _measured(built, table["measured"]) if "measured" in table else built


def _measured(cluster: Cluster, table: Mapping[str, Any]) -> Cluster:
    """The cluster with what was measured on it."""
    found = measurements(table)
    inner = replace(cluster.links[0], curves=found.collectives or None, source=found.curves.source)
    gpu = replace(
        cluster.gpu, curves=found.curves, source=found.curves.source, date=found.curves.date
    )
    return replace(
        cluster,
        gpu=gpu,
        links=(inner, *cluster.links[1:]),
        overheads=found.overheads,
        shares=found.shares or None,
    )


def _by_name(table: Mapping[str, Any], gpu: str) -> Cluster:
    """The catalogue's cluster; `gpus_per_node` is another way to write the count."""
    count = table.get("gpus_per_node")
    spec = gpu if count is None or ":" in gpu else f"{gpu}:{count}"
    return catalogue.cluster(
        spec, nodes=table["nodes"], fabric=table.get("fabric"), node=table.get("node")
    )


def _own_gpu(table: Mapping[str, Any], gpu: Mapping[str, Any]) -> Cluster:
    """A cluster of the user's own device: like a catalogue device's, or on the links given."""
    if "like" in gpu:
        base = _by_name(table, gpu["like"])
        return replace(base, gpu=_gpu(gpu, base.gpu), price_per_gpu_hour=None, price_source="")
    if "links" not in table:
        reason = "is missing for a device that is in no catalogue"
        raise InvalidCluster([Problem("links", None, reason, "write [[links]] for each level")])
    per_node = table.get("gpus_per_node", 8)
    return Cluster(
        gpu=_gpu(gpu, None),
        num_gpus=per_node * table["nodes"],
        gpus_per_node=per_node,
        links=(),
    )


def _gpu(given: Mapping[str, Any], base: Gpu | None) -> Gpu:
    """The given figures over those of `base`."""
    plain = base or Gpu(
        name="", generation="", memory_bytes=0.0, memory_bytes_per_s=0.0, peak_flops={}
    )
    peak = {name: float(rate) * 1e12 for name, rate in given.get("peak_tflops", {}).items()}
    return replace(
        plain,
        name=given.get("name", plain.name),
        generation=given.get("generation", plain.generation),
        memory_bytes=given.get("memory_gib", plain.memory_bytes / GIB) * GIB,
        memory_bytes_per_s=given.get("memory_gb_per_s", plain.memory_bytes_per_s / 1e9) * 1e9,
        peak_flops={**plain.peak_flops, **peak},
        sm_count=given.get("sm_count", plain.sm_count),
        source="given in the cluster file",
    )


def _host(given: Mapping[str, Any], base: Host) -> Host:
    return Host(
        memory_bytes=given.get("memory_gb", base.memory_bytes / 1e9) * 1e9,
        cores=int(given.get("cores", base.cores)),
        bytes_per_s_per_gpu=given.get("gb_per_s_per_gpu", base.bytes_per_s_per_gpu / 1e9) * 1e9,
        storage_bytes_per_s=given.get("storage_gb_per_s", base.storage_bytes_per_s / 1e9) * 1e9,
    )


def _links(given: list[Mapping[str, Any]], num_gpus: int) -> tuple[Link, ...]:
    """The levels given; the outermost must span the cluster."""
    if not given:
        raise InvalidCluster([Problem("links", given, "is empty", "leave it out, or fill it")])
    if given[-1]["domain"] < num_gpus:
        reason = f"the outermost level joins fewer than all {num_gpus} GPUs"
        key = f"links.{len(given) - 1}.domain"
        raise InvalidCluster(
            [Problem(key, given[-1]["domain"], reason, f"write domain = {num_gpus}")]
        )
    return tuple(_link(raw) for raw in given)


def _link(raw: Mapping[str, Any]) -> Link:
    in_node = raw["kind"] in IN_NODE_KINDS
    return Link(
        name=raw.get("name", raw["kind"]),
        kind=raw["kind"],
        domain=raw["domain"],
        bytes_per_s=raw["gb_per_s"] * 1e9,
        latency_s=raw.get("latency_us", 3.4 if in_node else 9.6) * 1e-6,
        peer_bytes_per_s=raw.get("peer_gb_per_s", 0.0) * 1e9,
        oversubscription=float(raw.get("oversubscription", 1.0)),
        nics_per_node=raw.get("nics_per_node", 0),
        in_network_reduction=bool(raw.get("in_network_reduction", False)),
        source="given in the cluster file",
    )
