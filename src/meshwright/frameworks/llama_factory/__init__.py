"""LLaMA-Factory: its YAML on top of transformers' trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Expressed, Framework
from meshwright.frameworks.hugging_face import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_OWN = frozenset(
    (
        *("finetuning_type", "cutoff_len", "quantization_bit", "lora_target"),
        *("disable_shuffling", "flash_attn", "template", "dataset_dir", "plot_loss"),
        *("enable_liger_kernel", "pure_bf16", "disable_gradient_checkpointing"),
        *("freeze_trainable_layers", "use_unsloth_gc", "val_size", "use_galore", "use_badam"),
        *("upcast_layernorm", "quantization_method", "rope_scaling", "mask_history"),
        *("train_on_prompt", "neat_packing", "use_unsloth", "shift_attn", "pref_beta"),
        *("overwrite_cache", "preprocessing_num_workers", "max_samples", "additional_target"),
    )
)
_SURE = frozenset(("finetuning_type", "cutoff_len", "quantization_bit", "plot_loss"))


def recognizes(parsed: Parsed) -> float:
    """Sure where its own names stand; the rest of its file is the trainer's."""
    if any("llamafactory" in word or "llama_factory" in word for word in parsed.programs):
        return 0.97
    names = telling.heads(parsed)
    own, sure = len(names & _OWN), len(names & _SURE)
    if sure and ("model_name_or_path" in names or "stage" in names or sure > 1):
        return 0.96
    return min(0.25 * sure + 0.12 * own, 0.9)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the file means, together with the DeepSpeed JSON that it names."""
    from meshwright.frameworks.llama_factory.meaning import meaning
    from meshwright.frameworks.meanings import with_files

    return meaning(*with_files(config, values))


def express(job: Job, version: str) -> Expressed:
    """The file that states a job."""
    from meshwright.frameworks.llama_factory.writing import write

    return write(FRAMEWORKS[0], job, version)


FRAMEWORKS = (
    Framework(
        name="llama-factory",
        title="LLaMA-Factory",
        package="meshwright.frameworks.llama_factory",
        syntaxes=("yaml", "shell", "json", "overrides"),
        file_name="train.yaml",
        scopes=("llama-factory",),
        below=("transformers", "accelerate", "torch"),
        companions=("accelerate", "deepspeed"),
        newest="0.9.5",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        shipped=shipped,
        aliases=("llamafactory", "llama-efficient-tuning"),
        stack="default",
    ),
)
