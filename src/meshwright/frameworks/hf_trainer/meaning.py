"""What arguments of transformers' trainer mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.deepspeed.trainer import DEFAULTS, remarked_facts
from meshwright.frameworks.field import release
from meshwright.frameworks.hugging_face.adapters import give_adapters, give_told_adapters
from meshwright.frameworks.hugging_face.sharding import NUMBERED, Names, strategy_of, truth
from meshwright.frameworks.hugging_face.trainer import (
    Arguments,
    give_attention,
    give_loss,
    give_optimizer,
    give_recompute,
    give_run,
    part_of,
    stated_facts,
)
from meshwright.frameworks.meanings import Meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

FSDP = Names(
    version="fsdp_config.version",
    strategy="fsdp_config.sharding_strategy",
    reshard="fsdp_config.reshard_after_forward",
    offload=("fsdp_config.cpu_offload", "fsdp_config.offload_params"),
    checkpointing="fsdp_config.activation_checkpointing",
    checkpointing_offload="fsdp_config.activation_checkpointing_offload",
    state_dict="fsdp_config.state_dict_type",
    efficient_loading="fsdp_config.cpu_ram_efficient_loading",
)
_TRL = (
    *("max_completion_length", "num_generations", "assistant_only_loss", "completion_only_loss"),
    *("loss_type", "trainer", "dataset_text_field", "padding_free", "packing", "ref_model"),
)
_RANKS = (
    *("lora_r", "use_peft", "use_lora", "use_qlora", "q_lora", "use_peft_lora", "peft_lora_r"),
)
_TARGETS = ("lora_target_modules", "lora_target", "target_modules")
_ATTENTION = (
    *("attn_implementation", "use_flash_attention_2", "use_flash_attn", "flash_attn"),
    "use_flash_attention",
)
_LENGTHS = (
    *("max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length"),
    *("cutoff_len", "seq_length", "sequence_length"),
)
_FIRST_WITH_FSDP2 = (5,)
_FIRST_WITH_SDPA = (4, 36)


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _give_length(m)
    _give_lora(m)
    give_recompute(m, "gradient_checkpointing", default=m.is_stated(*_TRL) and _newest(m))
    give_loss(m, "use_liger_kernel")
    old = bool(config.version) and release(config.version) < _FIRST_WITH_SDPA
    give_attention(m, *_ATTENTION, old=old)
    give_optimizer(m, "optim", "adafactor")
    _give_saving(m)
    give_run(m, _arguments(m))
    return m.given


def _newest(m: Meanings) -> bool:
    """Whether the version is one whose TRL recomputes by default."""
    return not m.config.version or release(m.config.version) >= _FIRST_WITH_FSDP2


def _give_length(m: Meanings) -> None:
    """Tokens of a sequence; for a policy's answers, those of prompt and answer together."""
    stated = next((n for n in _LENGTHS if isinstance(m.config.stated(n), int)), None)
    if stated is not None:
        m.give("seq_len", m.field(stated), stated)
        return
    names = ("max_prompt_length", "max_completion_length")
    parts = [m.config.stated(n) for n in names]
    if isinstance(parts[1], int):
        m.give("seq_len", parts[1] + (parts[0] if isinstance(parts[0], int) else 0), *names)
        m.give("sft", False)


def _give_lora(m: Meanings) -> None:
    wanted = [n for n in _RANKS if n != "lora_r" and truth(m.field(n))]
    refused = any(m.is_stated(n) and truth(m.field(n)) is False for n in ("use_peft", "use_lora"))
    if refused or not (wanted or m.is_stated("lora_r") or m.is_stated(*_TARGETS)):
        if not refused:
            give_told_adapters(m, remarked_facts(m.config))
        return
    rank = m.config.stated("lora_r")
    targets = next((m.field(n) for n in _TARGETS if m.is_stated(n)), "")
    give_adapters(
        m,
        rank=rank if isinstance(rank, int) else 16,
        targets=targets,
        bits=_bits(m),
        names=(*wanted, "lora_r", *_TARGETS, "load_in_4bit", "load_in_8bit", "bits"),
    )


def _bits(m: Meanings) -> int:
    four = ("load_in_4bit", "use_4bit", "use_qlora", "q_lora")
    if any(truth(m.field(n)) for n in four):
        return 4
    bits = m.config.stated("bits")
    if bits in (4, 8):
        return int(bits)
    return 8 if any(truth(m.field(n)) for n in ("load_in_8bit", "use_8bit")) else 0


def _give_saving(m: Meanings) -> None:
    every = m.value("save_steps")
    by_steps = str(m.config.stated("save_strategy") or "steps") == "steps"
    if by_steps and isinstance(every, int | float) and every >= 1:
        m.follow("checkpoint_interval_steps", int(every), "save_steps")
    for name in ("save_steps", "eval_steps"):
        value = m.value(name)
        if isinstance(value, float) and value == int(value):
            m.follow(name, int(value), name)


def _arguments(m: Meanings) -> Arguments:
    turned_on, strategy = fsdp_words(m)
    version = m.config.version
    two = not version or release(version) >= _FIRST_WITH_FSDP2
    half = m.config.stated("dtype")
    loaded_half = str(half).lower() in ("bfloat16", "bf16", "float16", "fp16", "half")
    newest = bool(version) and release(version) >= _FIRST_WITH_FSDP2 and half is None
    return Arguments(
        arithmetic=arithmetic(m),
        half_weights=loaded_half or newest or bool(m.value("base_weight_bits")),
        upcast=False,
        names=("bf16", "fp16", "dtype"),
        fsdp=FSDP,
        fsdp_on=turned_on,
        fsdp_strategy=strategy,
        fsdp_version=2 if two and not _first_generation(m) else 1,
        facts=stated_facts(m, {}, DEFAULTS),
    )


def arithmetic(m: Meanings) -> str:
    """ "bf16", "fp16" or "fp32"; accelerate's own setting where the arguments say nothing."""
    for word in ("bf16", "fp16"):
        if truth(m.field(word)):
            return word
    launched = part_of(m.config, "accelerate")
    outer = launched.value("precision") if launched is not None else None
    return outer if outer in ("bf16", "fp16", "fp8") and not m.is_stated("bf16", "fp16") else "fp32"


def fsdp_words(m: Meanings) -> tuple[tuple[str, ...], str]:
    """The fields that turn FSDP on, and the strategy that `fsdp` may hold in words."""
    words = _words(m.config.stated("fsdp"))
    if not words or words == ["false"]:
        return (), ""
    _give_words(m, words)
    return ("fsdp",), next((w for w in words if strategy_of(w)), "")


def _give_words(m: Meanings, words: list[str]) -> None:
    if "offload" in words:
        m.give("offload_params", True, "fsdp")
        m.give("offload_optimizer", 1.0, "fsdp")


def _words(value: Any) -> list[str]:
    if value is True:
        return ["true"]
    parts = value if isinstance(value, list | tuple) else str(value or "").split()
    return [str(part).strip("'\"").lower() for part in parts]


def _first_generation(m: Meanings) -> bool:
    """Whether the arguments use words that only FSDP1 had."""
    words = _words(m.config.stated("fsdp"))
    old = m.is_stated("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")
    return old or bool({*NUMBERED[2:]} & {*words})
