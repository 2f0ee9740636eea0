"""Paddle: PaddleNLP's training arguments, and the degrees that Paddle's tuner searches over.

Sources: paddlenlp/trainer/training_args.py (2.8.1); python/paddle/distributed/auto_tuner (3.2.0).
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

_OWN = {
    "sharding_parallel_degree",
    "sharding_parallel_config",
    "pipeline_parallel_config",
    "sep_parallel_degree",
    "virtual_pp_degree",
    "hybrid_parallel_topo_order",
    "amp_master_grad",
    "fp16_opt_level",
    "unified_checkpoint",
    "use_expert_parallel",
}
_SHARED = {"tensor_parallel_degree", "pipeline_parallel_degree", "sharding"}
_TUNER = {
    "mp_degree",
    "vpp_degree",
    "sharding_stage",
    "sharding_degree",
    "dp_degree",
    "pp_degree",
    "max_mem_usage",
    "use_sequence_parallel",
}


def recognizes(parsed: Parsed) -> float:
    """By the launcher and by PaddleNLP's own names."""
    if any("paddle" in program for program in parsed.programs):
        return 0.95
    names = set(telling.names(parsed))
    own, shared = len(names & _OWN), len(names & _SHARED)
    return min(0.3 * own + 0.25 * shared, 0.9) if own or shared > 1 else 0.0


def recognizes_tuner(parsed: Parsed) -> float:
    """By the names of the tuner's degrees."""
    found = len(_TUNER.intersection(telling.names(parsed)))
    return min(0.3 * found, 0.9) if found > 1 else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What PaddleNLP's table does not say; see `meaning`."""
    from meshwright.frameworks.paddle import meaning

    return meaning.interpret(config, values)


def interpret_tuner(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the tuner's table does not say; see `tuner`."""
    from meshwright.frameworks.paddle import tuner

    return tuner.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The training arguments that state a job; see `writing`."""
    from meshwright.frameworks.paddle import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="paddlenlp",
        title="PaddleNLP",
        package=__name__,
        syntaxes=("json", "yaml", "shell"),
        file_name="paddlenlp.json",
        scopes=("paddlenlp",),
        newest="2.8",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("paddleformers",),
    ),
    Framework(
        name="paddle",
        title="Paddle's tuner",
        package=__name__ + ".tuner",
        syntaxes=("json", "yaml"),
        file_name="tuner.json",
        scopes=("paddle",),
        newest="3.2",
        recognizes=recognizes_tuner,
        interpret=interpret_tuner,
        aliases=("paddle-tuner", "auto-tuner"),
    ),
)
