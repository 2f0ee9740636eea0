"""ms-swift: `megatron sft` and its kin on Megatron-Core, `swift sft` and its kin on transformers.

Sources: swift/megatron/arguments and swift/arguments (before 4.0: swift/megatron/argument and
swift/llm/argument) at v3.8.0, 3.12.0, 4.0.0, 4.5.2 and main of 2026-08 (4.6).
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

_COMMANDS = ("sft", "pt", "rlhf", "export", "infer")
_OWN = frozenset(
    {
        *("train_type", "tuner_type", "torch_dtype", "padding_free", "mcore_model"),
        *("load_safetensors", "save_safetensors", "mcore_adapter", "max_length", "packing"),
        *("attn_impl", "loss_scale", "split_dataset_ratio", "dataset_num_proc", "lazy_tokenize"),
        *("agent_template", "custom_register_path", "truncation_strategy", "use_hf"),
        *("freeze_vit", "freeze_aligner", "rlhf_type", "model_author", "finetune"),
    }
)
_NAMED = frozenset(
    {
        *("train_type", "tuner_type", "padding_free", "mcore_model", "load_safetensors"),
        *("save_safetensors", "split_dataset_ratio", "freeze_aligner", "lazy_tokenize"),
        *("attn_impl", "agent_template", "max_length"),
    }
)


def recognizes_megatron(parsed: Parsed) -> float:
    """By `megatron sft`, or by Megatron's names with underscores beside swift's own."""
    from meshwright.frameworks.megatron_lm import kin

    spelled = telling.names(parsed)
    mesh = telling.count(spelled, kin.MESH)
    if any(p.split()[:1] == ["megatron"] and p.split()[-1] in _COMMANDS for p in parsed.programs):
        return 0.98
    own, named = telling.count(spelled, _OWN), telling.count(spelled, _NAMED)
    common = telling.count(spelled, kin.COMMON)
    if not named or not mesh + common or any("." in name for name in spelled):
        return 0.0
    return min(0.5 + 0.1 * own + 0.05 * mesh, 0.93)


def recognizes_trainer(parsed: Parsed) -> float:
    """By `swift sft`, or by swift's own names beside the trainer's."""
    from meshwright.frameworks.megatron_lm import kin

    if any(p.split()[:1] == ["swift"] or "swift/cli" in p for p in parsed.programs):
        trains = any(p.split()[-1] in ("sft", "pt", "rlhf") for p in parsed.programs)
        megatron = any(p.split()[:1] == ["megatron"] for p in parsed.programs)
        return 0.9 if megatron or not trains else 0.98
    spelled = telling.names(parsed)
    own, named = telling.count(spelled, _OWN), telling.count(spelled, _NAMED)
    if not named or telling.count(spelled, kin.MESH):
        return 0.0
    trained = {"per_device_train_batch_size", "gradient_accumulation_steps", "deepspeed"}
    if {"finetuning_type", "sequence_len", "base_model"} & set(spelled):
        return 0.0
    return min(0.15 * own + 0.2 * bool(trained & set(spelled)), 0.85)


def version_of_megatron(parsed: Parsed) -> str:
    """Arguments that 4.0 took away betray a version before it."""
    from meshwright.frameworks.field import load_table, release

    table = load_table(__name__, "ms-swift-megatron")
    found = (table.find(setting.spelled) for setting in parsed.settings)
    old = any(f is not None and f.until and release(f.until) < (4,) for f in found)
    return "3.12" if old else ""


def interpret_megatron(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `megatron`."""
    from meshwright.frameworks.ms_swift import megatron

    return megatron.interpret(config, values)


def express_megatron(job: Job, version: str) -> Expressed:
    """The arguments that state a job; see `megatron`."""
    from meshwright.frameworks.ms_swift import megatron

    return megatron.express(job, version)


def interpret_trainer(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `trainer.meaning`."""
    from meshwright.frameworks.ms_swift.trainer import meaning

    return meaning.interpret(config, values)


def express_trainer(job: Job, version: str) -> Expressed:
    """The arguments that state a job; see `trainer.writing`."""
    from meshwright.frameworks.ms_swift.trainer import writing

    return writing.express(job, version)


FRAMEWORKS = (
    Framework(
        name="ms-swift",
        title="ms-swift",
        package="meshwright.frameworks.ms_swift.trainer",
        syntaxes=("shell", "yaml", "json", "overrides"),
        file_name="train.sh",
        scopes=("ms-swift",),
        below=("transformers", "accelerate", "torch"),
        companions=("accelerate", "deepspeed"),
        newest="4.5.2",
        recognizes=recognizes_trainer,
        interpret=interpret_trainer,
        express=express_trainer,
        aliases=("swift",),
        stack="default",
    ),
    Framework(
        name="ms-swift-megatron",
        title="Megatron-SWIFT",
        package=__name__,
        syntaxes=("shell", "yaml", "json", "overrides"),
        file_name="train.sh",
        scopes=("ms-swift",),
        below=("megatron-core", "transformer-engine", "nccl"),
        newest="4.5.2",
        recognizes=recognizes_megatron,
        interpret=interpret_megatron,
        express=express_megatron,
        version_of=version_of_megatron,
        aliases=("megatron-swift", "swift-megatron"),
        stack="megatron",
    ),
)
