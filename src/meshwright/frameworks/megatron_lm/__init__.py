"""Megatron-LM: argument lists in shell scripts, and YAML files of the same names.

Sources: the parser of megatron/training/arguments.py as it is built at core_v0.6.0, 0.7.0, 0.9.0,
0.10.0, 0.11.0, 0.12.3, 0.13.1, 0.14.0, 0.15.0, 0.16.1, 0.17.1, 0.18.2, 0.19.0 and d98e8a64
(0.20.dev), and v2.6 for what went before; arguments of well-known forks are marked as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Expressed, Framework
from meshwright.frameworks.megatron_lm.slime import SLIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_PROGRAMS = ("pretrain_", "megatron-lm", "megatron_lm", "tools/checkpoint", "finetune_gpt")
_GROUPS = ("language_model.", "model_parallel.")


def recognizes(parsed: Parsed) -> float:
    """By its programs, by its arguments, and by the groups of its YAML files."""
    from meshwright.frameworks.megatron_lm import kin

    spelled = telling.names(parsed)
    mesh = telling.count(spelled, kin.MESH)
    common = telling.count(spelled, kin.COMMON)
    own = telling.count(spelled, kin.ARGUMENTS)
    if telling.are_arguments(parsed):
        if telling.runs(parsed, *_PROGRAMS) and mesh + common + own:
            return 0.96
        return kin.sure(mesh, common + telling.count(spelled, kin.SHAPE), own)
    grouped = sum(name.startswith(_GROUPS) for name in spelled)
    if grouped:
        return min(0.6 + 0.1 * grouped, 0.95)
    return 0.6 * kin.sure(mesh, common, own)


def version_of(parsed: Parsed) -> str:
    """Arguments that only the time before 0.6 had betray it."""
    old = {"activations_checkpoint_method", "distribute_checkpointed_activations", "ddp_impl"}
    return "0.5" if old & set(telling.names(parsed)) else ""


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.megatron_lm import arguments

    return arguments.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job; see `writing`."""
    from meshwright.frameworks.megatron_lm import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="megatron-lm",
        title="Megatron-LM",
        package=__name__,
        syntaxes=("shell", "yaml", "overrides", "json"),
        file_name="train.sh",
        scopes=("megatron-lm", "megatron-core"),
        below=("transformer-engine", "nccl"),
        newest="0.19.2",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        version_of=version_of,
        aliases=("megatron", "megatron-core", "mcore", "megatronlm"),
        stack="megatron",
    ),
    SLIME,
)
