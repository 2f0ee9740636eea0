"""What quantized weights, recomputation under DDP and flash attention need in the trainers.

Sections 5.2 and 6.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel, runs_deepspeed, runs_fsdp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_FLOATS = ("bfloat16", "float16", "float32", "bf16", "fp16", "fp32")
_AMPERE = 80
_SETS_STORAGE = ("axolotl", "llama-factory")  # which pack in the type that is trained in


@demand(
    "MOD230",
    "Quantized weights that FSDP cannot flatten",
    severity=Severity.ERROR,
    section="5.2",
    scope="transformers; accelerate",
    source="bitsandbytes docs/source/fsdp_qlora.md (0.43); PyTorch torch/distributed/fsdp/"
    "_flat_param.py _validate_tensors_to_flatten (2.13)",
    consequence="ValueError: Cannot flatten integer dtype tensors; or: Must flatten tensors with "
    "uniform dtype",
    confidence="read",
)
def quantized_weights_are_packed_in_floats(k: Knobs) -> bool:
    """FSDP flattens the parameters of a layer into one tensor, of one floating-point type.

    bitsandbytes packs 4-bit weights in bytes; `bnb_4bit_quant_storage` packs them in the type of
    the other parameters. 8-bit weights have no such option; axolotl, whose own examples shard them,
    is not judged on it. FSDP2 does not flatten.

    Fails: knobs(framework="transformers 5.23", use_fsdp=True, fsdp_version=1, quantized_bits=4)
    Fails: knobs(framework="transformers 5.23", use_fsdp=True, fsdp_version=1, quantized_bits=8)
    Passes: knobs(framework="transformers 5.23", use_fsdp=True, fsdp_version=1, quantized_bits=4,
        quant_storage="bfloat16")
    """
    if not runs_fsdp(k) or (k.get("fsdp_version") or 1) != 1 or k.get("zero_stage", 3) < 1:
        return False
    if k.quantized_bits != 4:
        return k.framework != "axolotl"
    return k.framework not in _SETS_STORAGE and k.get("quant_storage", "uint8") not in _FLOATS


@quantized_weights_are_packed_in_floats.message
def _(k: Knobs) -> str:
    packed = "" if k.quantized_bits != 4 else f" packed in {k.get('quant_storage', 'uint8')}"
    return (
        f"{k.quantized_bits}-bit weights{packed} are integers, which FSDP cannot flatten with "
        "other parameters: the storage dtype must be theirs"
    )


@quantized_weights_are_packed_in_floats.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"quant_storage": "bfloat16"} if k.quantized_bits == 4 else {"quantized_bits": None}


@demand(
    "MOD231",
    "Quantized weights trained without adapters",
    severity=Severity.ERROR,
    section="5.2",
    scope="transformers; accelerate",
    source="transformers src/transformers/trainer.py Trainer.__init__ (5.23.0); LLaMA-Factory "
    "src/llamafactory/hparams/parser.py _verify_model_args (0.9.5)",
    consequence="ValueError: You cannot perform fine-tuning on purely quantized models; or: "
    "Quantization is only compatible with the LoRA or OFT method.",
    confidence="read",
    says="weights of {quantized_bits} bits are to be trained themselves: quantization goes with "
    "LoRA, not with full fine-tuning",
)
def quantized_weights_stay_frozen(k: Knobs) -> bool:
    """Integers have no gradients. Adapters beside them train, or the weights are not quantized.

    Asked where the configuration says what trains.

    Fails: knobs(framework="transformers 5.23", quantized_bits=4, tunes_weights=True)
    Passes: knobs(framework="transformers 5.23", quantized_bits=4, tunes_weights=False)
    """
    return bool(k.quantized_bits and k.tunes_weights)


@demand(
    "MOD232",
    "8-bit weights under ZeRO-3 or FSDP (LLaMA-Factory)",
    severity=Severity.ERROR,
    section="5.2",
    scope="llama-factory",
    source="LLaMA-Factory src/llamafactory/model/model_utils/quantization.py (0.9.5)",
    consequence="ValueError: Only 4-bit quantized model can use fsdp+qlora or auto device map.",
    confidence="read",
    says="{quantized_bits}-bit quantization with ZeRO stage {zero_stage} sharding: only 4-bit "
    "weights can be sharded",
    suggest={"quantized_bits": 4},
)
def sharded_weights_have_four_bits(k: Knobs) -> bool:
    """bitsandbytes' 8-bit weights carry states of their own, which no sharding follows.

    Fails: llama-factory 0.9:
        stage: sft
        quantization_bit: 8
        deepspeed: ds_z3_config.json
    Passes: llama-factory 0.9:
        stage: sft
        quantization_bit: 4
        deepspeed: ds_z3_config.json
    """
    sharded = runs_fsdp(k) or (runs_deepspeed(k) and k.get("zero_stage", 0) == 3)
    return bool(sharded) and k.quantized_bits != 4


@demand(
    "CMP230",
    "Reentrant checkpointing under DDP that looks for unused parameters",
    severity=Severity.ERROR,
    section="6.2",
    scope="transformers; accelerate",
    source="PyTorch torch/csrc/distributed/c10d/reducer.cpp mark_variable_ready (2.13); "
    "transformers src/transformers/modeling_utils.py gradient_checkpointing_enable (4.57, 5.23)",
    consequence="RuntimeError: Expected to mark a variable ready only once; a parameter has been "
    "marked as ready twice",
    confidence="read",
    says="gradient_checkpointing, reentrant, with ddp_find_unused_parameters = true",
    suggest={"ddp_find_unused_parameters": False},
)
def unused_parameters_are_sought_once(k: Knobs) -> bool:
    """The reentrant checkpoint runs a backward pass inside the backward pass.

    DDP that looks for unused parameters then sees each one ready twice. The other variant,
    `use_reentrant: false`, is the default from transformers 5 on.

    Fails: knobs(framework="transformers 4.40", gradient_checkpointing=True, num_gpus=2,
        ddp_find_unused_parameters=True)
    Passes: knobs(framework="transformers 4.40", gradient_checkpointing=True, num_gpus=2,
        ddp_find_unused_parameters=True, reentrant_checkpointing=False)
    """
    if not (k.gradient_checkpointing and k.ddp_find_unused_parameters):
        return False
    if runs_deepspeed(k) or runs_fsdp(k) or data_parallel(k) < 2:
        return False
    return bool(k.get("reentrant_checkpointing", not _is_five(k)))


def _is_five(k: Knobs) -> bool:
    """Whether the version is stated and one whose default is not reentrant."""
    return k.version.split(".")[0].isdigit() and int(k.version.split(".")[0]) >= 5


@demand(
    "CMP231",
    "Flash attention on a GPU before Ampere",
    severity=Severity.ERROR,
    section="6.2",
    scope="transformers; accelerate; megatron-lm; verl; torch",
    source="flash-attention csrc/flash_attn/flash_api.cpp (2.8)",
    consequence="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    confidence="read",
)
def flash_attention_has_its_hardware(k: Knobs) -> bool:
    """flash-attention 2 and 3 are compiled for compute capability 8.0 and newer.

    V100, T4 and RTX 20 run torch's SDPA (`sdpa`), which picks another kernel.

    Fails: knobs(framework="transformers 5.23", attn_implementation="flash_attention_2", gpu_cc=70)
    Passes: knobs(framework="transformers 5.23", attn_implementation="sdpa", gpu_cc=70)
    Passes: knobs(framework="transformers 5.23", attn_implementation="flash_attention_2", gpu_cc=80)
    """
    return _asks_for_flash(k) and k.gpu_cc < _AMPERE


def _asks_for_flash(k: Knobs) -> bool:
    word = str(k.get("attn_implementation") or "").lower()
    if word and k.is_stated("attn_implementation"):
        return word.startswith(("flash", "fa2", "fa3")) or "flash-attn" in word
    asked = ("use_flash_attn", "flash_attention_stated")
    return any(k.is_stated(name) and k.get(name) is True for name in asked)


@flash_attention_has_its_hardware.message
def _(k: Knobs) -> str:
    return f"flash attention on a GPU of compute capability {k.gpu_cc / 10:g}, before Ampere's 8.0"


@flash_attention_has_its_hardware.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"attn_implementation": "sdpa"} if k.is_stated("attn_implementation") else {}
