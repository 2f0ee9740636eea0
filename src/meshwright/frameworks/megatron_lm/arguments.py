"""What is Megatron-LM's own among the meanings: data sources, YAML words, older spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_REQUIRED = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"),
    *("micro_batch_size", "seq_len"),
)
_PRECISION = ("bf16", "fp16", "fp8_format", "fp4_format", "fp8_hybrid", "fp8_e4m3")
_SHARDING = (
    *("use_distributed_optimizer", "use_megatron_fsdp", "use_torch_fsdp2", "use_custom_fsdp"),
    *("zero_stage_stated", "optimizer"),
)
_SPLIT_PATHS = ("--train-data-path", "--valid-data-path", "--test-data-path")
_CHECKPOINTED = ("--activations-checkpoint-method", "--checkpoint-activations")


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _older(m)
    _activation(m)
    silent = _says_nothing_of_precision(m)
    if silent:
        m.given["bf16"] = Value(value=True, default=True)
    meaning(m)
    if silent and not any(m.stating(v) for v in _SHARDING):
        m.given["zero_stage"] = Value(value=1, default=True)
    _data(m)
    return m.given


def _says_nothing_of_precision(m: Meanings) -> bool:
    """Whether the arguments are a part of a list that says elsewhere what it trains in.

    Megatron refuses a list without the arguments it requires, so such a list is not whole; what it
    leaves out is then what everyone runs (bf16, the distributed optimizer), not the default.
    """
    whole = all(m.stating(variable) for variable in _REQUIRED)
    return not whole and not any(m.stating(variable) for variable in _PRECISION)


def _older(m: Meanings) -> None:
    """Recompute before it was called so."""
    if m.is_stated(*_CHECKPOINTED):
        m.give("recompute", "full", *_CHECKPOINTED)
        method = m.field(_CHECKPOINTED[0])
        m.give("recompute_method", method or "uniform", *_CHECKPOINTED)
        m.give("recompute_num_layers", m.field("--activations-checkpoint-num-layers") or 1)


def _activation(m: Meanings) -> None:
    """A YAML file names the activation and means its gate with it."""
    name = m.value("hidden_act")
    words = {"swiglu": ("silu", True), "squaredrelu": ("relu2", False), "gelu": ("gelu", False)}
    if isinstance(name, str) and name in words:
        word, gated = words[name]
        m.follow("gated_mlp", gated, "hidden_act")
        m.follow("hidden_act", word, "hidden_act")


def _data(m: Meanings) -> None:
    """How many sources of data are named."""
    several = m.is_stated(*_SPLIT_PATHS)
    sources = [
        bool(m.value("mock_data")),
        m.is_stated("--data-path"),
        several,
    ]
    names = ("--mock-data", "--data-path", *_SPLIT_PATHS)
    m.give("n_data_sources", sum(sources), *names)
    path = m.field("--data-path")
    if isinstance(path, list):
        m.give("blend_in_data_path", len(path) > 1, "--data-path")
        m.give("num_dataset_files", max(len(path) // 2, 1), "--data-path")
