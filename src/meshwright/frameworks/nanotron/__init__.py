"""nanotron's YAML.

Sources: nanotron src/nanotron/config/{config,parallelism_config,models_config}.py at 0.1 to 0.5 and
at 2411b022 (2026-04), which the table calls 0.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_MESH = {"parallelism.dp", "parallelism.tp", "parallelism.pp"}
_OWN = {
    "parallelism.pp_engine",
    "parallelism.tp_mode",
    "parallelism.tp_linear_async_communication",
    "parallelism.recompute_layer",
    "parallelism.expert_parallel_size",
    "parallelism.context_parallel_size",
    "tokens.micro_batch_size",
    "tokens.sequence_length",
    "tokens.batch_accumulation_per_replica",
    "optimizer.zero_stage",
    "optimizer.accumulate_grad_in_fp32",
    "checkpoints.checkpoint_interval",
    "checkpoints.resume_checkpoint_path",
    "model.make_vocab_size_divisible_by",
}


def recognizes(parsed: Parsed) -> float:
    """By the program that runs it and by its own dotted names."""
    if any("nanotron" in program for program in parsed.programs):
        return 0.95
    names = {setting.spelled for setting in parsed.settings}
    if any(p.endswith("run_train.py") for p in parsed.programs) and "--config-file" in names:
        return 0.8
    mesh, own = len(names & _MESH), len(names & _OWN)
    own += any(name.startswith("model.model_config.") for name in names)
    if mesh + own < 2:
        return 0.0
    return min(0.3 + 0.15 * mesh + 0.15 * own, 0.95)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.nanotron import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; see `writing`."""
    from meshwright.frameworks.nanotron import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="nanotron",
        title="nanotron",
        package=__name__,
        syntaxes=("yaml", "python", "shell"),
        file_name="nanotron.yaml",
        scopes=("nanotron",),
        newest="0.6",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        stack="nanotron",
    ),
)
