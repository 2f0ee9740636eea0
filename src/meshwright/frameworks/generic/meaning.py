"""Words of many frameworks as those of a plan; what no plan says so is left out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.generic.meshes import meshes
from meshwright.frameworks.meanings import Meanings, heed_remarks
from meshwright.frameworks.setting import UNKNOWN
from meshwright.plan.words import CHOICES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

_PRECISIONS = (
    (r"nvfp4|fp4", "nvfp4"),
    (r"mxfp8", "mxfp8"),
    (r"fp8|float8", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half|^16", "fp16"),
    (r"fp32|float32|tf32|^32|^no$|^none$", "fp32"),
)
_SCHEDULES = (
    (r"dualpipe-?v", "dualpipe-v"),
    (r"dualpipe", "dualpipe"),
    (r"v-?half", "v-half"),
    (r"zb-?v|zbv", "zb-v"),
    (r"zb-?h?2", "zb-h2"),
    (r"zb|zero-?bubble", "zb-h1"),
    (r"gpipe|afab|forwardbackward", "gpipe"),
    (r"interleav", "interleaved"),
    (r"1f1b|pipedream", "1f1b"),
)
_OPTIMIZERS = (
    (r"8-?bit", "adam-8bit"),
    (r"adafactor", "adafactor"),
    (r"muon", "muon"),
    (r"adam|lamb", "adam"),
    (r"momentum", "sgd-momentum"),
    (r"sgd", "sgd"),
)
_TRAINERS = re.compile(r"\b(?:zero|deepspeed|accelerate|transformers|hugging\w*)\b", re.IGNORECASE)
_LONGEST = 2000  # characters of values that are looked through
_FULL = {"true", "full", "yes", "on", "all", "1", "unsloth"}
_NONE = {"false", "none", "no", "off", "0", ""}
_WORDS = ("precision", "schedule", "optimizer", "context_parallel")
_ATTENTION = (r"flash|fused|sdpa|flex", r"eager|unfused|math|naive")


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables whose values many frameworks word in their own way."""
    m = Meanings(config, values)
    heed_remarks(m)
    meshes(m)
    _mesh(m)
    _sharding(m)
    _precision(m)
    _gradients(m)
    _recompute(m)
    for variable, patterns in (("schedule", _SCHEDULES), ("optimizer", _OPTIMIZERS)):
        if m.value(variable) is not None:
            word = worded(m.value(variable), patterns)
            m.follow(variable, word or UNKNOWN, variable)
    _attention(m)
    for variable in _WORDS:
        _unless_a_word(m, variable)
    return m.given


def worded(value: Any, patterns: tuple[tuple[str, str], ...]) -> str:
    """The word of the first pattern that a value matches, "" for none."""
    text = str(value).strip().lower()
    return next((word for pattern, word in patterns if re.search(pattern, text)), "")


def _mesh(m: Meanings) -> None:
    """Ulysses is a kind of context parallelism; sequence parallelism is part of tensor's."""
    degree = m.value("ulysses")
    if isinstance(degree, int) and degree > 1 and m.value("cp") in (None, 1):
        m.follow("cp", degree, "ulysses")
        m.follow("context_parallel", "ulysses", "ulysses")
    if m.value("sequence_parallel") is not None and m.value("tp") == 1:
        m.follow("sequence_parallel", False, "sequence_parallel")
    passes = m.value("num_microbatches")
    if m.value("gradient_accumulation_steps") is None and isinstance(passes, int):
        m.follow("gradient_accumulation_steps", passes, "num_microbatches")


def _sharding(m: Meanings) -> None:
    """The ZeRO stage: as a number, as a distributed optimizer, as FSDP, or as InternLM's zero1."""
    stage = m.value("zero_stage")
    if stage is not None and stage not in (0, 1, 2, 3):
        m.follow("zero_stage", UNKNOWN, "zero_stage")
    if stage is not None:
        return
    group = m.value("zero1_group")
    if isinstance(group, int):
        m.follow("zero_stage", 0 if group == 1 else 1, "zero1_group")
    elif m.value("use_distributed_optimizer") is not None:
        on = bool(m.value("use_distributed_optimizer"))
        m.follow("zero_stage", 1 if on else 0, "use_distributed_optimizer")
    elif m.value("use_fsdp") is True:
        m.follow("zero_stage", 3, "use_fsdp")


def _precision(m: Meanings) -> None:
    stated = m.value("precision")
    if stated is not None:
        word = worded(stated, _PRECISIONS)
        m.follow("precision", word or UNKNOWN, "precision")
        m.follow("bf16", word == "bf16", "precision")
        return
    for variable in ("fp8", "bf16", "fp16"):
        if m.value(variable) is True:
            m.follow("precision", variable, variable)
            return


def _gradients(m: Meanings) -> None:
    """Gradients of 16 bits, as ZeRO's and the trainers' arithmetic has them (arXiv 1910.02054, 3).

    Megatron's are of 32, which is what stands where no word tells.
    """
    if m.value("grad_bytes") is not None or m.value("precision") == "fp32":
        return
    if any(m.value(v) is not None for v in ("use_distributed_optimizer", "zero1_group")):
        return
    stated = (*m.config.settings.values(), *m.config.unknown)
    words = " ".join(s.value for s in stated if isinstance(s.value, str))
    if m.stating("zero_stage") or _TRAINERS.search(words[:_LONGEST]):
        m.follow("grad_bytes", 2, "zero_stage")
        m.follow("reduce_bytes", 2, "zero_stage")


def _recompute(m: Meanings) -> None:
    """A switch, a granularity, or a share of the layers."""
    stated = m.value("recompute")
    if stated is None:
        return
    text = str(stated).strip().lower()
    share = isinstance(stated, float) and 0 < stated < 1
    if text in _FULL or share:
        m.follow("recompute", "full", "recompute")
        layers = m.value("num_hidden_layers")
        if share and isinstance(layers, int):
            count = max(round(stated * layers / m.count("pp")), 1)
            m.follow("recompute_layers", count, "recompute")
    elif text in _NONE:
        m.follow("recompute", "none", "recompute")
    else:
        m.follow("recompute", "selective" if "selective" in text else UNKNOWN, "recompute")


def _attention(m: Meanings) -> None:
    """Whether attention runs as one fused kernel."""
    stated = m.value("attention_backend")
    if isinstance(stated, str):
        fused, unfused = (re.search(p, stated.lower()) for p in _ATTENTION)
        if unfused or fused:
            m.follow("flash_attention", not unfused, "attention_backend")


def _unless_a_word(m: Meanings, variable: str) -> None:
    """A word that no plan has is not known, rather than wrong."""
    value = m.value(variable)
    if value is not None and value not in CHOICES[variable]:
        m.follow(variable, UNKNOWN, variable)
