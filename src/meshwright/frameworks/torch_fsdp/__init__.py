"""Programs that wrap a model in torch's FSDP or DDP themselves, and say so in their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks import telling
from meshwright.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value

_OWN = frozenset(
    (
        *("enable_fsdp", "sharding_strategy", "low_cpu_fsdp", "pure_bf16", "fsdp_cpu_offload"),
        *("hsdp", "distributed_strategy", "data_parallel_shard_degree"),
        *("data_parallel_replicate_degree", "distributed_parallelism", "limit_all_gathers"),
        *("device_train_microbatch_size", "accum_iter", "wrapping_strategy"),
        *("sharding_group_size", "replica_group_size", "data_parallel"),
        *("global_train_batch_size", "model_parallel_size", "batch_size_training"),
        *("use_orig_params", "backward_prefetch", "enable_ddp", "device_train_batch_size"),
        "fsdp_activation_checkpointing",
    )
)
_CALLS = pattern(r"(?:^|\.)(?:FSDP|FullyShardedDataParallel|fully_shard|DDP)\.")


def recognizes(parsed: Parsed) -> float:
    """The names of torch's own wrappers and of the programs around them; none is sure alone."""
    if any(_CALLS.search(setting.spelled) for setting in parsed.settings):
        return 0.7
    names = {part for name in telling.names(parsed) for part in name.split(".")}
    return min(0.28 * len(names & _OWN), 0.85)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the settings mean."""
    from meshwright.frameworks.meanings import with_files
    from meshwright.frameworks.torch_fsdp.meaning import meaning

    return meaning(*with_files(config, values))


FRAMEWORKS = (
    Framework(
        name="torch-fsdp",
        title="PyTorch FSDP or DDP",
        package="meshwright.frameworks.torch_fsdp",
        syntaxes=("shell", "yaml", "python", "json", "overrides", "toml"),
        file_name="train.sh",
        scopes=("torch",),
        companions=("accelerate", "deepspeed"),
        newest="2.13",
        recognizes=recognizes,
        interpret=interpret,
        aliases=("fsdp", "ddp", "torchrun", "pytorch", "torch"),
        stack="fsdp",
    ),
)
