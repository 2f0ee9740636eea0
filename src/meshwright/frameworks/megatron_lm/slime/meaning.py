"""What slime's own arguments mean beside Megatron's, and their inverse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm import arguments
from meshwright.frameworks.megatron_lm.writing import express_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value
    from meshwright.plan.job import Job

_NODES, _PER_NODE = "--actor-num-nodes", "--actor-num-gpus-per-node"


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Megatron's meanings, and the actor's GPUs as those of the job."""
    given = dict(arguments.interpret(config, values))
    m = Meanings(config, {**values, **given})
    actor(m, _NODES, _PER_NODE)
    return {**given, **m.given}


def actor(m: Meanings, nodes: str, per_node: str) -> None:
    """The GPUs that train, from the fields that state nodes and GPUs of one."""
    count, size = m.field(nodes), m.field(per_node)
    if m.is_stated(nodes, per_node) and isinstance(count, int) and isinstance(size, int):
        m.give("num_nodes", max(count, 1), nodes)
        m.give("gpus_per_node", max(size, 1), per_node)
        m.give("num_gpus", max(count, 1) * max(size, 1), nodes, per_node)


def express(job: Job, version: str) -> Expressed:
    """Megatron's arguments and the actor's GPUs."""
    return express_as(by_name("slime"), job, version, translate=_translated)


def _translated(raw: dict[str, Any], job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    cluster = job.cluster
    per_node = max(min(cluster.gpus_per_node, cluster.num_gpus), 1)
    also = {_NODES: -(-cluster.num_gpus // per_node), _PER_NODE: per_node}
    return raw, also
