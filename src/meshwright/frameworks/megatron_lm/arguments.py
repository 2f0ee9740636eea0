"""What is Megatron-LM's own among the meanings: data sources, YAML words, older spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

_SPLIT_PATHS = ("--train-data-path", "--valid-data-path", "--test-data-path")
_CHECKPOINTED = ("--activations-checkpoint-method", "--checkpoint-activations")


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _older(m)
    _activation(m)
    meaning(m)
    _data(m)
    return m.given


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
