"""The measured machine as the text of a cluster file, see hardware/measured_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.encode import plain, to_toml

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster, Link
    from meshwright.train.calibrate.measure import Calibrated

GIB = 2.0**30
HEAD = """\
# Written by `meshwright calibrate`: this machine as it was measured. Use it as
#   meshwright plan MODEL --cluster FILE ...      or      [cluster] path = "FILE" in a plan.toml
# Rates in GB/s (10^9), times in seconds; what the keys mean: `meshwright calibrate --help`.
"""


def text_of(calibrated: Calibrated) -> str:
    """TOML that `hardware.file.read_cluster` reads back to the same cluster."""
    return HEAD + "\n" + to_toml(_rounded(table_of(calibrated.cluster)))


def table_of(cluster: Cluster) -> dict[str, Any]:
    """The table of a calibrated cluster."""
    gpu, curves = cluster.gpu, plain(cluster.gpu.curves)
    (link,) = cluster.links
    measured = curves | {"overheads": plain(cluster.overheads)}
    if link.curves is not None:
        measured["collectives"] = plain(link.curves)
    return {
        "name": cluster.name,
        "nodes": 1,
        "gpus_per_node": cluster.num_gpus,
        "gpu": {
            "name": gpu.name,
            "generation": gpu.generation,
            "memory_gib": gpu.memory_bytes / GIB,
            "memory_gb_per_s": gpu.memory_bytes_per_s / 1e9,
            "peak_tflops": {name: rate / 1e12 for name, rate in gpu.peak_flops.items()},
        },
        "host": {"memory_gb": cluster.host.memory_bytes / 1e9, "cores": cluster.host.cores},
        "links": [_link(link)],
        "measured": measured,
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        "name": link.name,
        "kind": link.kind,
        "domain": link.domain,
        "gb_per_s": link.bytes_per_s / 1e9,
        "latency_us": link.latency_s * 1e6,
    }


def _rounded(value: Any) -> Any:
    """Figures to four digits: no measurement is better."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
