"""FSDP's wrapping and loading as accelerate and transformers set it up.

Section 4.2 of the guidelines. The layer classes are those of transformers 5.24,
src/transformers/models/*/modeling_*.py (`_no_split_modules`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_PLUGIN = "accelerate src/accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin"

# Family: words of model names that mean it, without dashes and dots; its layer classes.
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bert": (("bertbase", "bertlarge"), ("BertLayer",)),
    "bloom": (("bloom",), ("BloomBlock",)),
    "codegen": (("codegen",), ("CodeGenBlock",)),
    "cohere": (("commandr", "c4aicommand"), ("CohereDecoderLayer",)),
    "dbrx": (("dbrx",), ("DbrxBlock",)),
    "deepseek_v2": (("deepseekv2", "deepseekcoderv2"), ("DeepseekV2DecoderLayer",)),
    "deepseek_v3": (("deepseekv3", "deepseekr1"), ("DeepseekV3DecoderLayer",)),
    "distilbert": (("distilbert",), ("TransformerBlock",)),
    "falcon": (("falcon7b", "falcon40b", "falcon180b"), ("FalconDecoderLayer",)),
    "gemma": (("gemma2b", "gemma7b"), ("GemmaDecoderLayer",)),
    "gemma2": (("gemma22b", "gemma29b", "gemma227b"), ("Gemma2DecoderLayer",)),
    "gemma3": (("gemma3",), ("Gemma3DecoderLayer",)),
    "glm4": (("glm49b", "glm4032b"), ("Glm4DecoderLayer", "GlmDecoderLayer")),
    "glm4_moe": (("glm45", "glm46"), ("Glm4MoeDecoderLayer",)),
    "gpt2": (("gpt2",), ("GPT2Block",)),
    "gpt_bigcode": (("starcoderbase", "santacoder"), ("GPTBigCodeBlock",)),
    "gpt_neo": (("gptneo125", "gptneo13", "gptneo27"), ("GPTNeoBlock",)),
    "gpt_neox": (("gptneox", "pythia", "dollyv2"), ("GPTNeoXLayer",)),
    "gpt_oss": (("gptoss",), ("GptOssDecoderLayer",)),
    "gptj": (("gptj",), ("GPTJBlock",)),
    "granite": (("granite3",), ("GraniteDecoderLayer",)),
    "llama": (
        ("llama", "llama2", "llama3", "vicuna", "tinyllama", "distillllama"),
        ("LlamaDecoderLayer",),
    ),
    "llama4": (("llama4",), ("Llama4TextDecoderLayer", "Llama4VisionEncoderLayer")),
    "mistral": (("mistral7b", "mistralnemo", "mistralsmall"), ("MistralDecoderLayer",)),
    "mixtral": (("mixtral",), ("MixtralDecoderLayer",)),
    "mpt": (("mpt7b", "mpt30b"), ("MptBlock", "MPTBlock")),
    "olmo": (("olmo1b", "olmo7b"), ("OlmoDecoderLayer",)),
    "olmo2": (("olmo2",), ("Olmo2DecoderLayer",)),
    "opt": (
        ("opt125m", "opt350m", "opt13b", "opt27b", "opt67b", "opt30b", "opt66b"),
        ("OPTDecoderLayer",),
    ),
    "phi": (("phi1", "phi2"), ("PhiDecoderLayer",)),
    "phi3": (("phi3", "phi4"), ("Phi3DecoderLayer",)),
    "qwen2": (("qwen2", "qwen15", "qwq", "distillqwen"), ("Qwen2DecoderLayer",)),
    "qwen2_5_vl": (
        ("qwen25vl",),
        ("Qwen2_5_VLDecoderLayer", "Qwen2_5_VLVisionBlock"),
    ),
    "qwen2_moe": (("qwen15moe", "qwen257ba14b"), ("Qwen2MoeDecoderLayer",)),
    "qwen2_vl": (("qwen2vl",), ("Qwen2VLDecoderLayer", "Qwen2VLVisionBlock")),
    "qwen3": (
        ("qwen306b", "qwen317b", "qwen34b", "qwen38b", "qwen314b", "qwen332b"),
        ("Qwen3DecoderLayer",),
    ),
    "qwen3_moe": (("qwen330ba3b", "qwen3235ba22b", "qwen3coder"), ("Qwen3MoeDecoderLayer",)),
    "qwen3_next": (("qwen3next",), ("Qwen3NextDecoderLayer",)),
    "roberta": (("robertabase", "robertalarge"), ("RobertaLayer",)),
    "smollm3": (("smollm3",), ("SmolLM3DecoderLayer",)),
    "starcoder2": (("starcoder2",), ("Starcoder2DecoderLayer",)),
    "t5": (("t5small", "t5base", "t5large", "t53b", "t511b", "t5xl"), ("T5Block",)),
    "whisper": (("whisper",), ("WhisperEncoderLayer", "WhisperDecoderLayer")),
}
_ALL_CLASSES = frozenset(name for _, classes in FAMILIES.values() for name in classes)


def family_of(name: str) -> str:
    """The family that a model's name means, by its longest known word; "" for none."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = [
        (len(w), family) for family, (words, _) in FAMILIES.items() for w in words if w in plain
    ]
    return max(found)[1] if found else ""


