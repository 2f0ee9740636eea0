"""Megatron-Bridge: YAML files, dotted overrides and recipe functions; also the model's settings
alone, as people paste them.

Sources: the configuration classes of src/megatron/bridge at v0.2.0, 0.3.0, 0.4.2, 0.5.1, 0.6.0 and
main of 2026-08 with those of megatron-core at 0.15.0 to 0.19.0 and d98e8a64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Expressed, Framework
from meshwright.frameworks.megatron_bridge.skyrl import SKYRL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_PROGRAMS = ("megatron.bridge", "megatron-bridge", "megatron_bridge", "run_recipe")
_SECTIONS = ("train.", "ddp.", "comm_overlap.", "mixed_precision.", "checkpoint.", "dataset.")
_OTHERS = frozenset(
    {
        *("model_name_or_path", "finetuning_type", "train_type", "tuner_type", "template"),
        *("torch_dtype", "padding_free", "mcore_model", "model_name"),
    }
)


def recognizes(parsed: Parsed) -> float:
    """By its programs, and by Megatron's names under `model.` or alone in a tree."""
    from meshwright.frameworks.megatron_lm import kin

    spelled = telling.names(parsed)
    if telling.runs(parsed, *_PROGRAMS):
        return 0.97
    inner = {n.removeprefix("model.") for n in spelled if "." not in n or n.startswith("model.")}
    mesh = telling.count(inner, kin.MESH)
    common = telling.count(inner, kin.COMMON)
    sections = sum(n.startswith(_SECTIONS) for n in spelled)
    if telling.are_arguments(parsed) or not mesh + common:
        return 0.0
    if any(n.startswith(("trainer.", "exp_manager.")) for n in spelled):
        return 0.2
    if {"model.micro_batch_size", "model.global_batch_size"} & set(spelled):
        return 0.3  # NeMo 1 keeps the batch with the model
    if _OTHERS & set(spelled):
        return 0.25
    return min(kin.sure(mesh, common, 0) + 0.1 * (sections > 0), 0.95)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `presets`."""
    from meshwright.frameworks.megatron_bridge import presets

    return presets.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; see `writing`."""
    from meshwright.frameworks.megatron_bridge import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="megatron-bridge",
        title="Megatron-Bridge",
        package=__name__,
        syntaxes=("yaml", "overrides", "python", "shell"),
        file_name="config.yaml",
        scopes=("megatron-bridge",),
        below=("megatron-core", "transformer-engine", "nccl"),
        newest="0.6.2",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("bridge", "mbridge"),
        stack="megatron-bridge-2026",
    ),
    SKYRL,
)
