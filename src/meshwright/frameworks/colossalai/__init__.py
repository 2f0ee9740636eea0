"""ColossalAI: the arguments of a booster plugin, in Python.

Sources: colossalai/booster/plugin/{hybrid_parallel,moe_hybrid_parallel,low_level_zero,gemini,
torch_ddp}_plugin.py (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

PLUGINS = (
    "HybridParallelPlugin",
    "MoeHybridParallelPlugin",
    "LowLevelZeroPlugin",
    "GeminiPlugin",
    "TorchDDPPlugin",
)
_OWN = {"tp_size", "pp_size", "zero_stage", "sp_size", "num_microbatches", "microbatch_size"}
_OWN |= {"pp_style", "num_model_chunks", "enable_sequence_parallelism", "ep_size"}


def recognizes(parsed: Parsed) -> float:
    """By the names of its plugins and its launcher."""
    if any("colossal" in program.lower() for program in parsed.programs):
        return 0.97
    if any(plugin in parsed.source.text for plugin in PLUGINS):
        return 0.95
    if parsed.source.syntax != "python":
        return 0.0
    names = {setting.spelled.rsplit(".", 1)[-1] for setting in parsed.settings}
    found = len(names & _OWN)
    return min(0.15 * found, 0.6) if found > 1 else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.colossalai import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The plugin's arguments that state a job; see `writing`."""
    from meshwright.frameworks.colossalai import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="colossalai",
        title="ColossalAI",
        package=__name__,
        syntaxes=("python",),
        file_name="plugin.py",
        scopes=("colossalai",),
        leaves=("seq_len", "global_batch_size", "lora_rank", "lora_all_linear", "base_weight_bits"),
        newest="0.5",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        aliases=("colossal-ai", "colossal"),
        stack="colossalai",
    ),
)