def _family(k: Knobs) -> str:
    """The family of the model that is trained, by its name or its own config.json."""
    for variable in ("model_name", "model_remark"):
        if family := family_of(str(k.get(variable) or "")):
            return family
    known = str(k.get("model_family") or "")
    return known if known in FAMILIES else ""


def _strangers(k: Knobs) -> list[str]:
    """Classes to wrap that belong to another family than the model."""
    family = _family(k)
    stated = k.fsdp_wrap_classes
    names = stated if isinstance(stated, list | tuple) else str(stated).split(",")
    own = FAMILIES[family][1] if family else _ALL_CLASSES
    plain = [str(name).strip() for name in names]
    return [name for name in plain if name in _ALL_CLASSES and name not in own]


@demand(
    "DAT260",
    "Wrapped layer class of another model",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate; transformers",
    source=f"{_PLUGIN}.set_auto_wrap_policy (1.15.0); accelerate issue 1943",
    consequence="ValueError: Could not find the transformer layer class in the model.",
    confidence="read",
)
def wrapped_class_is_the_models(k: Knobs) -> bool:
    """FSDP wraps every module of a class, which must be a module class of the model.

    A configuration copied from another model names a class that this one does not have. Leave the
    key out, and the list that the model brings along is used.

    Fails: knobs(framework="accelerate 1.15", fsdp_wrap_classes="GPT2Block",
        model_name="bert-base-cased")
    Fails: knobs(framework="transformers 5.23", fsdp_wrap_classes=["LlamaDecoderLayer"],
        model_name="Qwen/Qwen2.5-7B")
    Passes: knobs(framework="accelerate 1.15", fsdp_wrap_classes="BertLayer",
        model_name="bert-base-cased")
    Passes: knobs(framework="accelerate 1.15", fsdp_wrap_classes="MyDecoderLayer",
        model_name="Qwen/Qwen2.5-7B")
    """
    return bool(_strangers(k))


@wrapped_class_is_the_models.message
def _(k: Knobs) -> str:
    family = _family(k)
    name = k.get("model_name") or k.get("model_remark") or family
    return (
        f"the layer class to wrap is {', '.join(_strangers(k))}, but the module class of {name} is "
        f"{' or '.join(FAMILIES[family][1])}"
    )


@wrapped_class_is_the_models.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"fsdp_wrap_classes": ",".join(FAMILIES[_family(k)][1][:1])}


@demand(
    "DAT267",
    "Weights loaded on one rank and not sent to the others",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate; transformers",
    source="accelerate src/accelerate/utils/launch.py prepare_multi_gpu_env; " + _PLUGIN,
    consequence="ValueError: When using `--fsdp_cpu_ram_efficient_loading` set "
    "`--fsdp_sync_module_states` to `True`",
    confidence="read",
    says="fsdp_cpu_ram_efficient_loading = {fsdp_cpu_ram_efficient_loading} with "
    "fsdp_sync_module_states = {fsdp_sync_module_states}",
    suggest={"fsdp_sync_module_states": True},
    safe=True,
)
def loaded_weights_are_sent(k: Knobs) -> bool:
    """With efficient loading only the first rank reads the weights; the others hold empty tensors.

    fsdp_sync_module_states broadcasts them when the model is wrapped.

    Fails: knobs(framework="accelerate 1.15", use_fsdp=True, fsdp_cpu_ram_efficient_loading=True,
        fsdp_sync_module_states=False)
    Passes: knobs(framework="accelerate 1.15", use_fsdp=True, fsdp_cpu_ram_efficient_loading=True,
        fsdp_sync_module_states=True)
    """
    if not k.get("use_fsdp", False) or not k.is_stated("fsdp_cpu_ram_efficient_loading"):
        return False
    if not k.fsdp_cpu_ram_efficient_loading:
        return False
    return k.get("fsdp_sync_module_states", True) is False
