"""NeMo: recipes of NeMo 2 and the YAML of NeMo 1; NeMo-RL on Megatron.

Sources: nemo/lightning (strategies, precision plugin), nemo/collections/llm recipes and
examples/nlp/language_modeling/conf at 8cfedd72 (2.5); NeMo-RL examples/configs on main of 2026-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_STRATEGY = ("trainer.strategy.", "strategy.", "model.config.", "trainer.plugins.", "plugins.")
_TELLING = frozenset(
    {
        *("trainer.devices", "trainer.num_nodes", "trainer.precision", "trainer.max_steps"),
        *("exp_manager.exp_dir", "model.mcore_gpt", "model.megatron_amp_o2", "model.optim.name"),
        *("model.encoder_seq_length", "model.activations_checkpoint_granularity"),
        *("model.activations_checkpoint_method", "model.ub_tp_comm_overlap"),
        *("model.micro_batch_size", "model.global_batch_size", "model.transformer_engine"),
        *("model.restore_from_path", "model.data.data_prefix", "model.peft.peft_scheme"),
    }
)


def recognizes(parsed: Parsed) -> float:
    """By its programs, by the groups of NeMo 2, and by NeMo 1's names under `model.`."""
    from meshwright.frameworks.megatron_lm import kin

    spelled = telling.names(parsed)
    if telling.runs(parsed, "megatron_gpt_", "nemo ", "nemo_run", "nemo/"):
        return 0.96
    if any(name.startswith("policy.") for name in spelled):
        return 0.0
    short = [name.removeprefix("recipe.") for name in spelled]
    own = telling.count(short, _TELLING)
    groups = sum(name.startswith(_STRATEGY) for name in short)
    data = any(name.startswith(("model.data.", "model.optim.")) for name in short)
    mesh = telling.count([name.rsplit(".", 1)[-1] for name in short], kin.MESH)
    if not own and not groups:
        return 0.0
    sure = 0.3 + 0.15 * own + 0.15 * (groups > 0) + 0.05 * groups
    return min(sure + 0.2 * (mesh > 0 and data), 0.95)


def recognizes_rl(parsed: Parsed) -> float:
    """By `policy.megatron_cfg` and its own groups."""
    spelled = telling.names(parsed)
    own = sum(name.startswith(("policy.megatron_cfg.", "policy.dtensor_cfg.")) for name in spelled)
    near = sum(name.startswith(("grpo.", "loss_fn.", "cluster.", "policy.")) for name in spelled)
    return min(0.8 + 0.05 * own, 0.97) if own else min(0.08 * near, 0.6)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.nemo import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; see `writing`."""
    from meshwright.frameworks.nemo import writing

    return writing.express(job, version)


def interpret_rl(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `rl.meaning`."""
    from meshwright.frameworks.nemo.rl import meaning

    return meaning.interpret(config, values)


FRAMEWORKS = (
    Framework(
        name="nemo",
        title="NeMo",
        package=__name__,
        syntaxes=("yaml", "overrides", "python", "shell"),
        file_name="recipe.yaml",
        scopes=("nemo",),
        below=("megatron-core", "transformer-engine", "nccl"),
        newest="2.5",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("nemo-2", "nemo2", "nemo-1"),
        stack="nemo-2025",
    ),
    Framework(
        name="nemo-rl",
        title="NeMo-RL",
        package="meshwright.frameworks.nemo.rl",
        syntaxes=("yaml", "overrides", "shell"),
        file_name="config.yaml",
        scopes=("nemo-rl",),
        below=("megatron-bridge", "megatron-core"),
        newest="0.5",
        recognizes=recognizes_rl,
        interpret=interpret_rl,
        stack="megatron",
    ),
)
