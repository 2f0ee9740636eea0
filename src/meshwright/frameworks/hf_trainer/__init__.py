"""transformers' Trainer and TRL's: command lines, YAML, JSON and keyword arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_STRONG = frozenset(
    (
        *("per_device_train_batch_size", "per_device_eval_batch_size"),
        *("gradient_checkpointing", "lr_scheduler_type", "num_train_epochs"),
        *("ddp_find_unused_parameters", "save_total_limit", "evaluation_strategy"),
        *("eval_strategy", "save_strategy", "max_grad_norm", "optim", "fsdp"),
        *("use_liger_kernel", "dataloader_num_workers", "logging_steps", "report_to"),
        *("deepspeed", "torch_compile", "full_determinism"),
        *("fsdp_transformer_layer_cls_to_wrap", "warmup_ratio", "max_completion_length"),
        *("num_generations", "load_best_model_at_end", "ddp_timeout"),
    )
)
_PROGRAMS = re.compile(r"run_clm|run_mlm|sft\.py|grpo|dpo\.py|trl|train(_mem)?\.py|finetune")


def recognizes(parsed: Parsed) -> float:
    """Sure of the trainer's own arguments, unless another framework's stand beside them."""
    names = {s.spelled.lstrip("-").replace("-", "_").split(".")[-1] for s in parsed.settings}
    tops = {s.spelled.lstrip("-").replace("-", "_").split(".")[0] for s in parsed.settings}
    strong = len((names | tops) & _STRONG)
    if not strong:
        return 0.0
    called = any(_PROGRAMS.search(word) for word in parsed.programs)
    sure = min(0.35 + 0.1 * strong + 0.1 * called, 0.85)
    return sure + 0.05 if "per_device_train_batch_size" in names else sure


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the arguments mean, together with a DeepSpeed or accelerate file beside them."""
    from meshwright.frameworks.hf_trainer.meaning import meaning

    return meaning(config, values)


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job."""
    from meshwright.frameworks.hf_trainer.writing import write

    return write(FRAMEWORKS[0], job, version)


FRAMEWORKS = (
    Framework(
        name="hf-trainer",
        title="Hugging Face Trainer",
        package="meshwright.frameworks.hf_trainer",
        syntaxes=("yaml", "shell", "json", "python", "overrides"),
        file_name="training_args.yaml",
        scopes=("transformers",),
        below=("accelerate", "torch"),
        companions=("accelerate", "deepspeed"),
        newest="5.24",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("transformers", "trainer", "trl", "huggingface", "hf"),
        stack="default",
    ),
)
