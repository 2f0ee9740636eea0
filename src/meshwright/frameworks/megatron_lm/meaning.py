"""What Megatron's settings mean, over the variables that all of its kin share.

Megatron-LM's arguments, Megatron-Bridge's YAML, NeMo, ms-swift and the reinforcement-learning
frameworks on top of them spell the same settings; each table maps its spelling to one set of
variables, and this module says what those mean together. Followed is what `validate_args` of
megatron/training/arguments.py does (0.12 to 0.20.dev).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron_lm.layout import read_layout
from meshwright.frameworks.megatron_lm.numbers import precision, state
from meshwright.frameworks.megatron_lm.running import running
from meshwright.frameworks.megatron_lm.shape import shape
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

_CONTEXT = {
    "p2p": "ring",
    "all_gather": "all-gather",
    "allgather": "all-gather",
    "a2a": "ulysses",
    "a2a+p2p": "hierarchical",
}
_STAGE_SPECS = (
    ("num_layers_per_virtual_stage", "layers_per_virtual_stage"),
    ("vpp", "virtual_stages"),
    ("pipeline_layout", "layout"),
)
_STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def meaning(m: Meanings) -> None:
    """Gives `m` every variable that follows from Megatron's settings."""
    stages(m)
    experts(m)
    context(m)
    shape(m)
    sharding(m)
    precision(m)
    state(m)
    running(m)


# Pipeline


def stages(m: Meanings) -> None:
    """Virtual stages, uneven splits and layouts; the schedule."""
    stated = [(v, word) for v, word in _STAGE_SPECS if m.stating(v) and m.value(v) is not None]
    m.follow("n_vpp_specs", len(stated), *(v for v, _ in stated))
    m.follow("virtual_stage_spec", stated[0][1] if stated else None, *(v for v, _ in stated))
    _layout(m)
    _virtual_stages(m)
    ends = ("first_stage_layers", "last_stage_layers")
    uneven = any(m.value(v) for v in ends)
    m.follow("uneven_first_last", uneven, *ends)
    splits = (*ends, "pipeline_layout", "embedding_in_split", "loss_in_split")
    m.follow("uneven_pipeline", any(m.value(v) for v in splits), *splits)
    _middle(m)
    _schedule(m)


def _layout(m: Meanings) -> None:
    """What a written layout says."""
    found = read_layout(m.value("pipeline_layout"))
    if found is None:
        return
    m.follow("layout", list(found.decoders), "pipeline_layout")
    m.follow("layout_stages", len(found.stages), "pipeline_layout")
    m.follow("layout_decoder_layers", sum(found.decoders), "pipeline_layout")
    m.follow("layout_mtp_layers", found.mtp, "pipeline_layout")
    m.follow("layout_starts_with_embedding", found.starts_with_embedding, "pipeline_layout")
    m.follow("layout_ends_with_loss", found.ends_with_loss, "pipeline_layout")


