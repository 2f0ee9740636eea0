"""What MindSpeed's features change of Megatron's meanings, and how a job asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm import arguments
from meshwright.frameworks.megatron_lm.writing import express_as
from meshwright.plan.plan import ContextParallel, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value
    from meshwright.plan.job import Job

_ALGORITHMS = {
    "megatron_cp_algo": "ring",
    "ulysses_cp_algo": "ulysses",
    "hybrid_cp_algo": "hierarchical",
    "adaptive_cp_algo": "ring",
    "hybrid_adaptive_cp_algo": "hierarchical",
    "kvallgather_cp_algo": "all-gather",
}
_LONGEST = 6  # digits of a number of layers
_WORDS = {
    ContextParallel.RING: "megatron_cp_algo",
    ContextParallel.ULYSSES: "ulysses_cp_algo",
    ContextParallel.HIERARCHICAL: "hybrid_cp_algo",
    ContextParallel.ALL_GATHER: "kvallgather_cp_algo",
}


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Megatron's meanings with MindSpeed's in front."""
    given = dict(arguments.interpret(config, values))
    m = Meanings(config, {**values, **given})
    _schedule(m)
    _split(m)
    _context(m)
    _memory(m)
    _model(m)
    return {**given, **m.given}


def _schedule(m: Meanings) -> None:
    if m.value("schedules_method") == "dualpipev":
        m.follow("schedule", "dualpipe-v", "schedules_method")
        m.follow("vpp", 2, "schedules_method")
        m.follow("overlap_pp", True, "schedules_method")
    if m.value("moe_fb_overlap"):
        m.follow("overlap_ep", True, "moe_fb_overlap")
    if m.value("moe_tp_extend_ep") and not m.stating("etp"):
        m.follow("etp", 1, "moe_tp_extend_ep")


def _split(m: Meanings) -> None:
    """A list of layers per stage is a layout, and an uneven split as Megatron has it."""
    parts = [part.strip() for part in str(m.value("num_layer_list", "")).split(",")]
    if not all(part.isdecimal() and len(part) < _LONGEST for part in parts):
        return
    m.follow("layout", [int(part) for part in parts], "num_layer_list")
    m.follow("uneven_pipeline", True, "num_layer_list")


def _context(m: Meanings) -> None:
    """The algorithm is MindSpeed's own argument; Ulysses' part of a hybrid is the inner one."""
    word = _ALGORITHMS.get(str(m.value("cp_algo", "megatron_cp_algo")))
    if word is not None:
        m.follow("context_parallel", word, "cp_algo")
    inner = m.value("ulysses_degree_in_cp")
    if word == "hierarchical" and isinstance(inner, int) and inner > 0:
        m.follow("cp_inner", inner, "ulysses_degree_in_cp")


def _memory(m: Meanings) -> None:
    """Copies that are shared or live on the host, modules that are recomputed."""
    if m.value("reuse_fp32_param"):
        m.follow("param_bytes", 2, "reuse_fp32_param")
        m.follow("reuse_fp32_param", True, "reuse_fp32_param")
    if m.value("swap_optimizer"):
        m.follow("offload_optimizer", 1.0, "swap_optimizer")
    if m.value("layerzero"):
        m.follow("zero_stage", 3, "layerzero")
    if m.value("recompute") == "full":
        return
    modules = [w for w in m.value("recompute_modules", []) if m.value("recompute") == "selective"]
    if m.value("recompute_activation_function"):
        routed = bool(m.value("num_experts"))
        modules.append("moe-activation" if routed else "mlp")
    if m.value("recompute_norm"):
        modules.append("norm")
    if m.value("recompute_activation_function") or m.value("recompute_norm"):
        sources = ("recompute_activation_function", "recompute_norm")
        m.follow("recompute", "selective", *sources)
        m.follow("recompute_modules", modules, *sources)


def _model(m: Meanings) -> None:
    """Layers that do nothing are not counted; shared experts are counted one by one."""
    written = m.value("noop_layers")
    layers = m.value("num_hidden_layers")
    if written is not None and isinstance(layers, int):
        idle = len([part for part in str(written).split(",") if part.strip().isdecimal()])
        m.follow("num_hidden_layers", max(layers - idle, 1), "num_hidden_layers", "noop_layers")
    shared, width = m.value("n_shared_experts"), m.value("moe_intermediate_size")
    if isinstance(shared, int) and isinstance(width, int) and shared > 0:
        m.follow("shared_expert_intermediate_size", shared * width, "n_shared_experts")


def express(job: Job, version: str) -> Expressed:
    """Megatron's arguments and MindSpeed's, which also run DualPipeV."""
    plan = job.plan.row(0)
    own = by_name("mindspeed")
    folded = int(plan.schedule) == Schedule.DUALPIPE_V and plan.pp > 1
    runs = ("schedule",) if folded else ()
    return express_as(own, job, version, translate=_translated, runs=runs)


def _translated(raw: dict[str, Any], job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    plan = job.plan.row(0)
    also: dict[str, Any] = {}
    if int(plan.schedule) == Schedule.DUALPIPE_V and plan.pp > 1:
        also["--schedules-method"] = "dualpipev"
        for variable in ("vpp", "pipeline_layout"):
            raw.pop(variable, None)
        if plan.overlap_ep:
            raw.pop("overlap_ep", None)
            also["--moe-fb-overlap"] = True
    if plan.cp > 1:
        raw.pop("cp_comm_type", None)
        raw.pop("hierarchical_context_parallel_sizes", None)
        kind = ContextParallel(int(plan.context_parallel))
        if kind is not ContextParallel.RING:
            also["--context-parallel-algo"] = _WORDS[kind]
        if kind is ContextParallel.HIERARCHICAL:
            also["--ulysses-degree-in-cp"] = int(plan.cp_inner)
    return raw, also
