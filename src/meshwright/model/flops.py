"""Floating-point operations of training, per token, forward and backward, by named convention.

Published figures of TFLOP/s and MFU differ by what they count. A convention here is one such way
of counting, so that a figure can be compared with its source's. A multiply-add is two operations,
and the backward pass is twice the forward pass. With N_mm the weights that a token is multiplied
with (no input embedding), L layers, h hidden_size, a = heads * head_dim, s seq_len, V vocabulary:

    matrix products   6 N_mm
    attention, full   12 L a s    (every query with every key)
    attention, causal  6 L a s    (half of it; less where a window cuts it)

Everything broadcasts over a column of sequence lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.model.count import head_weights, parameters, passed_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.model.architecture import Attention, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One way of counting; `flops` is per token for (model, seq_len)."""

    name: str
    formula: str
    description: str
    used_by: str
    flops: Callable[[Model, Any], Any]


def flops_per_token(model: Model, seq_len: Any, *, convention: str = "model_causal") -> Any:
    """Operations per trained token under a named convention; `CONVENTIONS` lists them."""
    chosen = CONVENTIONS.get(convention)
    if chosen is None:
        near = nearest(convention, CONVENTIONS)
        raise UnknownName("FLOPs convention", convention, suggestions=near)
    return chosen.flops(model, seq_len)


def training_flops(
    model: Model,
    seq_len: Any,
    *,
    attention: str = "causal",
    windows: bool = True,
    vocabulary: bool = True,
    recompute: float = 0.0,
    frozen: bool = False,
    mtp: bool = True,
) -> Any:
    """Operations per token from the blocks themselves.

    `attention` is "full", "causal" or "none"; with `windows` a sliding or chunked window limits the
    keys of a query, else it is counted as if it were not there. `vocabulary` counts the projection
    to the vocabulary. `recompute` is the share of the blocks' forward pass that is done twice (1
    for full activation recompute); the head is not recomputed. With `frozen` weights (LoRA, whose
    own few products are left out) the backward pass makes no weight gradients.
    """
    runs = (*model.runs, *(model.mtp if mtp else ()))
    mtp_layers = sum(run.count for run in model.mtp) if mtp else 0
    weights = sum(run.count * passed_weights(run.block, model.hidden_size) for run in runs)
    weights += mtp_layers * 2 * model.hidden_size**2
    core = sum(
        run.count * attention_flops(run.block.attention, seq_len, kind=attention, windows=windows)
        for run in runs
    )
    heads = (1 + mtp_layers) * head_weights(model) if vocabulary else 0
    passes = 2 if frozen else 3
    return (passes + recompute) * 2 * weights + (3 + recompute) * core + passes * 2 * heads


def attention_flops(
    attention: Attention, seq_len: Any, *, kind: str = "causal", windows: bool = True
) -> Any:
    """Forward operations per token of scores and weighted values, projections not counted."""
    width = attention.num_attention_heads * (attention.head_dim + attention.v_head_dim)
    window = attention.window if windows else None
    keys = mean_keys(seq_len, window=window, chunked=attention.chunked, kind=kind)
    return 2 * width * keys


def mean_keys(
    seq_len: Any, *, window: int | None = None, chunked: bool = False, kind: str = "causal"
) -> Any:
    """Keys that a query meets, averaged over a sequence; the diagonal counts half.

    Causal: s/2; sliding window w < s: w - w^2 / 2s; chunks of c: c/2 over the whole chunks and the
    rest's half over the rest. Full: s, or the window.
    """
    s = np.asarray(seq_len, dtype=float) if np.ndim(seq_len) else float(seq_len)
    if kind == "none":
        return 0.0 * s
    span = s if window is None else np.minimum(float(window), s)
    if kind == "full":
        return span
    if chunked and window is not None:
        whole = np.floor(s / span)
        rest = s - whole * span
        return (whole * span**2 + rest**2) / (2 * s)
    return span - span**2 / (2 * s)


def _all_parameters(model: Model) -> int:
    """N as "6N" conventions count it: what a token passes, embedding included, no MTP."""
    return parameters(model, mtp=False).active


def _six_n(model: Model, seq_len: Any, *, attention: str) -> Any:
    """6 N plus attention without regard to windows."""
    core = sum(
        run.count * attention_flops(run.block.attention, seq_len, kind=attention, windows=False)
        for run in model.runs
    )
    return 6 * _all_parameters(model) + 3 * core


def _six_n_untied(model: Model, seq_len: Any) -> Any:
    """6 N plus full attention, a tied matrix counted as embedding and again as head."""
    again = head_weights(model) if model.tie_word_embeddings else 0
    return _six_n(model, seq_len, attention="full") + 6 * again


def _gpt(model: Model, seq_len: Any, *, passes: int, core: float = 1.0) -> Any:
    """Closed form for a GPT of four-fold width: 24 L h^2 (1 + s/6h) a pass, and 6 h V.

    `passes` is 3, or 4 with full recompute; `core` multiplies the attention term.
    """
    h, layers = model.hidden_size, model.num_hidden_layers
    s = np.asarray(seq_len, dtype=float) if np.ndim(seq_len) else float(seq_len)
    return 24 * passes * layers * h**2 * (1 + core * s / (6 * h)) + 6 * h * model.vocab_size


