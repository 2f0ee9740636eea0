"""A job as Megatron-LM's argument list, and by the tables of its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.deferred import Deferred
from meshwright.frameworks.field import release
from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.inverse import launch_of
from meshwright.frameworks.megatron_lm.spelling import lost_of, spelled, unplaced
from meshwright.frameworks.megatron_lm.trained import trained_words
from meshwright.frameworks.megatron_lm.wording import REASONS, environment, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job

    Translation = Callable[[dict[str, Any], Job], tuple[dict[str, Any], dict[str, Any]]]

_LAYOUTS_SINCE = {"megatron-lm": (0, 13)}
_PROGRAMS = {
    "megatron-lm": "pretrain_gpt.py",
    "mindspeed": "pretrain_gpt.py",
    "ms-swift-megatron": "megatron sft",
    "slime": "python3 train.py",
}
_SILENT = frozenset({"init_model_with_meta_device", "qk_norm", "recompute_num_layers"})


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job; `version` "" is the newest."""
    return express_as(by_name("megatron-lm"), job, version)


def express_as(
    framework: Framework,
    job: Job,
    version: str,
    *,
    translate: Translation | None = None,
    said_otherwise: Collection[str] = (),
    runs: Collection[str] = (),
) -> Expressed:
    """A job by a framework's own table.

    `translate` takes raw values and returns those that the table spells, and settings by name;
    `said_otherwise` are variables that those settings say although reading them back does not,
    `runs` what this framework runs although Megatron itself would refuse.
    """
    since = _LAYOUTS_SINCE.get(framework.name, (0,))
    said = wording(job, layouts=not version or release(version)[:2] >= since)
    refused = {name: why for name, why in said.refused.items() if name not in runs}
    raw = _with_positions(said.values)
    also: dict[str, Any] = {}
    if translate is not None:
        raw, also = translate(raw, job)
    settings = spelled(framework, version, raw) | also
    settings |= _strategy(framework, version, raw)
    settings |= trained_words(job.model, framework, version)
    reasons = (
        REASONS
        | said.lost
        | {
            name: f"{framework.title} {version} has no setting for it".replace("  ", " ")
            for name in unplaced(framework, version, raw)
            if name not in _SILENT
        }
    )

    def lost() -> dict[str, str]:
        found = {**said.lost, **lost_of(framework, version, settings, job, reasons=reasons)}
        away = {*refused, *said_otherwise}
        return {name: why for name, why in found.items() if name not in away}

    return Expressed(
        settings=settings,
        launch=launch(job),
        lost=Deferred(lost),
        refused=refused,
        program=_PROGRAMS.get(framework.name, ""),
    )


def _strategy(framework: Framework, version: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What Megatron-FSDP shards, also where it is the default: the default changed in 0.18."""
    name, value = "--data-parallel-sharding-strategy", raw.get("data_parallel_sharding_strategy")
    found = framework.table.find(name, version) if value else None
    exists = found is not None and found.name == name and found.exists_in(version)
    return {name: value} if exists else {}


def _with_positions(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Megatron wants the longest position stated, and at least the sequence length."""
    longest = max(raw.get("max_position_embeddings") or 0, raw["seq_len"])
    return {**raw, "max_position_embeddings": longest}


def launch(job: Job) -> dict[str, Any]:
    """What the launcher must be told."""
    return {**launch_of(job), "environment": environment(job)}
