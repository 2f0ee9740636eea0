"""What arguments of `swift sft` mean.

Source: swift/arguments/sft_args.py, base_args and swift/trainers/arguments.py at 4.5.2: the model
is loaded in its own 16 bits, layers are recomputed unless told otherwise, `deepspeed` may name one
of the shipped configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.deepspeed.trainer import DEFAULTS
from meshwright.frameworks.hf_trainer.meaning import FSDP, fsdp_words
from meshwright.frameworks.hugging_face.adapters import give_adapters
from meshwright.frameworks.hugging_face.sharding import truth
from meshwright.frameworks.hugging_face.trainer import (
    Arguments,
    give_attention,
    give_loss,
    give_optimizer,
    give_recompute,
    give_run,
    stated_facts,
)
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.ms_swift.launched import launched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

DEFAULT_RANK = 8
_LORA = ("tuner_type", "lora_rank", "target_modules", "quant_bits")
_HALVES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _tuning(m)
    give_recompute(m, "gradient_checkpointing", default=True)
    give_loss(m, "use_liger_kernel")
    give_attention(m, "attn_impl")
    give_optimizer(m, "optim")
    _data(m)
    give_run(m, _arguments(m))
    launched(m)
    return m.given


def tuning(m: Meanings) -> str:
    """ "lora", "full" or another way of tuning; lora is what an unstated one means."""
    stated = m.config.stated("tuner_type")
    return stated.lower() if isinstance(stated, str) else "lora"


def arithmetic(m: Meanings) -> str:
    """ "bf16", "fp16" or "fp32"; the hub's weights are bf16."""
    for name in ("bf16", "fp16"):
        if truth(m.config.stated(name)):
            return name
    return _HALVES.get(str(m.config.stated("torch_dtype")), "bf16")


def _tuning(m: Meanings) -> None:
    if "lora" not in tuning(m):
        return
    rank, bits = m.config.stated("lora_rank"), m.config.stated("quant_bits")
    target = m.config.stated("target_modules")
    give_adapters(
        m,
        rank=rank if isinstance(rank, int) else DEFAULT_RANK,
        targets="all" if target is None or "all-linear" in target else target,
        bits=int(bits) if str(bits).isdecimal() else 0,
        names=_LORA,
    )


def _data(m: Meanings) -> None:
    """Packing, and steps between checkpoints."""
    if truth(m.config.stated("packing")):
        m.give("packed", True, "packing")
        m.give("document_mask", True, "packing")
    every = m.value("save_steps")
    if isinstance(every, int | float) and every >= 1:
        m.follow("checkpoint_interval_steps", int(every), "save_steps")
    m.follow("masked_loss", not any(p.split()[-1:] == ["pt"] for p in m.config.programs))


def _arguments(m: Meanings) -> Arguments:
    on, strategy = fsdp_words(m)
    return Arguments(
        arithmetic=arithmetic(m),
        half_weights=arithmetic(m) != "fp32",
        upcast=False,
        names=("bf16", "fp16", "torch_dtype", "tuner_type"),
        fsdp=FSDP,
        fsdp_on=on,
        fsdp_strategy=strategy,
        fsdp_version=2 if strategy in ("", "full_shard", "shard_grad_op") else 1,
        facts=stated_facts(m, {}, DEFAULTS),
    )
