"""What a job loses in the words of a framework: its settings are read back and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.deferred import Deferred
from meshwright.frameworks.reading import Config, Reading, table_values
from meshwright.frameworks.setting import Setting, Source, Span, Value
from meshwright.model.architecture import Experts
from meshwright.plan.words import FIELDS, word

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from meshwright.frameworks.framework import Framework
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_NOWHERE = Source(file="", text="", syntax="overrides")
_SELECTIVE, _FULL = 1, 2
_IDLE: dict[str, Any] = {
    "sequence_parallel": lambda p: p.tp == 1,
    "vocab_parallel": lambda p: p.tp == 1,
    "loss_parallel": lambda p: p.tp == 1 or p.fused_loss,
    "overlap_tp": lambda p: p.tp == 1,
    "distribute_saved": lambda p: p.tp == 1 or p.recompute != _FULL,
    "vpp": lambda p: p.pp == 1,
    "schedule": lambda p: p.pp == 1,
    "layout": lambda p: p.pp == 1,
    "first_stage_layers": lambda p: p.pp == 1,
    "last_stage_layers": lambda p: p.pp == 1,
    "embedding_in_split": lambda p: p.pp == 1 or p.layout is not None,
    "loss_in_split": lambda p: p.pp == 1 or p.layout is not None,
    "vocab_over_pipeline": lambda p: p.pp == 1,
    "vocab_interlaced": lambda p: p.pp == 1 or not p.vocab_over_pipeline,
    "overlap_pp": lambda p: p.pp == 1,
    "context_parallel": lambda p: p.cp == 1,
    "cp_inner": lambda p: p.cp == 1,
    "etp": lambda p: p.ep == 1 and p.etp in (1, p.tp),
    "overlap_ep": lambda p: p.ep == 1,
    "recompute_modules": lambda p: p.recompute != _SELECTIVE,
    "recompute_layers": lambda p: p.recompute != _FULL,
    "recompute_uniform": lambda p: p.recompute != _FULL or p.recompute_layers == 0,
    "zero_stage": lambda p: p.dp * p.cp == 1,
    "reshard_after_forward": lambda p: p.zero_stage < 3 or p.dp * p.cp == p.dp_replicate,
    "dp_replicate": lambda p: p.zero_stage == 0 or p.dp * p.cp == 1,
    "overlap_grad_reduce": lambda p: p.dp * p.cp == 1,
    "overlap_param_gather": lambda p: p.dp * p.cp == 1 or p.zero_stage == 0,
    "reduce_bytes": lambda p: p.dp * p.cp == 1,
    "lora_all_linear": lambda p: p.lora_rank == 0,
    "padded_vocab_size": lambda _: True,
}
"""Fields that mean nothing in a plan that is otherwise so."""


def unsaid(
    framework: Framework,
    version: str,
    settings: Mapping[str, Any],
    job: Job,
    *,
    but_not: Container[str] = (),
) -> Mapping[str, tuple[Any, Any]]:
    """Fields of the plan that the settings do not say: their words in the job, and as read back.

    Fields that make no difference to the plan, and those of `but_not`, are left out. Nothing is
    read back before the answer is looked into.
    """

    def found() -> dict[str, tuple[Any, Any]]:
        back = plan_of(framework, version, settings, job)
        plan = job.plan.row(0)
        return {
            name: (word(name, getattr(plan, name)), word(name, getattr(back, name)))
            for name in FIELDS
            if name not in but_not
            and getattr(plan, name) != getattr(back, name)
            and not _is_idle(name, plan)
        }

    return Deferred(found)


def plan_of(framework: Framework, version: str, settings: Mapping[str, Any], job: Job) -> Plan:
    """The plan that settings mean for the job's model on its cluster."""
    from meshwright.frameworks.jobs import draft

    reading = reading_of(framework, version, settings, num_gpus=job.cluster.num_gpus)
    drafted: Plan = draft(reading, model=job.model, cluster=job.cluster).job.plan.row(0)
    return drafted


def reading_of(
    framework: Framework, version: str, settings: Mapping[str, Any], *, num_gpus: int
) -> Reading:
    """The reading of settings that no file states."""
    config = Config(
        framework=framework,
        version=version,
        settings={name: _setting(name, value) for name, value in settings.items()},
        launch={"num_gpus": Value(value=num_gpus)},
        sources=(_NOWHERE,),
    )
    values = table_values(config)
    return Reading(config=config, values=values | dict(framework.interpret(config, values)))


def lost(
    differences: Mapping[str, tuple[Any, Any]], reasons: Mapping[str, str], title: str
) -> Mapping[str, str]:
    """The reasons why fields are lost, a plain one where the framework's code names none."""
    return Deferred(
        lambda: {
            name: reasons.get(name)
            or f"{title} has no setting for it and runs with {shown(theirs)}"
            for name, (_, theirs) in differences.items()
        }
    )


def launch_of(job: Job) -> dict[str, Any]:
    """What the launcher of a job must be told."""
    cluster = job.cluster
    return {
        "num_gpus": cluster.num_gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "num_nodes": -(-cluster.num_gpus // max(cluster.gpus_per_node, 1)),
        "environment": dict(job.workload.runtime.environment),
    }


def shape_of(model: Model) -> dict[str, Any]:
    """The dimensions of a model by the names of an HF config.json, those of its widest blocks."""
    blocks = [run.block for run in model.runs]
    attention = blocks[-1].attention
    dense = [b.feed_forward for b in blocks if not isinstance(b.feed_forward, Experts)]
    routed = [b.feed_forward for b in blocks if isinstance(b.feed_forward, Experts)]
    shape: dict[str, Any] = {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tie_word_embeddings,
    }
    if dense:
        shape["intermediate_size"] = dense[0].intermediate_size
    if routed:
        experts = routed[0]
        shape |= {
            "num_experts": experts.num_experts,
            "num_experts_per_tok": experts.top_k,
            "moe_intermediate_size": experts.intermediate_size,
        }
    return shape


def python_text(value: Any) -> str:
    """A value as Python code has it, strings in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(python_text(item) for item in value) + "]"
    return repr(value)


def shown(value: Any) -> str:
    """A value as files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "nothing" if value is None else str(value)


def _setting(name: str, value: Any) -> Setting:
    nowhere = Span(0, 0)
    return Setting(
        name=name,
        spelled=name,
        value=value,
        source=_NOWHERE,
        key=nowhere,
        where=nowhere,
        whole=nowhere,
    )


def _is_idle(name: str, plan: Plan) -> bool:
    test = _IDLE.get(name)
    return test is not None and bool(test(plan))


def idle_fields(plan: Plan) -> frozenset[str]:
    """Fields that make no difference to a plan, whatever they are."""
    row = plan.row(0)
    return frozenset(name for name in _IDLE if _is_idle(name, row))


def without_idle(plan: Plan) -> Plan:
    """A plan in which every field that makes no difference has its default."""
    row = plan.row(0)
    return replace(row, **{name: FIELDS[name] for name in idle_fields(row)})
