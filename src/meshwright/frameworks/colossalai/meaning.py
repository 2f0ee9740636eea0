"""What the arguments of ColossalAI's plugins mean beyond their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings, heed_remarks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

SEQUENCE = ("enable_sequence_parallelism", "sequence_parallelism_mode", "sp_size")
WITH_TENSOR = ("split_gather", "ring")  # modes that share the tensor-parallel group
SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved", "zbv": "zb-v"}
GATHERS = ("gemini", "torchfsdp")


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give, or gives in ColossalAI's words."""
    m = Meanings(config, values)
    heed_remarks(m)
    _sequence(m)
    _pipeline(m)
    _sharding(m)
    _batch(m)
    _precision(m)
    return m.given


def _sequence(m: Meanings) -> None:
    """Two modes belong to tensor parallelism, two make an axis of their own."""
    on, mode = m.field(SEQUENCE[0]), m.field(SEQUENCE[1]) or "all_to_all"
    size = m.field(SEQUENCE[2])
    own = bool(on) and mode not in WITH_TENSOR
    degree = size if own and isinstance(size, int) and size > 0 else 1
    m.give("cp", degree, *SEQUENCE)
    m.give("ulysses", degree if mode == "all_to_all" else 1, *SEQUENCE)
    m.give("context_parallel", "ulysses" if mode == "all_to_all" else "ring", *SEQUENCE)
    m.give("sequence_parallel", bool(on) and mode in WITH_TENSOR, *SEQUENCE)


def _pipeline(m: Meanings) -> None:
    style = str(m.value("pp_style", "1f1b"))
    chunks = m.count("num_model_chunks")
    m.follow("schedule", SCHEDULES.get(style, "1f1b"), "pp_style")
    m.follow("vpp", chunks if m.count("pp") > 1 else 1, "num_model_chunks")
    layers = m.field("num_layers_per_stage")
    if isinstance(layers, list) and layers and m.count("pp") > 1:
        m.give("layout", layers, "num_layers_per_stage")
        m.give("uneven_pipeline", True, "num_layers_per_stage")
    stated = m.field("gradient_checkpoint_config")
    m.give("recompute", "full" if stated else "none", "gradient_checkpoint_config")


def _sharding(m: Meanings) -> None:
    """The ZeRO stage, under the name that each plugin has for it."""
    plugin = f"{m.config.stated('plugin')} {' '.join(m.config.programs)}".lower()
    names = ("zero_stage", "stage", "plugin", "placement_policy")
    if any(word in plugin for word in GATHERS) or m.is_stated("placement_policy"):
        m.give("zero_stage", 3, *names)
    elif m.is_stated("stage") or "lowlevelzero" in plugin:
        m.give("zero_stage", m.field("stage"), *names)
    world = m.value("num_gpus")
    if isinstance(world, int) and world > 0:
        others = m.count("tp") * m.count("pp") * m.count("cp")
        m.follow("dp", max(world // others, 1), "tp", "pp", "cp")
    if m.field("cpu_offload"):
        m.give("offload_optimizer", 1.0, "cpu_offload")
    share = m.field("offload_param_frac")
    m.give("offload_params", bool(share), "offload_param_frac")


def _batch(m: Meanings) -> None:
    """Micro-batches of a pipeline: their number or their size."""
    count, size = m.field("num_microbatches"), m.field("microbatch_size")
    batch = m.field("batch_size")
    names = ("num_microbatches", "microbatch_size", "batch_size")
    told = m.is_stated(*names[:2])
    m.give("pipeline_batch_stated", told or not m.is_stated("pp_size"), *names[:2])
    if isinstance(count, int) and count > 0:
        m.give("num_microbatches", count, *names)
        m.give("gradient_accumulation_steps", count, *names)
        if isinstance(batch, int):
            m.give("micro_batch_size", max(batch // count, 1), *names)
    elif isinstance(size, int) and size > 0:
        m.give("micro_batch_size", size, *names)
        if isinstance(batch, int):
            m.give("num_microbatches", max(batch // size, 1), *names)
            m.give("gradient_accumulation_steps", max(batch // size, 1), *names)
    elif isinstance(batch, int):
        m.give("micro_batch_size", batch, *names)


def _precision(m: Meanings) -> None:
    """Weights in 16 bits with fp32 copies in the optimizer, unless trained in fp32."""
    word = str(m.value("precision", "fp16"))
    wide = word == "fp32"
    m.follow("precision", "fp8" if m.value("fp8") else word, "precision", "fp8")
    m.follow("bf16", word == "bf16", "precision")
    m.follow("fp16", word == "fp16", "precision")
    width = 4 if wide else 2
    for variable in ("param_bytes", "grad_bytes"):
        m.follow(variable, width, "precision")
    wire = str(m.field("communication_dtype") or "")
    m.give("reduce_bytes", 4 if "float32" in wire else width, "communication_dtype", "precision")
    m.give("master_weights", not wide and m.field("master_weights") is not False, "precision")
    m.give("pads_vocab", True, "make_vocab_size_divisible_by")
    rows, unit = m.value("vocab_size"), m.value("make_vocab_size_divisible_by")
    if isinstance(rows, int) and isinstance(unit, int) and m.count("tp") > 1 and unit > 0:
        whole = unit * m.count("tp")
        m.follow("padded_vocab_size", -(-rows // whole) * whole, "vocab_size")
    if not m.field("enable_all_optimization"):
        flash = bool(m.field("enable_flash_attention"))
        m.give("flash_attention", flash, "enable_flash_attention")
    else:
        m.give("flash_attention", True, "enable_all_optimization")
