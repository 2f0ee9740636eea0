"""What SkyRL's settings mean.

Source: skyrl/train/config/config.py on main of 2026-08: bf16, layers are recomputed by default, the
distributed optimizer is always on under Megatron.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.megatron_lm.slime.meaning import actor
from meshwright.frameworks.nemo.rl.meaning import whole_layers
from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_NODES = "trainer.placement.policy_num_nodes"
_PER_NODE = "trainer.placement.policy_num_gpus_per_node"


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    m.given["use_distributed_optimizer"] = Value(value=True, default=True)
    if m.value("accumulate_allreduce_grads_in_fp32") is False:
        m.follow("grad_reduce_in_bf16", True, "accumulate_allreduce_grads_in_fp32")
    if m.value("recompute") is None and m.field("trainer.gradient_checkpointing") is not False:
        m.give("recompute", "full", "trainer.gradient_checkpointing")
    whole_layers(m)
    meaning(m)
    _backend(m)
    interval = m.value("checkpoint_interval_steps")
    if isinstance(interval, int) and interval < 1:  # SkyRL then saves nothing
        m.follow("checkpoint_interval_steps", None, "checkpoint_interval_steps")
    actor(m, _NODES, _PER_NODE)
    _lengths(m)
    if m.value("sequence_packing"):
        m.follow("packed", True, "sequence_packing")
        m.follow("document_mask", True, "sequence_packing")
    return m.given


def _backend(m: Meanings) -> None:
    """FSDP shards everything; Megatron's settings count under Megatron alone."""
    kind = str(m.value("rl_backend", "fsdp")).lower()
    m.follow("rl_backend", "megatron" if kind == "megatron" else "fsdp", "rl_backend")
    if kind == "megatron":
        return
    m.follow("zero_stage", 3, "rl_backend")
    for variable in ("tp", "pp", "ep", "etp", "cp"):
        m.given[variable] = Value(value=1, settings=m.stating(variable))


def _lengths(m: Meanings) -> None:
    """A sequence is a prompt and its answer."""
    prompt, answer = m.value("max_prompt_len"), m.value("max_response_len")
    if m.stating("max_response_len") and isinstance(prompt, int) and isinstance(answer, int):
        m.follow("seq_len", prompt + answer, "max_prompt_len", "max_response_len")
