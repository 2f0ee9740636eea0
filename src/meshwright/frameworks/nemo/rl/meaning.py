"""What NeMo-RL's settings mean.

Source: examples/configs and nemo_rl/models/policy of NVIDIA-NeMo/RL, main of 2026-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.nemo.meaning import precision
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_DTENSOR = "policy.dtensor_cfg."
_GENERATION = "policy.generation.colocated."
_MEGATRON = "policy.megatron_cfg."


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    precision(m)
    _recompute(m)
    _adapters(m)
    meaning(m)
    _backend(m)
    _gpus(m)
    if m.value("sequence_packing"):
        m.give("packed", True, "policy.sequence_packing.enabled")
        m.give("document_mask", True, "policy.sequence_packing.enabled")
    return m.given


def _recompute(m: Meanings) -> None:
    """Granularity and modules count only where activation checkpointing is on."""
    if not m.is_stated(_MEGATRON + "activation_checkpointing"):
        return
    if m.value("gradient_checkpointing"):
        m.follow("recompute", m.value("recompute", "full"), "gradient_checkpointing")
        whole_layers(m)
    else:
        m.follow("recompute", None, "gradient_checkpointing")


def whole_layers(m: Meanings) -> None:
    """Full recompute goes layer by layer where no method is stated."""
    if m.value("recompute") != "full":
        return
    for variable, usual in (("recompute_method", "uniform"), ("recompute_num_layers", 1)):
        if m.value(variable) is None:
            m.follow(variable, usual, "recompute")


def _adapters(m: Meanings) -> None:
    if m.stating("lora_rank") and not m.field(_MEGATRON + "peft.enabled"):
        m.follow("lora_rank", None, "lora_rank")


def _backend(m: Meanings) -> None:
    """FSDP2 trains where its group is enabled: its own degrees, and sharding of everything."""
    on = m.value("dtensor") is True and m.field(_MEGATRON + "enabled") is not True
    m.follow("rl_backend", "fsdp" if on else "megatron", "dtensor")
    if not on:
        return
    m.give("zero_stage", 3, _DTENSOR + "enabled")
    for variable in ("tp", "pp", "cp", "ep", "etp"):  # Megatron's do not count
        m.give(variable, 1, _DTENSOR + "enabled")
    names = (("tp", "tensor_parallel_size"), ("cp", "context_parallel_size"))
    for variable, name in (*names, ("sequence_parallel", "sequence_parallel")):
        value = m.field(_DTENSOR + name)
        if value is not None:
            m.give(variable, value, _DTENSOR + name)
    if m.field(_DTENSOR + "cpu_offload"):
        m.give("offload_params", True, _DTENSOR + "cpu_offload")
    if m.field(_DTENSOR + "activation_checkpointing"):
        m.give("recompute", "full", _DTENSOR + "activation_checkpointing")


def _inherits(m: Meanings) -> bool:
    """Whether the file changes another one, named under `defaults`."""
    return m.is_stated("defaults") or any(s.spelled == "defaults" for s in m.config.unknown)


def _gpus(m: Meanings) -> None:
    devices, nodes = m.value("gpus_per_node"), m.value("num_nodes")
    if nodes is None and _inherits(m) and m.stating("gpus_per_node"):
        m.given["num_nodes"] = Value(value=UNKNOWN)  # the file that it builds on tells
    apart = m.field(_GENERATION + "enabled") is False
    taken = m.field(_GENERATION + "resources.num_nodes") if apart else None
    if isinstance(taken, int) and isinstance(nodes, int) and 0 < taken < nodes:
        nodes -= taken  # the rest of the nodes generates
        m.follow("num_nodes", nodes, "num_nodes")
    if isinstance(devices, int) and isinstance(nodes, int) and m.stating("gpus_per_node"):
        m.follow("num_gpus", devices * max(nodes, 1), "gpus_per_node", "num_nodes")
