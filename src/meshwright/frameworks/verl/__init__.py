"""verl: hydra's overrides and YAML, with FSDP or Megatron below.

Sources: verl verl/trainer/config at 0.2, 0.3, 0.4.1, 0.5, 0.6.1, 0.7 and b178a3cd (2026-01, which
the table calls 0.8): PPO, SFT and the SFT trainer on engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_PROGRAMS = ("verl.trainer", "main_ppo", "verl.recipe", "fsdp_sft_trainer", "sft_trainer")
_OWN = (
    "engine.ulysses_sequence_parallel_size",
    "engine.tensor_model_parallel_size",
    "engine.fsdp_size",
    "trainer.n_gpus_per_node",
    "data.max_token_len_per_gpu",
    "data.max_prompt_length",
    "data.max_response_length",
    "model.use_remove_padding",
    "model.partial_pretrain",
    "ulysses_sequence_parallel_size",
    "use_remove_padding",
    "algorithm.adv_estimator",
)


def recognizes(parsed: Parsed) -> float:
    """By the trainers that it is started with and by its own dotted names."""
    if any(word in program for program in parsed.programs for word in _PROGRAMS):
        return 1.0
    names = [setting.spelled.lstrip("+~-") for setting in parsed.settings]
    if any(name.startswith("actor_rollout_ref.") for name in names):
        return 0.97
    own = sum(name in _OWN for name in names)
    return 0.0 if not own else min(0.4 + 0.2 * own, 0.9)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.verl import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; see `writing`."""
    from meshwright.frameworks.verl import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="verl",
        title="verl",
        package=__name__,
        syntaxes=("overrides", "yaml", "shell"),
        file_name="verl.overrides",
        scopes=("verl",),
        below=("megatron-core",),
        newest="0.7",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        stack="fsdp",
    ),
)
