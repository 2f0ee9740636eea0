"""axolotl: its YAML on top of transformers' trainer and accelerate's mesh."""

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
        *("base_model", "sequence_len", "sample_packing", "pad_to_sequence_len"),
        *("val_set_size", "dataset_prepared_path", "adapter", "lora_target_linear"),
        *("micro_batch_size", "lora_r", "dp_shard_size", "dp_replicate_size"),
        *("evals_per_epoch", "saves_per_epoch", "strict", "train_on_inputs", "special_tokens"),
        *("wandb_watch", "plugins", "tokenizer_type", "rl", "context_parallel_size"),
        *("tensor_parallel_size", "num_epochs", "load_in_4bit", "eval_sample_packing"),
        *("chat_template", "liger_rms_norm", "lora_mlp_kernel", "gptq"),
    )
)


def recognizes(parsed: Parsed) -> float:
    """Sure of base_model beside any of its other names."""
    called = any("axolotl" in word for word in parsed.programs)
    names = telling.heads(parsed)
    own = len(names & _OWN)
    if "base_model" in names and own > 1:
        return 0.97
    if parsed.source.syntax == "yaml" and "sequence_len" in names and own > 1:
        return 0.9
    return 0.9 if called else min(0.08 * own, 0.5)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the file means, together with the DeepSpeed JSON that it names."""
    from meshwright.frameworks.axolotl.meaning import meaning
    from meshwright.frameworks.meanings import with_files

    return meaning(*with_files(config, values))


def express(job: Job, version: str) -> Expressed:
    """The file that states a job."""
    from meshwright.frameworks.axolotl.writing import write

    return write(FRAMEWORKS[0], job, version)


FRAMEWORKS = (
    Framework(
        name="axolotl",
        title="axolotl",
        package="meshwright.frameworks.axolotl",
        syntaxes=("yaml", "shell", "json", "overrides"),
        file_name="axolotl.yaml",
        scopes=("axolotl",),
        below=("transformers", "accelerate", "torch"),
        companions=("accelerate", "deepspeed"),
        newest="0.19",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        shipped=shipped,
        stack="default",
    ),
)
