"""What a model's shape does not say and Megatron has other defaults for: positions, norms, dropout.

Megatron turns rotary positions by a base of 10000 and drops a tenth of attention and of hidden
states unless told otherwise (megatron/training/arguments.py, core_v0.6.0 to 0.20.dev).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Framework
    from meshwright.model.architecture import Model

PUBLISHED = ("--rotary-base", "--use-rope-scaling", "--rope-scaling-factor", "--norm-epsilon")
NAMES = (*PUBLISHED, "--attention-dropout", "--hidden-dropout")


def trained_words(model: Model, framework: Framework, version: str) -> dict[str, Any]:
    """Arguments by name as the model's publisher has them; only those that are known and exist."""
    words = _published(_config(model.name))
    if not model.position_embeddings and not model.layers[0].attention.softmax_dropout:
        words |= {"--attention-dropout": 0.0, "--hidden-dropout": 0.0}
    return {name: value for name, value in words.items() if _exists(framework, name, version)}


def _exists(framework: Framework, name: str, version: str) -> bool:
    found = framework.table.find(name, version)
    return found is not None and found.name == name and found.exists_in(version)


def _config(name: str) -> Mapping[str, Any]:
    """The configuration of a preset, empty for a model that is none."""
    from meshwright.model.catalogue import preset_config, presets

    return preset_config(name) if name in presets() else {}


def _published(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary base and its scaling, and the norms' epsilon, of a config.json."""
    words: dict[str, Any] = {}
    if (base := config.get("rope_theta")) is not None:
        words["--rotary-base"] = int(base)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        words["--use-rope-scaling"] = True
        words["--rope-scaling-factor"] = float(scaling["factor"])
    if (epsilon := config.get("rms_norm_eps")) is not None:
        words["--norm-epsilon"] = float(epsilon)
    return words