def _virtual_stages(m: Meanings) -> None:
    """Chunks a rank: counted, from the layers of one, or from the layout."""
    pp = m.count("pp")
    if m.stating("vpp") and m.value("vpp") is not None:
        m.follow("vpp", m.count("vpp"), "vpp")
        return
    layers = m.value("num_layers_per_virtual_stage")
    if isinstance(layers, int) and layers > 0:
        slots = m.count("num_hidden_layers", 0)
        slots += bool(m.value("embedding_in_split")) + bool(m.value("loss_in_split"))
        sources = ("num_layers_per_virtual_stage", "num_hidden_layers", "pp")
        if m.value("num_hidden_layers") is None:
            m.given["vpp"] = Value(value=UNKNOWN, settings=m.stating(*sources))
        else:
            m.follow("vpp", max(slots // pp // layers, 1), *sources)
    elif stages_written := m.value("layout_stages"):
        m.follow("vpp", max(stages_written // pp, 1), "pipeline_layout", "pp")
    else:
        m.follow("vpp", 1)


def _middle(m: Meanings) -> None:
    """Layers and stages between an explicit first and last one."""
    layers = m.value("num_hidden_layers")
    ends = [m.value(v) or 0 for v in ("first_stage_layers", "last_stage_layers")]
    if not isinstance(layers, int) or not all(isinstance(n, int) for n in ends):
        return
    sources = ("num_hidden_layers", "first_stage_layers", "last_stage_layers")
    m.follow("pp_middle_layers", layers - sum(ends), *sources)
    m.follow("pp_middle_stages", m.count("pp") - sum(n > 0 for n in ends), "pp", *sources[1:])


def _schedule(m: Meanings) -> None:
    """The schedule that the stages imply, or one of the zero-bubble fork; transfer overlap."""
    interleaved = m.value("vpp", 1) > 1 and m.count("pp") > 1
    m.follow("schedule", "interleaved" if interleaved else "1f1b", "vpp")
    m.follow("mb_group", m.count("mb_group", m.count("pp")), "mb_group", "pp")
    if m.value("zero_bubble_v_schedule"):
        word = {"half": "v-half"}.get(str(m.value("zero_bubble_v_schedule_mem_setup")), "zb-v")
        m.follow("schedule", word, "zero_bubble_v_schedule", "zero_bubble_v_schedule_mem_setup")
        m.follow("vpp", 2, "zero_bubble_v_schedule")
    elif m.value("enable_zero_bubble"):
        doubled = str(m.value("zero_bubble_max_pending_backward")).lower() == "2p"
        sources = ("enable_zero_bubble", "zero_bubble_max_pending_backward")
        m.follow("schedule", "zb-h2" if doubled else "zb-h1", *sources)
    overlaps = bool(m.value("overlap_pp", True)) and (interleaved or m.is_unreadable("vpp"))
    m.follow("batch_p2p_comm", not overlaps, "overlap_pp", "vpp")
    m.follow("overlap_pp", overlaps, "overlap_pp", "vpp")


# Experts, context, sharding


def experts(m: Meanings) -> None:
    """Expert tensor parallelism follows tp where it is not written."""
    stated = m.value("etp")
    m.follow("etp_explicit", stated if m.stating("etp") else None, "etp")
    if stated is None and m.is_unreadable("tp"):
        m.given["etp"] = Value(value=UNKNOWN, settings=m.stating("tp"))
    elif stated is None:
        m.follow("etp", m.count("tp"), "tp")
    if m.value("moe_expert_model_parallelism") and isinstance(m.value("num_gpus"), int):
        ranks = max(m.value("num_gpus") // (m.count("tp") * m.count("pp")), 1)
        m.follow("ep", ranks, "moe_expert_model_parallelism")
    backend = "moe_flex_dispatcher_backend"
    m.follow("moe_flex_dispatcher_backend_explicit", bool(m.stating(backend)), backend)


def context(m: Meanings) -> None:
    """The way keys and values travel between context-parallel ranks."""
    stated = m.value("cp_comm_type", "p2p")
    listed = stated if isinstance(stated, list) else re.split(r"[\s,]+", str(stated).strip("[]"))
    kinds = [str(kind).strip("\"' ") for kind in listed] or ["p2p"]
    m.follow("cp_comm_types", kinds, "cp_comm_type")
    m.follow("cp_comm_type", kinds[0] if len(set(kinds)) == 1 else kinds, "cp_comm_type")
    word = _CONTEXT.get(kinds[0])
    if word is not None:
        m.follow("context_parallel", word, "cp_comm_type")
    sizes = m.value("hierarchical_context_parallel_sizes")
    if isinstance(sizes, list) and sizes and all(isinstance(n, int) for n in sizes):
        product = 1
        for size in sizes:
            product *= size
        m.follow("hcp_product", product, "hierarchical_context_parallel_sizes")
        m.follow("hcp_inner", sizes[0], "hierarchical_context_parallel_sizes")
        m.follow("cp_inner", max(sizes[0], 1), "hierarchical_context_parallel_sizes")
    if m.count("cp") > 1:
        m.follow("context_balancer", "zigzag", "cp")


def sharding(m: Meanings) -> None:
    """ZeRO stage and replicas of each shard."""
    strategy = "data_parallel_sharding_strategy"
    if m.value("use_megatron_fsdp") or m.value("use_custom_fsdp"):
        stage = _STRATEGIES.get(str(m.value(strategy, "optim_grads_params")), 3)
        m.follow("zero_stage", stage, "use_megatron_fsdp", "use_custom_fsdp", strategy)
        m.follow("use_megatron_fsdp", True, "use_megatron_fsdp", "use_custom_fsdp")
    elif m.value("use_torch_fsdp2"):
        m.follow("zero_stage", 3, "use_torch_fsdp2")
        m.follow("overlap_grad_reduce", True, "use_torch_fsdp2")
        m.follow("overlap_param_gather", True, "use_torch_fsdp2")
    elif isinstance(m.value("zero_stage_stated"), int):
        m.follow("zero_stage", m.value("zero_stage_stated"), "zero_stage_stated")
    else:
        sharded = bool(m.value("use_distributed_optimizer")) or _is_distributed(m)
        m.follow("zero_stage", int(sharded), "use_distributed_optimizer", "optimizer")
    copies = m.count("num_distributed_optimizer_instances")
    m.follow("dp_replicate", copies, "num_distributed_optimizer_instances")


def _is_distributed(m: Meanings) -> bool:
    return str(m.value("optimizer", "")).startswith("dist")
