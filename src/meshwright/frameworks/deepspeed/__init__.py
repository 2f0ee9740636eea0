"""DeepSpeed: its JSON, alone or under a trainer that fills in "auto"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_OWN = frozenset(
    (
        *("zero_optimization", "train_micro_batch_size_per_gpu"),
        *("zero_allow_untested_optimizer", "gradient_clipping", "steps_per_print"),
        *("wall_clock_breakdown", "activation_checkpointing", "flops_profiler"),
        *("tensor_parallel", "prescale_gradients", "communication_data_type", "data_types"),
        *("torch_autocast", "comms_logger", "aio", "zero_force_ds_cpu_optimizer"),
        *("expert_parallel", "sequence_parallel_size", "hybrid_engine"),
    )
)
_LIKELY = frozenset(("train_batch_size", "bf16", "fp16", "optimizer", "scheduler", "amp"))


def recognizes(parsed: Parsed) -> float:
    """Nearly sure of a JSON with DeepSpeed's top-level keys."""
    if parsed.source.syntax in ("shell", "overrides", "python", "toml"):
        return 0.0
    heads = {setting.spelled.split(".")[0] for setting in parsed.settings}
    if not heads:
        return 0.0
    own, likely = len(heads & _OWN), len(heads & _LIKELY)
    known = (own + likely) / len(heads)
    if "zero_optimization" in heads or (own and likely):
        return 0.6 + 0.38 * known
    if parsed.source.syntax == "json" and own + likely:
        return (0.3 + 0.3 * known) if own or likely > 1 else 0.3
    return 0.1 * min(own, 1)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the JSON means, with what remarks tell of the trainer around it."""
    from meshwright.frameworks.deepspeed.meaning import meaning
    from meshwright.frameworks.deepspeed.pipeline import remarked_pipeline
    from meshwright.frameworks.deepspeed.trainer import remarked_trainer
    from meshwright.frameworks.meanings import with_files

    config, values = with_files(config, values)
    found = remarked_pipeline(config) | meaning(config, values)
    return found | remarked_trainer(config, {**values, **found})


def express(job: Job, version: str) -> Expressed:
    """The JSON that states a job."""
    from meshwright.frameworks.deepspeed.writing import write

    return write(FRAMEWORKS[0], job, version)


FRAMEWORKS = (
    Framework(
        name="deepspeed",
        title="DeepSpeed",
        package="meshwright.frameworks.deepspeed",
        syntaxes=("json", "yaml"),
        file_name="ds_config.json",
        scopes=("deepspeed",),
        below=("torch",),
        leaves=(
            *("seq_len", "fused_loss", "loss_chunks", "compile", "layout"),
            *("first_stage_layers", "last_stage_layers", "embedding_in_split", "loss_in_split"),
            *("recompute", "recompute_modules", "recompute_layers", "recompute_uniform"),
            *("lora_rank", "lora_all_linear", "base_weight_bits", "flash_attention"),
        ),
        newest="0.19.8",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("ds", "zero"),
        stack="deepspeed",
    ),
)
