"""Recompute, offload, overlaps, batch, data, checkpoints, communication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.meanings import Meanings

MODULES: Mapping[str, str] = {
    "core_attn": "core-attention",
    "mlp": "mlp",
    "layernorm": "norm",
    "moe_act": "moe-activation",
    "moe": "moe",
    "shared_experts": "shared-experts",
    "mla_up_proj": "mla-up-projection",
}
_RESHARDABLE = ("torch_dist", "zarr", "fsdp_dtensor", "torch_dcp")
_RANK_ORDER = "tp-cp-ep-dp-pp"
_DATA_OUTERMOST = "tp-cp-ep-pp-dp"
_UNFUSED = ("unfused", "local")


def running(m: Meanings) -> None:
    """Everything about how the plan is run."""
    _recompute(m)
    _offload(m)
    _graphs(m)
    _loss(m)
    _batch(m)
    _experts(m)
    _checkpoints(m)
    _communication(m)


def _recompute(m: Meanings) -> None:
    """Granularity, modules, and the layers that the full method covers."""
    kind = m.value("recompute")
    sources = ["recompute", "recompute_activations", "moe_layer_recompute"]
    if m.value("recompute_activations") and kind is None:
        kind = "selective"
    modules = m.value("recompute_modules")
    named = list(modules) if isinstance(modules, list) else []
    if m.value("moe_layer_recompute") and kind != "full":
        named = [*named, "moe"] if kind == "selective" or named else ["moe"]
        kind = "selective"
    m.follow("recompute", kind if kind in ("full", "selective") else "none", *sources)
    words = [MODULES.get(str(name), str(name)) for name in named] or ["core-attention"]
    m.follow("recompute_modules", words, "recompute_modules", "moe_layer_recompute")
    layers = m.value("recompute_num_layers")
    if kind != "full" or not isinstance(layers, int):
        return
    uniform = m.value("recompute_method") == "uniform"
    if not (uniform and layers == 1):  # one layer a unit is every layer
        m.follow("recompute_layers", layers, "recompute_num_layers")
        m.follow("recompute_uniform", uniform, "recompute_method")


def _offload(m: Meanings) -> None:
    """Activations of some layers of every rank on the host."""
    layers = m.value("cpu_offloading_num_layers", 0)
    is_on = bool(m.value("cpu_offloading")) or (isinstance(layers, int) and layers > 0)
    m.follow("cpu_offloading", is_on, "cpu_offloading", "cpu_offloading_num_layers")
    total = m.value("num_hidden_layers")
    if is_on and isinstance(layers, int) and isinstance(total, int) and total > 0:
        held = max(total / m.count("pp"), 1)
        share = min(layers / held, 1.0)
        m.follow("offload_activations", share, "cpu_offloading_num_layers", "num_hidden_layers")
    modules = m.value("offload_modules")
    if isinstance(modules, str):
        m.follow("offload_modules", modules.split(","), "offload_modules")


def _graphs(m: Meanings) -> None:
    """CUDA graphs, by the newer argument or by the older flags."""
    impl = m.value("cuda_graph_impl", "none")
    sources = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    if m.value("enable_cuda_graph"):
        impl = "local"
    elif m.value("external_cuda_graph"):
        impl = "transformer_engine"
    m.follow("cuda_graph_impl", impl, *sources)
    m.follow("cuda_graph", impl not in ("none", None), *sources)
    scope = m.value("cuda_graph_scope")
    if scope and not m.value("cuda_graph_modules"):
        scope = scope if isinstance(scope, list) else [scope]
        m.follow("cuda_graph_modules", scope, "cuda_graph_scope")


def _loss(m: Meanings) -> None:
    """Attention and cross-entropy kernels."""
    backend = str(m.value("attention_backend", "auto")).rsplit(".", 1)[-1]
    m.follow("attention_backend", backend, "attention_backend")
    local = m.value("transformer_impl") == "local" and not m.value("use_flash_attn")
    flash = backend not in _UNFUSED and not local
    m.follow("flash_attention", flash, "attention_backend", "transformer_impl", "use_flash_attn")
    sources = ("cross_entropy_loss_fusion", "cross_entropy_fusion_impl")
    m.follow("fused_loss", bool(m.value("cross_entropy_loss_fusion")), *sources)


def _batch(m: Meanings) -> None:
    """Sequences a step; the tokens of the run; steps of a growing batch."""
    sizes = _steps(m)
    batch = m.value("global_batch_size")
    m.follow("gbs_explicit", bool(m.stating("global_batch_size")), "global_batch_size")
    if batch is None and m.stating("micro_batch_size") and not sizes:
        m.follow("gradient_accumulation_steps", 1, "micro_batch_size")
    if sizes:
        m.follow("batch_size_steps", sizes, "rampup_batch_size", "step_batch_size_schedule")
    seq_len, samples = m.value("seq_len"), m.value("train_samples")
    if isinstance(m.value("train_iters"), int) and isinstance(batch, int):
        samples = m.value("train_iters") * batch
    if isinstance(seq_len, int) and isinstance(samples, int) and samples > 0:
        sources = ("seq_len", "train_samples", "train_iters", "global_batch_size")
        m.follow("train_tokens", float(seq_len * samples), *sources)
    sft = bool(m.value("sft"))
    if sft:
        m.follow("masked_loss", True, "sft")


def _steps(m: Meanings) -> list[int]:
    """The batch sizes that a run goes through."""
    schedule = m.value("step_batch_size_schedule")
    if isinstance(schedule, str):
        pairs = [part.split(":")[-1].strip() for part in schedule.split()]
        sizes = [int(p) for p in pairs if p.isdecimal() and len(p) < 10]
        m.follow("step_batch_sizes", sizes, "step_batch_size_schedule")
        return sizes
    ramp = m.value("rampup_batch_size")
    batch = m.value("global_batch_size")
    if not isinstance(ramp, list) or len(ramp) < 2 or not isinstance(batch, int):
        return []
    first, step = (_whole(n) for n in ramp[:2])
    if first is None or not step or not 0 <= batch - first <= 10_000 * step:
        return []
    return list(range(first, batch + 1, step))


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _experts(m: Meanings) -> None:
    """How tokens reach the experts and how their load is balanced."""
    kind = m.value("load_balancing")
    first = kind[0] if isinstance(kind, list) and kind else kind
    if isinstance(kind, list) and len(kind) == 1:
        m.follow("load_balancing", first, "load_balancing")
    coefficients = m.value("aux_loss_coeff")
    if isinstance(coefficients, list) and len(coefficients) == 1:
        m.follow("aux_loss_coeff", coefficients[0], "aux_loss_coeff")
    if not m.value("num_experts") and m.count("ep") == 1:
        return
    kinds = {"allgather": "allgather", "alltoall": "alltoall", "flex": "flex"}
    dispatcher = kinds.get(str(m.value("moe_token_dispatcher_type", "")))
    if dispatcher is not None:
        m.follow("expert_dispatcher", dispatcher, "moe_token_dispatcher_type")
    if m.value("expert_bias"):
        m.follow("expert_balancing", "bias", "expert_bias")
    elif isinstance(first, str):
        m.follow("expert_balancing", first, "load_balancing")
    m.follow("router_padding", bool(m.value("moe_router_padding")), "moe_router_padding")


def _checkpoints(m: Meanings) -> None:
    """Whether checkpoints load under other degrees; whether the run resumes."""
    kind = m.value("ckpt_format")
    if isinstance(kind, str):
        m.follow("checkpoint_reshardable", kind in _RESHARDABLE, "ckpt_format")
    m.follow("resume", bool(m.value("ckpt_load")), "ckpt_load")
    if m.value("checkpoint_async") is None:
        m.given["checkpoint_async"] = Value(value=False, default=True)


def _communication(m: Meanings) -> None:
    """Order of ranks, timeouts, SHARP."""
    order = _DATA_OUTERMOST if m.value("tp_pp_dp_mapping") else _RANK_ORDER
    m.follow("rank_order", order, "tp_pp_dp_mapping")
    minutes = m.value("collective_timeout_minutes")
    if isinstance(minutes, int | float):
        m.follow("collective_timeout_s", minutes * 60.0, "collective_timeout_minutes")
