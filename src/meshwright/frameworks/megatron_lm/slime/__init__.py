"""slime: reinforcement learning with Megatron's arguments and its own.

Sources: slime/utils/arguments.py and slime/backends/*/arguments.py on main of 2026-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import telling
from meshwright.frameworks.megatron_lm.extended import Extended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_OWN = frozenset(
    {
        *("actor_num_nodes", "actor_num_gpus_per_node", "rollout_num_gpus", "hf_checkpoint"),
        *("rollout_num_gpus_per_engine", "n_samples_per_prompt", "num_rollout", "colocate"),
        *("rollout_function_path", "sglang_mem_fraction_static", "num_steps_per_rollout"),
        *("max_tokens_per_gpu", "use_dynamic_batch_size", "rm_type", "advantage_estimator"),
    }
)
_SURE = frozenset({"actor_num_nodes", "actor_num_gpus_per_node", "rollout_num_gpus_per_engine"})


def recognizes(parsed: Parsed) -> float:
    """By its own arguments beside Megatron's."""
    spelled = telling.names(parsed)
    own, sure = telling.count(spelled, _OWN), telling.count(spelled, _SURE)
    if not telling.are_arguments(parsed) or not own:
        return 0.0
    return min(0.1 * own + 0.9 * bool(sure), 0.97)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Megatron's meanings, and the GPUs of the actor."""
    from meshwright.frameworks.megatron_lm.slime import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """Megatron's arguments and the actor's GPUs."""
    from meshwright.frameworks.megatron_lm.slime import meaning

    return meaning.express(job, version)


SLIME = Extended(
    name="slime",
    title="slime",
    package=__name__,
    base="megatron-lm",
    syntaxes=("shell", "overrides"),
    file_name="run.sh",
    scopes=("slime",),
    below=("megatron-lm", "megatron-core", "transformer-engine", "nccl"),
    newest="0.2",
    recognizes=recognizes,
    interpret=interpret,
    express=express,
    stack="megatron",
)
