"""transformers' Trainer and TRL's: command lines, YAML, JSON and keyword arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
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
        *("per_device_train_batch_size", "per_device_eval_batch_size", "eval_strategy"),
        *("evaluation_strategy", "save_strategy", "save_total_limit", "use_liger_kernel"),
        *("ddp_find_unused_parameters", "load_best_model_at_end", "full_determinism", "fsdp"),
        *("max_completion_length", "num_generations", "fsdp_transformer_layer_cls_to_wrap"),
        *("lr_scheduler_type", "dataloader_num_workers", "tf32", "overwrite_output_dir"),
    )
)
_SHARED = frozenset(
    (
        *("gradient_checkpointing", "num_train_epochs", "max_grad_norm", "optim", "report_to"),
        *("logging_steps", "deepspeed", "torch_compile", "warmup_ratio", "ddp_timeout", "bf16"),
        *("gradient_accumulation_steps", "learning_rate", "save_steps", "weight_decay"),
    )
)
LAST_OF_FOUR = "4.57"
_PROGRAMS = pattern(r"run_clm|run_mlm|sft\.py|grpo|dpo\.py|trl|train(_mem)?\.py|finetune")


def recognizes(parsed: Parsed) -> float:
    """Sure of the trainer's own arguments, unless another framework's stand beside them."""
    names = telling.ends(parsed)
    own, shared = len(names & _OWN), len(names & _SHARED)
    if not own:
        return min(0.04 * shared, 0.25)
    called = any(_PROGRAMS.search(word) for word in parsed.programs)
    sure = min(0.3 + 0.1 * own + 0.05 * min(shared, 4) + 0.1 * called, 0.85)
    return sure + 0.05 if "per_device_train_batch_size" in names else sure


def version_of(parsed: Parsed) -> str:
    """The last 4.x for arguments that 5.0 dropped, "" where nothing tells."""
    table = FRAMEWORKS[0].table
    known = [f for s in parsed.settings if (f := table.find(s.spelled)) is not None]
    return LAST_OF_FOUR if any(f.until == "4" for f in known) else ""


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the arguments mean, together with a DeepSpeed or accelerate file beside them."""
    from meshwright.frameworks.hf_trainer.meaning import meaning
    from meshwright.frameworks.meanings import with_files

    return meaning(*with_files(config, values))


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
        below=("accelerate", "torch", "trl"),
        companions=("accelerate", "deepspeed"),
        newest="5.24",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        shipped=shipped,
        version_of=version_of,
        aliases=("transformers", "trainer", "trl", "huggingface", "hf"),
        stack="default",
    ),
)
