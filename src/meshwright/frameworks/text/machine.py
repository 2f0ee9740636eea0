"""Counts of GPUs and nodes that follow from one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


def multiplied(found: Mapping[str, Value]) -> dict[str, Value]:
    """With the third of GPUs, nodes and GPUs per node where two are known."""
    known = {k: v.value for k, v in found.items() if isinstance(v.value, int)}
    nodes, each, total = (known.get(k) for k in ("num_nodes", "gpus_per_node", "num_gpus"))
    result = dict(found)

    def follow(name: str, value: int, *sources: str) -> None:
        result[name] = Value(
            value=value, settings=tuple(s for key in sources for s in found[key].settings)
        )

    if nodes and each and not total:
        follow("num_gpus", nodes * each, "num_nodes", "gpus_per_node")
    elif nodes and total and not each and total % nodes == 0:
        follow("gpus_per_node", total // nodes, "num_gpus", "num_nodes")
    elif each and total and not nodes and total % each == 0:
        follow("num_nodes", total // each, "num_gpus", "gpus_per_node")
    return result
