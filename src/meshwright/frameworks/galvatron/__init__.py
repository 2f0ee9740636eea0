"""Hetu-Galvatron: JSON with a plan layer by layer, and its arguments.

Sources: galvatron/core/runtime/{arguments,hybrid_parallel_config}.py (2.4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Framework
from meshwright.frameworks.meanings import Meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value

_OWN = {
    "tp_sizes_enc",
    "dp_types_enc",
    "tp_consecutive_flags",
    "pp_deg",
    "global_tp_deg",
    "pp_division",
    "global_bsz",
    "global_tp_consec",
    "galvatron_config_path",
    "default_dp_type",
}
_STAGES = {"ddp": 0, "zero2": 2, "zero3": 3}


def recognizes(parsed: Parsed) -> float:
    """By its own names."""
    found = telling.count(telling.names(parsed), _OWN)
    return 0.0 if not found else min(0.4 + 0.2 * found, 1.0)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give: degrees differ from layer to layer."""
    m = Meanings(config, values)
    _degrees(m)
    _sharding(m)
    _batch(m)
    _precision(m)
    m.follow("resume", m.value("ckpt_load") is not None, "ckpt_load")
    return m.given


def _list(m: Meanings, name: str) -> list[int]:
    value = m.config.stated(name)
    return [x for x in value if isinstance(x, int)] if isinstance(value, list) else []


def _degrees(m: Meanings) -> None:
    """Tensor parallelism by layer; the plan has one degree, the largest."""
    layers = _list(m, "tp_sizes_enc")
    overall = m.field("global_tp_deg")
    tp = max(layers) if layers else overall if isinstance(overall, int) and overall > 0 else 1
    names = ("tp_sizes_enc", "global_tp_deg")
    vocab = m.field("vtp", "vocab_tp")
    vocab = vocab if isinstance(vocab, int) and vocab > 0 else 1
    if layers:
        m.give("layer_tp_list", layers, "tp_sizes_enc")
    m.give("min_layer_tp", min([*layers, vocab] if layers else [tp, vocab]), *names)
    spread = bool(m.field("use_ulysses")) or any(_list(m, "use_sp"))
    m.give("tp", 1 if spread else tp, *names)
    m.give("cp", tp if spread else 1, *names, "use_sp", "use_ulysses")
    m.give("ulysses", tp if spread else 1, *names, "use_sp", "use_ulysses")
    m.give("context_parallel", "ulysses" if spread else "ring", "use_sp", "use_ulysses")
    m.give("sequence_parallel", tp > 1 and not spread, *names)
    m.give("schedule", _schedule(m), "pipeline_type")
    division = _list(m, "pp_division")
    if division and m.count("pp") == len(division) > 1 and len(set(division)) > 1:
        m.give("layout", division, "pp_division")
    if layers:
        m.give("num_hidden_layers", len(layers), "tp_sizes_enc")


def _schedule(m: Meanings) -> str:
    return "1f1b" if m.field("pipeline_type") == "pipedream_flush" else "gpipe"


def _sharding(m: Meanings) -> None:
    """zero3 where all layers have it, else the default type; recompute where all layers have it."""
    types = _list(m, "dp_types_enc")
    whole = bool(m.field("sdp")) or (bool(types) and all(types))
    stage = 3 if whole else _STAGES.get(str(m.field("default_dp_type")), 0)
    m.give("zero_stage", stage, "default_dp_type", "dp_types_enc", "sdp")
    flags = _list(m, "checkpoint")
    every = bool(m.field("global_checkpoint")) or (bool(flags) and all(flags))
    names = ("checkpoint", "global_checkpoint")
    m.give("recompute", "full" if every or any(flags) else "none", *names)
    if any(flags) and not every:
        share = sum(map(bool, flags)) / len(flags)
        m.give("recompute_layers", max(round(share * len(flags) / m.count("pp")), 1), *names)


def _batch(m: Meanings) -> None:
    """The batch of a step is cut into chunks."""
    batch = m.field("global_bsz") if m.is_stated("global_bsz") else None
    batch = m.field("global_train_batch_size") if batch is None else batch
    chunks = m.value("num_microbatches")
    if not (isinstance(batch, int) and batch > 0):
        return
    m.give("global_batch_size", batch, "global_bsz", "global_train_batch_size")
    dp, world = None, m.value("num_gpus")
    if isinstance(world, int):
        dp = max(world // (m.count("pp") * m.count("tp") * m.count("cp")), 1)
        m.follow("dp", dp, "pp", "tp")
    if dp and isinstance(chunks, int) and chunks > 0:
        m.follow("micro_batch_size", max(batch // (dp * chunks), 1), "num_microbatches")
    elif not isinstance(chunks, int) or chunks < 1:
        m.give("num_microbatches", m.count("pp"), "chunks")


def _precision(m: Meanings) -> None:
    word: Any = m.value("precision", "bf16")
    width = 4 if word == "fp32" else 2
    m.follow("precision", word, "precision")
    m.follow("bf16", word == "bf16", "precision")
    m.follow("param_bytes", width, "precision")
    summed = 4 if m.field("reduce_in_fp32") else width
    m.give("grad_bytes", summed, "reduce_in_fp32")
    m.give("reduce_bytes", summed, "reduce_in_fp32")
    m.follow("master_weights", width == 2, "precision")


FRAMEWORKS = (
    Framework(
        name="galvatron",
        title="Hetu-Galvatron",
        package=__name__,
        syntaxes=("json", "shell"),
        file_name="galvatron.json",
        scopes=("galvatron", "hetu-galvatron"),
        below=("megatron-core",),
        newest="2.4",
        recognizes=recognizes,
        interpret=interpret,
        aliases=("hetu-galvatron",),
    ),
)
