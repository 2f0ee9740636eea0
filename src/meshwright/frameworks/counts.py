"""Stated numbers of things that are less than one, where no framework gives that a meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.frameworks.complaints import complaint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting

_AT_LEAST_ONE = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "seq_len"),
    *("global_batch_size", "gradient_accumulation_steps", "num_layers_per_virtual_stage"),
    *("num_gpus", "num_nodes", "gpus_per_node", "micro_batch_size", "mini_batch_size"),
)
_AT_LEAST_NONE = (  # of these, 0 means that the model has none or that another size counts
    *("num_key_value_heads", "num_query_groups", "head_dim", "intermediate_size", "num_experts"),
    *("num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace", "q_lora_rank"),
    *("kv_lora_rank", "max_position_embeddings", "first_stage_layers", "last_stage_layers"),
)
_PER_GPU = "batch_size_per_gpu"  # however many models of reinforcement learning have one


def uncountable(reading: Reading) -> Iterator[Finding]:
    """CFG109: a stated number of layers, heads, sequences or GPUs that is none."""
    told: set[int] = set()
    for setting, least in _counted(reading):
        if _is_less(setting.value, least) and id(setting) not in told:
            told.add(id(setting))
            yield complaint(
                "CFG109",
                setting,
                f"{setting.spelled} = {setting.value} is less than {least}",
                severity=Severity.ERROR,
                hint=f"it counts something: state {max(least, 1)} or more, or leave it out",
            )


def _counted(reading: Reading) -> Iterator[tuple[Setting, int]]:
    """The settings that count something, each with the least that it may be."""
    for names, least in ((_AT_LEAST_ONE, 1), (_AT_LEAST_NONE, 0)):
        for name in names:
            for setting in reading.settings_of(name):
                if _means(reading, setting, name):
                    yield setting, least
    for name, setting in reading.config.settings.items():
        if name.endswith(_PER_GPU) and _means(reading, setting, ""):
            yield setting, 1


def _is_less(value: object, least: int) -> bool:
    """Whether a value, as a file spells it, is a whole number below `least`."""
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        return len(digits) < 9 and digits.isdecimal() and int(value) < least
    return isinstance(value, int) and not isinstance(value, bool) and value < least


def _means(reading: Reading, setting: Setting, variable: str) -> bool:
    """Whether a setting is the variable itself and its value none that the framework reads.

    A value that is a field's default has a meaning there, as torchtitan's -1 for all. A setting
    that a variable is only worked out from (CUDA_VISIBLE_DEVICES=0) is no count.
    """
    for part in (reading, *reading.config.parts):
        table = part.config.framework.table
        for spelled in dict.fromkeys((setting.name, setting.spelled)):
            known = table.find(spelled, part.config.version)
            if known is not None:
                own = (known.variable or "") == variable or reading.value(variable) == setting.value
                return own and str(known.default) != str(setting.value)
    return bool(reading.value(variable) == setting.value)
