"""What ms-swift takes from the environment: processes of a node, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.meanings import Meanings

_QUEUES = "cuda_device_max_connections"


def launched(m: Meanings) -> None:
    """GPUs of a node and nodes, from NPROC_PER_NODE (or the visible devices) and NNODES."""
    stated = m.value("environment")
    environment = stated if isinstance(stated, dict) else {}
    per_node = whole(environment.get("NPROC_PER_NODE"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if per_node is None and isinstance(visible, str) and visible.strip():
        per_node = len(visible.split(","))
    nodes = whole(environment.get("NNODES"))
    if per_node is not None and m.value("gpus_per_node") is None:
        m.follow("gpus_per_node", per_node)
    if nodes is not None and m.value("num_nodes") is None:
        m.follow("num_nodes", nodes)
    elif m.value("num_nodes") is None and per_node is not None and "NNODES" not in environment:
        m.follow("num_nodes", 1)


def launch_by_environment(launch: Mapping[str, Any]) -> dict[str, Any]:
    """A launch whose nodes and processes stand in the environment, as ms-swift takes them."""
    counts = {"NPROC_PER_NODE": launch["gpus_per_node"], "NNODES": launch["num_nodes"]}
    environment = {**launch["environment"], **{k: str(v) for k, v in counts.items()}}
    return {"num_gpus": launch["num_gpus"], "environment": environment}


def one_queue(m: Meanings) -> None:
    """Megatron-SWIFT sets CUDA_DEVICE_MAX_CONNECTIONS to 1 unless it is set."""
    if m.value(_QUEUES) is None:
        m.follow(_QUEUES, 1)


def whole(value: Any) -> int | None:
    """A positive whole number as the environment spells it."""
    text = str(value).strip()
    return int(text) if text.isdecimal() and 0 < len(text) < 8 and int(text) > 0 else None
