"""torchtitan: TOML files up to 0.2, recipe functions and their command line from 0.3.

Sources: torchtitan/config_manager.py (0.0 to 0.1.0), torchtitan/config/job_config.py (0.2.0 to
0.2.2), torchtitan/config/configs.py with the configurations that lie beside their owners (0.3.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks import telling
from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_OWN = (
    "parallelism.data_parallel_",
    "parallelism.tensor_parallel_degree",
    "parallelism.context_parallel_",
    "parallelism.pipeline_parallel_",
    "parallelism.fsdp_reshard",
    "parallelism.expert_parallel_degree",
    "training.local_batch_size",
    "training.mixed_precision_",
    "training.data_parallel_",
    "training.enable_cpu_offload",
    "activation_checkpoint.",
    "experimental.pipeline_parallel_",
    "checkpoint.enable_checkpoint",
    "checkpoint.async_mode",
    "model.flavor",
    "model_spec",
)
_RECIPE = pattern(r"from torchtitan[.\w]* import|\bmodel_registry\(|\bTrainer\.Config\b")
_VERSIONS = ("0.2.2", "0.2.0", "0.1.0", "0.0.2", "0.0.1")
_SECTIONS = ("parallelism", "training", "checkpoint", "compile", "comm", "debug", "metrics")


def recognizes(parsed: Parsed) -> float:
    """By the programs that start it and by its own dotted names."""
    if any("torchtitan" in program for program in parsed.programs):
        return 1.0
    if parsed.source.syntax == "python" and _RECIPE.search(parsed.source.text):
        return 0.97
    names = telling.names(parsed)
    own = sum(name.startswith(_OWN) for name in names)
    if not own:
        return 0.0
    sections = sum(name.split(".", 1)[0] in _SECTIONS for name in names)
    if sections + own >= len(names) / 2:
        return min(0.5 + 0.2 * own, 0.97)
    return 0.7 if own > 1 else 0.4


def version_of(parsed: Parsed) -> str:
    """The newest version that has most of the keys: TOML ended with 0.2, recipes began with 0.3."""
    from meshwright.frameworks.field import load_table

    names = [setting.spelled for setting in parsed.settings]
    old = parsed.source.syntax == "toml" or ".toml" in parsed.source.text
    if parsed.source.syntax == "python":
        return "0.3.0"
    table = load_table(__name__, "torchtitan")

    def known(version: str) -> int:
        fields = (table.find(name, version) for name in names)
        return sum(field is not None and field.exists_in(version) for field in fields)

    candidates = _VERSIONS if old else ("0.3.0", *_VERSIONS)
    return max(candidates, key=known)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.torchtitan import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; see `writing`."""
    from meshwright.frameworks.torchtitan import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="torchtitan",
        title="torchtitan",
        package=__name__,
        syntaxes=("toml", "python", "overrides", "shell"),
        file_name="train.toml",
        scopes=("torchtitan",),
        below=("torch",),
        newest="0.3.0",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        version_of=version_of,
        aliases=("titan",),
        stack="torchtitan",
    ),
)
