"""Where in the sources the demands of this package were seen, and readings that several share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_LM = "Megatron-LM megatron"
_BRIDGE = "Megatron-Bridge src/megatron/bridge/training/config.py"

CONFIG = f"{_LM}/core/transformer/transformer_config.py TransformerConfig.__post_init__ (0.19.2)"
PARALLEL_CONFIG = f"{_LM}/core/model_parallel_config.py ModelParallelConfig.__post_init__ (0.19.2)"
ARGUMENTS = f"{_LM}/training/arguments.py validate_args (0.19.2)"
DETERMINISM = f"{_LM}/training/determinism.py (0.19.2)"
GROUPS = f"{_LM}/core/parallel_state.py initialize_model_parallel (0.19.2)"
SCHEDULES = f"{_LM}/core/pipeline_parallel/schedules.py"
DDP = f"{_LM}/core/distributed/distributed_data_parallel.py DistributedDataParallel (0.19.2)"
DDP_CONFIG = (
    f"{_LM}/core/distributed/distributed_data_parallel_config.py "
    "DistributedDataParallelConfig (0.19.2)"
)
BRIDGE = f"{_BRIDGE} ConfigContainer.validate (0.6.2)"
BRIDGE_CHECKPOINT = f"{_BRIDGE} CheckpointConfig.finalize (0.6.2)"
BRIDGE_TRAINING = f"{_BRIDGE} TrainingConfig.finalize (0.6.2)"
MINDSPEED = "MindSpeed mindspeed/features_manager (028de58c)"


def integer(value: Any) -> int | None:
    """A whole number from a value that may be text, as environment variables are."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def degree(k: Knobs, name: str) -> int:
    """A degree of the mesh; 1 where nothing states it."""
    return integer(k.get(name, 1)) or 1


def is_moe(k: Knobs) -> bool:
    """Whether the model has experts."""
    return bool(k.get("num_experts"))


def is_meant(k: Knobs, name: str) -> bool:
    """Whether a variable has the value it seems to have: stated, or left out of a whole command.

    A configuration that does not state the model's shape may be an excerpt, or add to a recipe.
    """
    return k.is_stated(name) or k.is_stated("hidden_size")


def has_expandable_segments(k: Knobs) -> bool:
    """Whether PyTorch's allocator grows its segments."""
    stated = k.get("expandable_segments")
    if stated is not None:
        return bool(stated)
    settings = k.get("pytorch_cuda_alloc_conf") or k.get("pytorch_alloc_conf") or ""
    return "expandable_segments:true" in str(settings).lower().replace(" ", "")
