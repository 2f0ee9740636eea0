"""GPUs and clusters by name: `gpu("H100")`, `cluster("H100:8", nodes=8)`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.hardware.assemble import assemble, check_count, check_nodes, gpu_of, holds
from meshwright.hardware.records import prices, record, records, short_name

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster, Gpu


_SPEC_HINT = 'type a name and a count, as "H100:8"'


def gpu(name: str) -> Gpu:
    """The device of that name, alias, nvidia-smi string or file name.

    Raises `UnknownName` with the nearest names, `MeshwrightError` when it fits several ("A100").
    """
    return gpu_of(record("gpus", name))


def cluster(
    gpu_spec: str, *, nodes: int, fabric: str | None = None, node: str | None = None
) -> Cluster:
    """`nodes` nodes of "H100:8" (name:count; without a count, full nodes).

    Node and fabric default to those the device's and the node's data file name. Raises
    `UnknownName` or `MeshwrightError` for names, counts and combinations that do not exist.
    """
    name, count = _split(gpu_spec)
    check_nodes(nodes)
    device = record("gpus", name)
    machine = _machine(device, node, count)
    network = record("fabrics", fabric or machine["default_fabric"])
    per_node = count if count is not None else machine["gpus_per_node"]
    check_count(per_node, machine)
    built = assemble(gpu_of(device), count=per_node, nodes=nodes, node=machine, fabric=network)
    return _priced(built, device["slug"])


def names() -> tuple[str, ...]:
    """The short name of every device, as one types it."""
    return tuple(short_name(r) for r in records("gpus"))


def describe() -> tuple[dict[str, Any], ...]:
    """One mapping a device, for a table: rates in TFLOP/s and GB/s, memory in GiB, price in USD."""
    return tuple(_summary(r) for r in records("gpus"))


def _split(gpu_spec: str) -> tuple[str, int | None]:
    name, colon, count = (part.strip() for part in gpu_spec.partition(":"))
    if not name:
        raise MeshwrightError("no GPU is named", hint=_SPEC_HINT)
    if not colon:
        return name, None
    if not (count.isascii() and count.isdigit() and len(count) < 10):
        raise MeshwrightError(f"{count!r} in {gpu_spec!r} is no number of GPUs", hint=_SPEC_HINT)
    return name, int(count)


def _machine(device: dict[str, Any], node: str | None, count: int | None) -> dict[str, Any]:
    """The named node; else the device's default, or where that is too small the first that fits."""
    if node is not None:
        machine = record("nodes", node)
        _check_device(device, machine)
        return machine
    default = record("nodes", device["default_node"])
    if count is None or holds(count, default):
        return default
    others = (n for n in records("nodes") if device["slug"] in n["gpus"] and holds(count, n))
    return next(others, default)


def _check_device(device: dict[str, Any], machine: dict[str, Any]) -> None:
    if device["slug"] not in machine["gpus"]:
        raise MeshwrightError(
            f"{machine['slug']} holds {' or '.join(machine['gpus'])}, not {device['slug']}",
            hint=f"leave the node out, or type --gpu {machine['gpus'][0]}",
        )


def _priced(built: Cluster, slug: str) -> Cluster:
    price = prices().get(slug)
    if price is None:
        return built
    source = f"{price['provider']}, {price['date']}, {price['source']}"
    return replace(built, price_per_gpu_hour=price["usd_per_gpu_hour"], price_source=source)


def _summary(entry: dict[str, Any]) -> dict[str, Any]:
    peak = entry["peak_tflops"]
    price = prices().get(entry["slug"], {})
    return {
        "name": short_name(entry),
        "full_name": entry["name"],
        "generation": entry["generation"],
        "memory_gib": entry["memory_gib"],
        "memory_gb_per_s": entry["memory_bytes_per_s"] / 1e9,
        "bf16_tflops": peak.get("bf16", peak.get("fp16", 0.0)),
        "fp8_tflops": peak.get("fp8", 0.0),
        "nvfp4_tflops": peak.get("nvfp4", 0.0),
        "default_node": entry["default_node"],
        "usd_per_gpu_hour": price.get("usd_per_gpu_hour"),
        "checked": entry["checked"],
        "source": entry["source"],
        "date": entry["date"],
    }