_LIST = (
    Convention(
        name="model_causal",
        formula="6 N_mm + 6 L a s",
        description="model FLOPs, causal half of attention, windows exact, vocabulary included",
        used_by="Megatron-Bridge 25.09 on, Megatron-Core MoE recipes, AutoModel, Ironwood recipes",
        flops=lambda model, s: training_flops(model, s),
    ),
    Convention(
        name="model_full",
        formula="6 N_mm + 12 L a s",
        description="model FLOPs, attention as if not masked, vocabulary included",
        used_by="NeMo 24.07 to 25.07, dgxc-benchmarking, MaxText, Megatron-LM's llama example",
        flops=lambda model, s: training_flops(model, s, attention="full", windows=False),
    ),
    Convention(
        name="model_causal_no_vocabulary",
        formula="6 (N_mm - V h) + 6 L a s",
        description="model_causal without the projection to the vocabulary",
        used_by="",
        flops=lambda model, s: training_flops(model, s, vocabulary=False),
    ),
    Convention(
        name="model_full_no_vocabulary",
        formula="6 (N_mm - V h) + 12 L a s",
        description="model_full without the projection to the vocabulary",
        used_by="",
        flops=lambda model, s: training_flops(
            model, s, attention="full", windows=False, vocabulary=False
        ),
    ),
    Convention(
        name="model_causal_no_windows",
        formula="6 N_mm + 6 L a s",
        description="model_causal with windowed layers counted as if they saw everything",
        used_by="Megatron-Bridge before 26.06",
        flops=lambda model, s: training_flops(model, s, windows=False),
    ),
    Convention(
        name="hardware_causal",
        formula="8 N_blocks + 8 L a s + 6 V h",
        description="hardware FLOPs: model_causal with every block's forward pass done twice",
        used_by="",
        flops=lambda model, s: training_flops(model, s, recompute=1.0),
    ),
    Convention(
        name="hardware_full",
        formula="8 N_blocks + 16 L a s + 6 V h",
        description="hardware FLOPs: model_full with every block's forward pass done twice",
        used_by="",
        flops=lambda model, s: training_flops(
            model, s, attention="full", windows=False, recompute=1.0
        ),
    ),
    Convention(
        name="lora_causal",
        formula="4 N_mm + 6 L a s",
        description="model_causal without the weight gradients of the frozen base",
        used_by="Megatron-Bridge's LoRA rows (packed sequences, whose attention it leaves out)",
        flops=lambda model, s: training_flops(model, s, frozen=True),
    ),
    Convention(
        name="korthikanti",
        formula="72 L h^2 (1 + s/6h + V/12Lh)",
        description="model FLOPs of a GPT, attention full (arXiv 2205.05198, appendix A)",
        used_by="Korthikanti et al., Megatron-Core H100 table, vocabulary parallelism, Nemotron-4",
        flops=lambda model, s: _gpt(model, s, passes=3),
    ),
    Convention(
        name="korthikanti_hardware",
        formula="72 L h^2 (1 + s/3h + V/12Lh)",
        description="korthikanti with the attention core recomputed (arXiv 2205.05198, appendix A)",
        used_by="Korthikanti et al. (HFU with selective recompute)",
        flops=lambda model, s: _gpt(model, s, passes=3, core=2.0),
    ),
    Convention(
        name="sc21_hardware",
        formula="96 L h^2 (1 + s/6h + V/16Lh)",
        description="hardware FLOPs of a GPT with full recompute (arXiv 2104.04473, equation 3)",
        used_by="Megatron SC21, BLOOM and its prequel, Megatron 2020, InternEvo",
        flops=lambda model, s: _gpt(model, s, passes=4),
    ),
    Convention(
        name="6n_full",
        formula="6 N + 12 L a s",
        description="N with the input embedding, a tied matrix once (arXiv 2204.02311, appendix B)",
        used_by="llm-foundry, nanotron on one stage, fms-fsdp, TinyLlama, nanoGPT",
        flops=lambda model, s: _six_n(model, s, attention="full"),
    ),
    Convention(
        name="6n_full_untied",
        formula="6 (N + V h if tied) + 12 L a s",
        description="6n_full with a tied matrix counted at both ends",
        used_by="nanotron on several pipeline stages",
        flops=_six_n_untied,
    ),
    Convention(
        name="6n_causal",
        formula="6 N + 6 L a s",
        description="6n_full with the causal half of attention",
        used_by="",
        flops=lambda model, s: _six_n(model, s, attention="causal"),
    ),
    Convention(
        name="6n_full_hardware",
        formula="4/3 (6 N + 12 L a s)",
        description="6n_full with everything recomputed, the head too",
        used_by="llm-foundry's HFU with activation checkpointing",
        flops=lambda model, s: _six_n(model, s, attention="full") * 4 / 3,
    ),
    Convention(
        name="6n",
        formula="6 N",
        description="parameters alone (arXiv 2001.08361), no attention",
        used_by="scaling laws",
        flops=lambda model, s: _six_n(model, s, attention="none"),
    ),
    Convention(
        name="8n",
        formula="8 N",
        description="parameters alone with full recompute, hardware FLOPs",
        used_by="BigScience's 104B notes",
        flops=lambda model, s: _six_n(model, s, attention="none") * 4 / 3,
    ),
)
CONVENTIONS = {convention.name: convention for convention in _LIST}
