"""accelerate: the YAML of `accelerate config` and the flags of `accelerate launch`."""

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
        *("compute_environment", "distributed_type", "num_processes", "num_machines"),
        *("machine_rank", "main_training_function", "use_cpu", "rdzv_backend", "same_network"),
        *("downcast_bf16", "main_process_port", "main_process_ip", "megatron_lm_config"),
        *("parallelism_config", "use_fsdp", "use_deepspeed", "multi_gpu", "fsdp_version"),
        *("zero_stage", "mixed_precision", "fsdp_sharding_strategy", "fsdp_auto_wrap_policy"),
        *("deepspeed_config_file", "gpu_ids", "zero3_init_flag", "dynamo_backend"),
        *("use_megatron_lm", "use_parallelism_config"),
    )
)


def recognizes(parsed: Parsed) -> float:
    """Sure of its YAML; of a launch line only as far as no program's own arguments follow."""
    tops = telling.heads(parsed)
    own = len(tops & _OWN)
    if parsed.source.syntax in ("yaml", "json"):
        if "compute_environment" in tops or {"distributed_type", "num_processes"} <= tops:
            return 0.95
        if "distributed_type" in tops:
            return 0.85
        return min(0.15 * own, 0.6) if own / max(len(tops), 1) > 1 / 3 else 0.1 * min(own, 1)
    launched = any("accelerate" in word for word in parsed.programs)
    return 0.5 * launched + 0.2 * (own / max(len(tops), 1)) if launched or own > 1 else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the launch means, with what remarks tell of the program."""
    from meshwright.frameworks.accelerate.meaning import meaning
    from meshwright.frameworks.meanings import with_files

    return meaning(*with_files(config, values))


def express(job: Job, version: str) -> Expressed:
    """The YAML that states a job."""
    from meshwright.frameworks.accelerate.writing import write

    return write(FRAMEWORKS[0], job, version)


FRAMEWORKS = (
    Framework(
        name="accelerate",
        title="accelerate",
        package="meshwright.frameworks.accelerate",
        syntaxes=("yaml", "json", "shell"),
        file_name="accelerate.yaml",
        scopes=("accelerate",),
        below=("torch",),
        companions=("deepspeed",),
        leaves=(
            *("seq_len", "micro_batch_size", "global_batch_size", "fused_loss", "loss_chunks"),
            *("recompute", "recompute_modules", "recompute_layers", "recompute_uniform"),
            *("lora_rank", "lora_all_linear", "base_weight_bits", "flash_attention"),
            *("optimizer", "optimizer_state_bytes"),
        ),
        newest="1.15",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        shipped=shipped,
        aliases=("hf-accelerate",),
        stack="default",
    ),
)
