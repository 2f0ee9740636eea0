"""A torchtitan 0.3 recipe: the function of a config_registry.py that states a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.inverse import python_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES = {
    "training": ("torchtitan.config", "TrainingConfig"),
    "parallelism": ("torchtitan.config", "ParallelismConfig"),
    "compile": ("torchtitan.config", "CompileConfig"),
    "checkpoint": ("torchtitan.components.checkpoint", "CheckpointManager.Config"),
    "optimizer": ("torchtitan.components.optimizer", "default_adamw"),
}
_POLICIES = "torchtitan.distributed.activation_checkpoint"
_QUANTIZATION = "torchtitan.components.quantization"
_LOSS = "torchtitan.components.loss"
_INDENT = "    "


def written_recipe(settings: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    """The module of one recipe function; settings go by dotted name as a command line has them."""
    imports: dict[str, set[str]] = {"torchtitan.trainer": {"Trainer"}}
    body = [*_spec(settings, imports)]
    for section, (module, made) in _CLASSES.items():
        values = {
            name.split(".", 1)[1]: value
            for name, value in settings.items()
            if name.startswith(section + ".")
        }
        if values:
            imports.setdefault(module, set()).add(made.split(".")[0])
            body += _call(section, made, values)
    body += _policy(settings, imports)
    if settings.get("loss.num_chunks"):
        imports.setdefault(_LOSS, set()).add("ChunkedLossWrapper")
        body += _call(
            "loss", "ChunkedLossWrapper.Config", {"num_chunks": settings["loss.num_chunks"]}
        )
    name = settings.get("config") or "train"
    lines = [*_machine(launch), *_imports(imports), "", "", f"def {name}() -> Trainer.Config:"]
    return "\n".join([*lines, f"{_INDENT}return Trainer.Config(", *body, f"{_INDENT})", ""])


def _machine(launch: Mapping[str, Any]) -> list[str]:
    nodes, each = launch.get("num_nodes"), launch.get("gpus_per_node")
    return [f"# {nodes} nodes x {each} GPUs"] if nodes and each else []


def _imports(imports: Mapping[str, set[str]]) -> list[str]:
    return [
        f"from {module} import {', '.join(sorted(imports[module]))}" for module in sorted(imports)
    ]


def _spec(settings: Mapping[str, Any], imports: dict[str, set[str]]) -> list[str]:
    """The model, with what replaces its linear layers."""
    family, flavor = settings.get("model_spec.name"), settings.get("model_spec.flavor")
    if not family or not flavor:
        return []
    imports.setdefault(f"torchtitan.models.{family}", set()).add("model_registry")
    words = [python_text(flavor)]
    converters = settings.get("model_spec.converters") or []
    if converters:
        imports.setdefault(_QUANTIZATION, set()).update(converters)
        words.append("converters=[" + ", ".join(f"{name}.Config()" for name in converters) + "]")
    return [f"{_INDENT * 2}model_spec=model_registry({', '.join(words)}),"]


def _call(argument: str, made: str, values: Mapping[str, Any]) -> list[str]:
    inner = [f"{_INDENT * 3}{name}={python_text(value)}," for name, value in values.items()]
    return [f"{_INDENT * 2}{argument}={made}(", *inner, f"{_INDENT * 2}),"]


def _policy(settings: Mapping[str, Any], imports: dict[str, set[str]]) -> list[str]:
    """What is recomputed: a class, or None."""
    if "activation_checkpoint" not in settings:
        return []
    policy = settings["activation_checkpoint"]
    if policy is None:
        return [f"{_INDENT * 2}activation_checkpoint=None,"]
    imports.setdefault(_POLICIES, set()).add(policy)
    return [f"{_INDENT * 2}activation_checkpoint={policy}.Config(),"]
