"""What an axolotl file means.

Source: axolotl 0.19, utils/schemas/ and loaders/model.py: the model is loaded in 16 bits and, when
neither FSDP nor DeepSpeed holds an fp32 copy, trained so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.deepspeed.trainer import DEFAULTS
from meshwright.frameworks.hugging_face.adapters import give_adapters
from meshwright.frameworks.hugging_face.sharding import Names, strategy_of, truth
from meshwright.frameworks.hugging_face.trainer import (
    Arguments,
    give_attention,
    give_loss,
    give_optimizer,
    give_run,
    stated_facts,
)
from meshwright.frameworks.meanings import Meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

FSDP = Names(
    version="fsdp_version",
    strategy="fsdp_config.sharding_strategy",
    reshard="fsdp_config.reshard_after_forward",
    offload=("fsdp_config.offload_params", "fsdp_config.cpu_offload"),
    checkpointing="fsdp_config.activation_checkpointing",
    state_dict="fsdp_config.state_dict_type",
    efficient_loading="fsdp_config.cpu_ram_efficient_loading",
)
FUSED = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
ATTENTION = ("flash_attention", "sdp_attention", "flex_attention", "xformers_attention")
_LORA = ("adapter", "lora_r", "lora_target_linear", "lora_target_modules", "load_in_4bit")
_FACTS = {
    "per_device_train_batch_size": "micro_batch_size",
    "max_grad_norm": "max_grad_norm",
}
_INSIDE = ("fsdp_config.version", "fsdp_config.fsdp_version")  # where older files have it
DEFAULT_RANK = 8


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _give_lora(m)
    _give_recompute(m)
    give_loss(m, *FUSED)
    _give_attention(m)
    give_optimizer(m, "optimizer")
    _give_data(m)
    _give_expert_shards(m)
    give_run(m, _arguments(m))
    if m.count("cp") > 1:  # ring-flash-attn passes keys around, not accelerate's own rotation
        m.follow("context_parallel", "ring", "cp")
        m.follow("ring_cp", 1)
    return m.given


def _give_expert_shards(m: Meanings) -> None:
    """Experts are an axis of their own beside the shards, whose ranks read different data."""
    shards, experts = m.value("dp_shard"), m.count("ep")
    if isinstance(shards, int) and shards > 0 and experts > 1:
        m.follow("dp_shard", shards * experts, "dp_shard", "ep")


def _give_lora(m: Meanings) -> None:
    adapter = m.config.stated("adapter")
    m.give("tunes_weights", not adapter, "adapter")
    if not isinstance(adapter, str) or not adapter:
        return
    rank = m.config.stated("lora_r")
    linear = truth(m.field("lora_target_linear"))
    four = truth(m.field("load_in_4bit")) or (adapter == "qlora" and not m.field("load_in_8bit"))
    give_adapters(
        m,
        rank=rank if isinstance(rank, int) else DEFAULT_RANK,
        targets="all" if linear else m.config.stated("lora_target_modules") or "",
        bits=4 if four else 8 if truth(m.field("load_in_8bit")) else 0,
        names=(*_LORA, "load_in_8bit"),
    )


def _give_recompute(m: Meanings) -> None:
    """Recompute, and where the saved inputs of layers go."""
    stated = m.config.stated("gradient_checkpointing")
    on = truth(stated)
    words = str(stated).lower() if isinstance(stated, str) and on is None else ""
    on = bool(on) or words not in ("", "none", "null")
    m.give("recompute", "full" if on else "none", "gradient_checkpointing")
    m.give("gradient_checkpointing", on, "gradient_checkpointing")
    away = m.config.stated("activation_offloading")
    if words.startswith(("offload", "unsloth")) or (away and truth(away) is not False):
        m.give("offload_activations", 1.0, "activation_offloading", "gradient_checkpointing")


def _give_attention(m: Meanings) -> None:
    give_attention(m, "attn_implementation", *ATTENTION)
    if truth(m.field("eager_attention")):
        m.give("flash_attention", False, "eager_attention")


def _give_data(m: Meanings) -> None:
    """Packing masks documents from each other by their positions; every step's batch saves."""
    m.give("pads_sequences", True)
    if m.value("packed"):
        m.follow("document_mask", True, "packed")
    every = m.config.stated("save_steps")
    if isinstance(every, int | float) and every >= 1:
        m.give("checkpoint_interval_steps", int(every), "save_steps")
        m.give("save_steps", int(every), "save_steps")
    compiled = m.config.stated("torch_compile")
    if compiled is not None:
        m.give("compile", bool(truth(compiled)) or str(compiled) == "auto", "torch_compile")


def _arguments(m: Meanings) -> Arguments:
    arithmetic, mixed = _arithmetic(m)
    listed = m.config.stated("fsdp")
    words = [str(w).lower() for w in (listed if isinstance(listed, list) else str(listed).split())]
    turned_on = m.is_stated("fsdp") and listed not in (None, False, [])
    inner = tuple(n for n in m.config.settings if n.startswith("fsdp_config."))
    on = ("fsdp",) if turned_on else inner[:1]
    if turned_on and "offload" in words:
        m.give("offload_params", True, "fsdp")
        m.give("offload_optimizer", 1.0, "fsdp")
    return Arguments(
        arithmetic=arithmetic,
        half_weights=not truth(m.field("float32")) and arithmetic != "fp32",
        upcast=False,
        mixed=mixed,
        names=("bf16", "fp16", "bfloat16", "float16", "float32"),
        fsdp=FSDP,
        fsdp_on=on,
        fsdp_strategy=next((w for w in words if strategy_of(w)), ""),
        fsdp_version=2 if "2" in [str(m.config.stated(n)) for n in _INSIDE] else 1,
        facts=stated_facts(m, _FACTS, DEFAULTS) | _mixed_facts(m, arithmetic),
    )


def _mixed_facts(m: Meanings, arithmetic: str) -> dict[str, Value]:
    """axolotl hands the trainer booleans, whatever words its own file has."""
    from meshwright.frameworks.setting import Value as Said

    return {
        word: Said(value=arithmetic == word, settings=m.settings(word)) for word in ("bf16", "fp16")
    }


def _arithmetic(m: Meanings) -> tuple[str, bool]:
    """The arithmetic, and whether the trainer's mixed precision is on: "full" turns it off."""
    if truth(m.field("float32")):
        return "fp32", False
    bf16, fp16 = m.config.stated("bf16"), m.config.stated("fp16")
    for name, word in (("bfloat16", "bf16"), ("float16", "fp16")):
        if truth(m.field(name)):
            return word, False
    if truth(fp16):
        return "fp16", True
    if bf16 is None and fp16 is None:
        return "bf16", True  # "auto", on every GPU that has it
    if str(bf16).lower() == "full":
        return "bf16", False
    return ("bf16", True) if truth(bf16) or str(bf16).lower() == "auto" else ("fp32", False)
