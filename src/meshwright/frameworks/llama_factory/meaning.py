"""What a LLaMA-Factory file means.

Source: LLaMA-Factory 0.9.5, hparams/, model/adapter.py (trained parameters are kept in fp32 unless
pure_bf16), model/patcher.py (the model is loaded in the arithmetic's 16 bits) and
model/model_utils/checkpointing.py (layers are recomputed unless told otherwise).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.deepspeed.trainer import DEFAULTS
from meshwright.frameworks.hf_trainer.meaning import FSDP
from meshwright.frameworks.hugging_face.adapters import give_adapters
from meshwright.frameworks.hugging_face.sharding import truth
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

DEFAULT_RANK = 8
OPTIMIZERS = {"use_muon": "muon", "use_badam": "sgd", "use_adam_mini": "sgd-momentum"}
_LORA = ("finetuning_type", "lora_rank", "lora_target", "quantization_bit")


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _give_tuning(m)
    _give_recompute(m)
    give_loss(m, "enable_liger_kernel", "use_liger_kernel")
    give_attention(m, "flash_attn")
    _give_optimizer(m)
    _give_data(m)
    give_run(m, _arguments(m))
    return m.given


def tuning(m: Meanings) -> str:
    """ "lora", "full", "freeze" or "oft"."""
    stated = m.config.stated("finetuning_type")
    return stated.lower() if isinstance(stated, str) else "lora"


def _give_tuning(m: Meanings) -> None:
    """Adapters, and the width of a quantized base; lora is what an unstated type means."""
    m.give("sft", str(m.config.stated("stage") or "sft") == "sft", "stage")
    m.give("tunes_weights", tuning(m) not in ("lora", "oft"), "finetuning_type")
    if tuning(m) not in ("lora", "oft"):
        return
    rank, bits = m.config.stated("lora_rank"), m.config.stated("quantization_bit")
    target = m.config.stated("lora_target")
    give_adapters(
        m,
        rank=rank if isinstance(rank, int) else DEFAULT_RANK,
        targets="all" if target is None else target,
        bits=bits if isinstance(bits, int) and bits > 0 else 0,
        names=_LORA,
    )


def _give_recompute(m: Meanings) -> None:
    off = truth(m.field("disable_gradient_checkpointing"))
    names = ("disable_gradient_checkpointing", "gradient_checkpointing")
    m.give("recompute", "none" if off else "full", *names)
    m.give("gradient_checkpointing", not off, *names)
    if truth(m.field("use_unsloth_gc")) and not off:
        m.give("offload_activations", 1.0, "use_unsloth_gc")


def _give_optimizer(m: Meanings) -> None:
    give_optimizer(m, "optim")
    for name, word in OPTIMIZERS.items():
        if truth(m.field(name)):
            m.give("optimizer", word, name)


def _give_data(m: Meanings) -> None:
    if truth(m.field("neat_packing")):
        m.give("packed", True, "neat_packing")
        m.give("document_mask", True, "neat_packing")
    every = m.value("save_steps")
    if isinstance(every, int | float) and every >= 1:
        m.follow("checkpoint_interval_steps", int(every), "save_steps")


def _arguments(m: Meanings) -> Arguments:
    from meshwright.frameworks.hf_trainer.meaning import arithmetic, fsdp_words

    pure = bool(truth(m.field("pure_bf16")))
    on, strategy = fsdp_words(m)
    return Arguments(
        arithmetic="bf16" if pure else arithmetic(m),
        half_weights=pure or arithmetic(m) != "fp32" or tuning(m) in ("lora", "oft"),
        upcast=not pure,
        names=("bf16", "fp16", "pure_bf16", "finetuning_type"),
        fsdp=FSDP,
        fsdp_on=on,
        fsdp_strategy=strategy,
        fsdp_version=2 if strategy in ("", "full_shard", "shard_grad_op") else 1,
        facts=stated_facts(m, {}, DEFAULTS),
    )
