"""A job as Megatron-LM's argument list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.field import release
from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.megatron_lm.spelling import lost_of, spelled, unplaced
from meshwright.frameworks.megatron_lm.wording import environment, wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job

_LAYOUTS_SINCE = (0, 13)
_SILENT = frozenset({"init_model_with_meta_device", "qk_norm", "recompute_num_layers"})


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job; `version` "" is the newest."""
    return express_as(by_name("megatron-lm"), job, version)


def express_as(
    framework: Framework,
    job: Job,
    version: str,
    *,
    also: Mapping[str, Any] | None = None,
) -> Expressed:
    """A job by a framework's own table; `also` holds settings besides, by name."""
    layouts = not version or release(version)[:2] >= _LAYOUTS_SINCE
    said = wording(job, layouts=layouts)
    raw = _with_positions(said.values)
    settings = spelled(framework, version, raw) | dict(also or {})
    reasons = said.lost | {
        name: f"{framework.title} {version} has no setting for it"
        for name in unplaced(framework, version, raw)
        if name not in _SILENT
    }
    lost = said.lost | lost_of(framework, version, settings, job, reasons=reasons)
    lost = {name: why for name, why in lost.items() if name not in said.refused}
    return Expressed(settings=settings, launch=launch(job), lost=lost, refused=dict(said.refused))


def _with_positions(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Megatron wants the longest position stated, and at least the sequence length."""
    longest = max(raw.get("max_position_embeddings") or 0, raw["seq_len"])
    return {**raw, "max_position_embeddings": longest}


def launch(job: Job) -> dict[str, Any]:
    """What the launcher must be told."""
    cluster = job.cluster
    per_node = max(min(cluster.gpus_per_node, cluster.num_gpus), 1)
    return {
        "num_gpus": cluster.num_gpus,
        "num_nodes": -(-cluster.num_gpus // per_node),
        "gpus_per_node": per_node,
        "environment": environment(job),
    }
