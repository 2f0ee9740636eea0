"""What NeMo's own words mean: presets, FSDP, activation names, the older names of NeMo 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_bridge.presets import adapters, preset
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm1p": "LayerNorm"}
_ANSWERS = "model.data.train_ds."
_FSDP2 = ("pytorch", "fsdp2")


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    precision(m)
    _sharding(m)
    _shape(m)
    meaning(m)
    adapters(m)
    _gpus(m)
    _fine_tuning(m)
    return m.given


def precision(m: Meanings) -> None:
    """A preset or Lightning's word ("bf16-mixed", 16), bf16 where nothing says."""
    name = m.value("mixed_precision")
    if isinstance(name, str | int | float) and str(name) not in ("", "null"):
        preset(m, str(name))
    elif not any(m.stating(v) for v in ("bf16", "fp16")):
        m.given["bf16"] = Value(value=True, default=True)
    if m.value("fp8_enabled") is True and not m.value("fp8_format"):
        hybrid = not m.value("fp8_e4m3")
        m.follow("fp8_format", "hybrid" if hybrid else "e4m3", "fp8_enabled", "fp8_e4m3")
    if m.value("fp8_enabled") is False:
        m.follow("fp8_format", None, "fp8_enabled")
    narrow = m.value("accumulate_allreduce_grads_in_fp32") is False
    if narrow or str(m.value("grad_sync_dtype")) in ("bf16", "16"):
        sources = ("accumulate_allreduce_grads_in_fp32", "grad_sync_dtype")
        m.follow("grad_reduce_in_bf16", True, *sources)


def _sharding(m: Meanings) -> None:
    """Megatron's or torch's FSDP; NeMo 1's optimizer shards by its name."""
    kind = m.value("nemo_fsdp")
    if kind == "megatron":
        m.follow("use_megatron_fsdp", True, "nemo_fsdp")
    elif kind in _FSDP2 or m.value("nemo1_fsdp") is True:
        m.follow("use_torch_fsdp2", True, "nemo_fsdp", "nemo1_fsdp")
    name = m.value("optimizer")
    if isinstance(name, str):
        sharded = "distributed" in name or name == "mcore_distributed_optim"
        if m.is_stated("model.optim.name"):
            m.follow("use_distributed_optimizer", sharded, "optimizer")
        word = "adam" if "adam" in name or "mcore" in name else name
        m.follow("optimizer", word, "optimizer")


def _shape(m: Meanings) -> None:
    """Activation, with its gate, and norm as NeMo names them."""
    name = m.value("activation_name")
    if isinstance(name, str):
        word = name.lower().removeprefix("fast-")
        m.follow("gated_mlp", word in _GATED, "activation_name")
        m.follow("hidden_act", _GATED.get(word, word), "activation_name")
    act = m.value("hidden_act")
    if isinstance(act, str):
        m.follow("hidden_act", act.rsplit(".", 1)[-1].lower(), "hidden_act")
    norm = m.value("normalization")
    if isinstance(norm, str):
        m.follow("normalization", _NORMS.get(norm.lower(), norm), "normalization")


def _data(m: Meanings) -> None:
    """Fine-tuning data carries a loss on the answers alone."""
    tuned = ("model.data.train_ds.", "model.peft.", "peft.")
    names = [name for name in m.config.settings if name.startswith(tuned)]
    if names:
        m.give("masked_loss", True, *names[:1])


def _gpus(m: Meanings) -> None:
    """Devices and nodes of the trainer; "auto" or -1 devices are not known."""
    devices, nodes = m.value("gpus_per_node"), m.value("num_nodes")
    if m.stating("gpus_per_node") and (not isinstance(devices, int) or devices < 1):
        m.given["gpus_per_node"] = Value(value=UNKNOWN, settings=m.stating("gpus_per_node"))
    elif isinstance(devices, int) and isinstance(nodes, int) and m.stating("num_nodes"):
        m.follow("num_gpus", devices * max(nodes, 1), "gpus_per_node", "num_nodes")


def _fine_tuning(m: Meanings) -> None:
    """Training sets of prompts and answers: the prompts carry no loss unless it is asked for."""
    sets = tuple(name for name in m.config.settings if name.startswith(_ANSWERS))
    if sets and m.config.stated(_ANSWERS + "answer_only_loss") is not False:
        m.give("masked_loss", True, *sets)
