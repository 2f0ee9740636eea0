"""Values that DeepSpeed's own configuration classes refuse, whatever stands beside them.

Source: DeepSpeed 0.19.8, deepspeed/runtime/config.py, runtime/zero/config.py,
runtime/zero/offload_config.py and runtime/precision_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.setting import Setting

_ZERO = "zero_optimization."
_OFFLOAD = f"{_ZERO}offload_optimizer."

AT_LEAST: Mapping[str, float] = {
    "train_batch_size": 1,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "fp16.loss_scale": 0,
    f"{_ZERO}reduce_bucket_size": 1,
    f"{_ZERO}allgather_bucket_size": 0,
    f"{_ZERO}sub_group_size": 0,
    f"{_ZERO}zero_hpz_partition_size": 0,
    f"{_ZERO}stage3_prefetch_bucket_size": 0,
    f"{_ZERO}stage3_param_persistence_threshold": 0,
    f"{_ZERO}stage3_model_persistence_threshold": 0,
    f"{_ZERO}stage3_max_live_parameters": 0,
    f"{_ZERO}stage3_max_reuse_distance": 0,
    f"{_ZERO}stage": 0,
    f"{_OFFLOAD}ratio": 0,
    f"{_OFFLOAD}buffer_count": 0,
}
AT_MOST: Mapping[str, float] = {f"{_ZERO}stage": 3, f"{_OFFLOAD}ratio": 1}
WORDS: Mapping[str, tuple[str, ...]] = {
    "gradient_allreduce_op": ("mean", "sum"),
    "checkpoint.tag_validation": ("warn", "ignore", "fail"),
    f"{_OFFLOAD}device": ("none", "cpu", "nvme"),
    f"{_ZERO}offload_param.device": ("none", "cpu", "nvme"),
}


def refused_values(settings: Mapping[str, Setting]) -> dict[str, str]:
    """The settings whose value is refused, each with what would be taken."""
    found = {name: _reason(name, setting.value) for name, setting in settings.items()}
    return {name: reason for name, reason in found.items() if reason}


def _reason(name: str, value: Any) -> str:
    if name in WORDS and isinstance(value, str) and value.lower() not in ("auto", *WORDS[name]):
        return f"one of {', '.join(WORDS[name])}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if name in AT_LEAST and value < AT_LEAST[name]:
        return f"at least {AT_LEAST[name]:g}"
    if name in AT_MOST and value > AT_MOST[name]:
        return f"at most {AT_MOST[name]:g}"
    return ""
