"""What a torchtitan configuration means beyond its table."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.meanings import Meanings, with_files
from meshwright.frameworks.setting import UNKNOWN, Value
from meshwright.frameworks.torchtitan.model import give_model, is_before, spec_text
from meshwright.frameworks.torchtitan.recipes import with_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

P = "parallelism."
REPLICATE = (P + "data_parallel_replicate_degree", "training.data_parallel_replicate_degree")
SHARD = (
    P + "data_parallel_shard_degree",
    "training.data_parallel_shard_degree",
    "training.data_parallel_degree",
)
PIPELINE = (P + "pipeline_parallel_degree", "experimental.pipeline_parallel_degree")
SCHEDULE = (P + "pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
LOCAL_BATCH = ("training.local_batch_size", "training.batch_size")
MICRO_BATCH = P + "pipeline_parallel_microbatch_size"
RESHARD = P + "fsdp_reshard_after_forward"
LAYERS_PER_STAGE = P + "pipeline_parallel_layers_per_stage"
MODULES = P + "module_fqns_per_model_part"
AC_MODE, AC_OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
CONVERTERS = ("model.converters", "model_spec.converters")

# PyTorch's schedule classes (torch.distributed.pipelining.schedules, 2.13), our word for them, and
# whether a rank holds several stages. Interleaved zero bubble has 1F1B's memory and order.
SCHEDULES: Mapping[str, tuple[str, bool]] = {
    "1f1b": ("1f1b", False),
    "gpipe": ("gpipe", False),
    "interleaved1f1b": ("interleaved", True),
    "interleavedzerobubble": ("interleaved", True),
    "loopedbfs": ("interleaved", True),
    "zbvzerobubble": ("zb-v", True),
    "dualpipev": ("dualpipe-v", True),
}
RUNTIME_SCHEDULES = (
    "pipelineschedulesingle",
    "pipelineschedulemulti",
    "_pipelinescheduleruntime",
)
AC_CLASSES = {"fullac": "full", "selectiveac": "selective", "memorybudgetac": "memory_budget"}
LOSS_CHUNKS = 8  # of ChunkedLossWrapper, unless told otherwise
_FEWER_STAGES = (
    P + "pipeline_parallel_first_stage_less_layers",
    P + "pipeline_parallel_last_stage_less_layers",
)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give, or gives in torchtitan's units."""
    full, stated = with_recipe(*with_files(config, values))
    m = Meanings(full, stated)
    give_model(m)
    _mesh(m)
    _batch(m)
    _pipeline(m)
    _sharding(m)
    _precision(m)
    _recompute(m)
    _checkpoints(m)
    _runtime(m)
    recipe = {name: value for name, value in stated.items() if values.get(name) != value}
    return {**recipe, **m.given}


# Mesh and batch


def _mesh(m: Meanings) -> None:
    """Shard and data-parallel degrees; -1 takes what the other axes leave of the GPUs."""
    shard = m.value("dp_shard", -1)
    replicate = m.count("dp_replicate")
    m.give("dp_shard_auto", shard == -1, *SHARD)
    if shard == -1:
        world = _world(m)
        others = replicate * m.count("tp") * m.count("pp") * m.count("cp")
        m.give("dp_shard", max(world // others, 1) if world else UNKNOWN, *SHARD)
    if isinstance(shard, int) and (known := m.value("dp_shard")) is not None:
        m.give("dp", replicate * known, *REPLICATE, *SHARD)
    if not m.is_stated(P + "expert_tensor_parallel_degree"):
        m.give("etp", 1)
    else:
        m.follow("etp_explicit", m.value("etp"), "etp")
    m.follow("sequence_parallel", _sequence_parallel(m), "sequence_parallel")


def _world(m: Meanings) -> int | None:
    """GPUs of the job, where launcher or remark says so."""
    gpus = m.value("num_gpus")
    per_node, nodes = m.value("gpus_per_node"), m.value("num_nodes")
    if isinstance(per_node, int) and (gpus is None or isinstance(nodes, int)):
        gpus = per_node * (nodes or 1)
        m.follow("num_gpus", gpus, "gpus_per_node", "num_nodes")
    return gpus if isinstance(gpus, int) and gpus > 0 else None


def _sequence_parallel(m: Meanings) -> bool:
    """Part of tensor parallelism; 0.3 can turn it off."""
    return m.count("tp") > 1 and bool(m.value("sequence_parallel", True))


def _batch(m: Meanings) -> None:
    """Micro-batch, accumulation and global batch.

    `local_batch_size` is of a data-parallel rank; a pipeline cuts it into micro-batches.
    """
    local, pp = m.value("local_batch_size"), m.count("pp")
    names: tuple[str, ...] = LOCAL_BATCH
    micro = local
    if pp > 1:
        micro, names = _pipeline_micro_batch(m, local, pp)
    if micro is not None:
        m.give("micro_batch_size", micro, *names)
    if not (isinstance(local, int) and isinstance(micro, int) and micro > 0 and local > 0):
        return
    passes = max(local // micro, 1)
    if pp > 1:
        m.give("num_microbatches", passes, *names, *LOCAL_BATCH)
    stated, dp = m.field("training.global_batch_size"), m.value("dp")
    m.give("gbs_explicit", isinstance(stated, int) and stated > 0, "training.global_batch_size")
    if isinstance(stated, int) and stated > 0:
        m.give("global_batch_size", stated, "training.global_batch_size")
        if dp:
            m.give("gradient_accumulation_steps", max(stated // (local * dp), 1))
    else:
        m.follow("gradient_accumulation_steps", passes, "local_batch_size")
        if dp:
            m.follow("global_batch_size", local * dp, "local_batch_size")
    _length(m)


def _pipeline_micro_batch(m: Meanings, local: Any, pp: int) -> tuple[Any, tuple[str, ...]]:
    """The micro-batch of a pipeline: stated, or the local batch over their number (0.0)."""
    if not is_before(m, "0.1"):
        return m.field(MICRO_BATCH), (MICRO_BATCH,)
    count = m.field("experimental.pipeline_parallel_microbatches") or pp
    names = ("experimental.pipeline_parallel_microbatches", *LOCAL_BATCH)
    whole = isinstance(local, int) and isinstance(count, int) and count > 0
    return (max(local // count, 1) if whole else local), names


def _length(m: Meanings) -> None:
    """Tokens of the whole run, where its steps are stated."""
    steps, batch, seq_len = m.value("train_iters"), m.value("global_batch_size"), m.value("seq_len")
    if m.is_stated("training.steps") and all(isinstance(x, int) for x in (steps, batch, seq_len)):
        m.give("train_tokens", float(steps * batch * seq_len), "training.steps")


# Pipeline


def _pipeline(m: Meanings) -> None:
    """Schedule, stages a rank, and how layers are shared out."""
    named = str(m.field(*SCHEDULE) or "1F1B")
    known = SCHEDULES.get(named.lower())
    csv = m.value("pp_schedule_csv")
    runtime = named.lower() in RUNTIME_SCHEDULES
    m.give("schedule_class", named, *SCHEDULE)
    m.give("schedule_name_unknown", known is None and not runtime, *SCHEDULE)
    if csv:
        m.give(
            "pp_schedule_csv_exists", _is_file(m, str(csv)), P + "pipeline_parallel_schedule_csv"
        )
    word, looped = known or ("1f1b", runtime and not named.lower().endswith("single"))
    m.give("schedule", word if m.count("pp") > 1 else "1f1b", *SCHEDULE)
    _stages(m, looped=looped)


def _is_file(m: Meanings, name: str) -> bool:
    from pathlib import Path

    files = [s.file for s in m.config.sources]
    try:
        return any((Path(f).parent / name).is_file() for f in files) or Path(name).is_file()
    except (OSError, ValueError):
        return False


def _stages(m: Meanings, *, looped: bool) -> None:
    """Stages of a rank: two under schedules that loop, else one, or as the layers a stage say."""
    pp, layers = m.count("pp"), _layers(m)
    m.give("embedding_in_split", _counts(m, "first_stage_less_layers") == 1, _FEWER_STAGES[0])
    m.give("loss_in_split", _counts(m, "last_stage_less_layers") == 1, _FEWER_STAGES[1])
    split = m.field(MODULES)
    per_stage = m.value("layers_per_stage")
    each = 2 if looped else 1
    names: tuple[str, ...] = SCHEDULE
    if isinstance(split, list) and split:
        each, names = max(len(split) // pp, 1), (MODULES,)
        _layout(m, split)
    elif isinstance(per_stage, int) and per_stage > 0 and layers:
        ends = _counts(m, "first_stage_less_layers") + _counts(m, "last_stage_less_layers")
        each, names = max(math.ceil((layers + ends) / per_stage) // pp, 1), (LAYERS_PER_STAGE,)
    if pp > 1:
        m.give("stages_per_rank", each, *names)
        m.give("num_stages", each * pp, *names, *PIPELINE)
        m.give("vpp", each, *names)
        _unequal_ends(m, layers, each * pp)


def _counts(m: Meanings, variable: str) -> int:
    """Layers that one end of the model counts for; older releases counted none."""
    value = m.value(variable, 0)
    return value if isinstance(value, int) else 0


def _layers(m: Meanings) -> int | None:
    """Layers of the model, where its name tells."""
    stated = m.value("num_hidden_layers")
    if isinstance(stated, int):
        return stated
    name = m.value("model_name")
    if not isinstance(name, str):
        return None
    from meshwright.model.catalogue import preset_config

    config = preset_config(name)
    found = config.get("num_hidden_layers") or config.get("text_config", {}).get(
        "num_hidden_layers"
    )
    return found if isinstance(found, int) else None


def _layout(m: Meanings, split: list[Any]) -> None:
    """Layers of every chunk, from the names of its modules ("layers.3")."""
    parts = [part for part in split if isinstance(part, list | tuple)]
    if len(parts) == len(split):
        counts = [sum(str(n).startswith("layers.") for n in part) for part in parts]
        m.give("layout", counts, MODULES)
        _count_no_ends(m)


def _count_no_ends(m: Meanings) -> None:
    """Where a layout says what every chunk holds, nothing is derived from the ends' slots."""
    m.give("embedding_in_split", False, _FEWER_STAGES[0])
    m.give("loss_in_split", False, _FEWER_STAGES[1])


def _unequal_ends(m: Meanings, layers: int | None, stages: int) -> None:
    """Layers of every chunk where an end counts for more than one layer."""
    ends = [_counts(m, v) for v in ("first_stage_less_layers", "last_stage_less_layers")]
    if layers and max(ends) > 1 and m.value("layout") is None:
        split = layers_by_stage(layers, stages, *ends)
        if split:
            m.give("layout", split, *_FEWER_STAGES)
            _count_no_ends(m)


def layers_by_stage(layers: int, stages: int, first_less: int, last_less: int) -> list[int]:
    """Layers of every stage, [] where a stage would hold none.

    torchtitan distributed/pipeline_parallel.py (0.3.0) _generate_llm_fqn_per_model_part: ends count
    as that many layers, the first stages get one more where it does not divide.
    """
    total = layers + first_less + last_less
    if stages < 2 or stages > total or max(first_less, last_less) > total // stages:
        return []
    slots = [total // stages + (i < total % stages) for i in range(stages)]
    slots[0] -= first_less
    slots[-1] -= last_less
    return slots


# Sharding, precision, recompute


def _sharding(m: Meanings) -> None:
    """FSDP over shard x context ranks; DDP where only replication is asked for."""
    shard, replicate = m.value("dp_shard"), m.count("dp_replicate")
    group = None if shard is None else shard * m.count("cp")
    names = (*SHARD, *REPLICATE)
    m.give("zero_stage", 0 if group == 1 and replicate > 1 else 3, *names)
    policy = m.field(RESHARD) or "default"
    reshard = policy == "always" or (policy == "default" and m.count("pp") == 1)
    m.give("reshard_after_forward", reshard, *(() if policy == "default" else (RESHARD,)))
    m.give("overlap_grad_reduce", True)
    m.give("overlap_param_gather", True)
    m.follow("overlap_tp", bool(m.value("async_tp", False)), "async_tp")
    overlapped = bool(m.value("overlap_ep", False)) and m.value("schedule") == "dualpipe-v"
    overlapped = overlapped and m.count("ep") > 1  # nothing is exchanged otherwise
    m.follow("overlap_ep", overlapped, "overlap_ep")
    offloaded = bool(m.value("offload_params", False))
    m.give("offload_optimizer", 1.0 if offloaded else 0.0, "training.enable_cpu_offload")
    m.give("optimizer_offload", offloaded, "training.enable_cpu_offload")
    rotate = m.field(P + "context_parallel_rotate_method")
    m.give(
        "context_parallel",
        "ring" if rotate == "alltoall" else "all-gather",
        P + "context_parallel_rotate_method",
    )


def _precision(m: Meanings) -> None:
    """Arithmetic and widths: FSDP2 holds parameters in `training.dtype`, casts what it gathers."""
    pure = m.field("training.dtype") == "bfloat16"
    wide = not pure and m.field("training.mixed_precision_param") == "float32"
    converters = " ".join(str(c).lower() for c in _converters(m))
    names = (*CONVERTERS, "model_spec", "training.mixed_precision_param", "training.dtype")
    precision = _quantized(m, converters) or ("fp32" if wide else "bf16")
    m.give("precision", precision, *names, "float8.enable_float8_linear", "training.fp8_linear")
    m.give("bf16", not wide, *names)
    m.give("fp8", precision in ("fp8", "mxfp8"), *CONVERTERS)
    m.give("fp8_recipe", _recipe_of(m, precision), *CONVERTERS, "float8.recipe_name")
    width = 2 if pure else 4
    states = m.field("optimizer.implementation") == "fused_opt_states_bf16"
    for variable in ("param_bytes", "grad_bytes"):
        m.give(variable, width, "training.dtype")
    m.give("optimizer_state_bytes", 2 if states or pure else 4, "optimizer.implementation")
    m.give("reduce_bytes", 4, "training.mixed_precision_reduce")
    m.give("grad_reduce_dtype", "fp32", "training.mixed_precision_reduce")
    m.give("master_weights", False, "training.dtype")
    m.give("optimizer", "adam", "optimizer.name")
    _adapters(m, converters)


def _converters(m: Meanings) -> list[Any]:
    stated = m.field(*CONVERTERS)
    listed = stated if isinstance(stated, list) else [stated] if stated else []
    return [*listed, *re.findall(r"\w+Converter\b[^\]]{0,80}", spec_text(m))]


def _quantized(m: Meanings, converters: str) -> str:
    """The narrow arithmetic that the converters bring in, "" for none."""
    if re.search(r"nvfp4", converters):
        return "nvfp4"
    if re.search(r"\bmx\b|mxfp8|linear\.mx", converters):
        return "mxfp8"
    old = m.field("float8.enable_float8_linear") is True or m.field("training.fp8_linear")
    return "fp8" if "float8" in converters or old else ""


def _recipe_of(m: Meanings, precision: str) -> str:
    if precision == "mxfp8":
        return "mxfp8"
    if precision != "fp8":
        return "none"
    names = ("quantize.linear.float8.recipe_name", "float8.recipe_name")
    stated = m.field(*names)
    default = "tensorwise" if is_before(m, "0.3") else "rowwise"
    return stated if isinstance(stated, str) and stated else default


def _adapters(m: Meanings, converters: str) -> None:
    """Low-rank adapters, whose converter has rank 8 unless told otherwise."""
    if "lora" in converters:
        found = re.search(r"rank\s*=\s*(\d{1,5})", converters)
        m.give("lora_rank", int(found.group(1)) if found else 8, *CONVERTERS)


def _recompute(m: Meanings) -> None:
    """What is recomputed: whole layers, every n-th of them, or all but the costly operators."""
    mode = _ac_mode(m)
    names = (AC_MODE, "activation_checkpoint")
    m.give("ac_mode", mode, *names)
    option = str(m.field(AC_OPTION) or "op") if is_before(m, "0.3") else "op"
    every = int(option) if option.isdigit() and len(option) < 6 else 0
    layers = _layers(m)
    if mode in ("none", "full") or (mode == "selective" and every == 1):
        m.give("recompute", "none" if mode == "none" else "full", *names, AC_OPTION)
    elif mode == "selective" and every > 1 and layers:
        m.give("recompute", "full", *names, AC_OPTION)
        each = -(-layers // m.count("pp"))
        m.give("recompute_layers", max(each // every, 1), *names, AC_OPTION)
    else:
        m.give("recompute", "selective", *names, AC_OPTION)
        m.give("recompute_modules", ["alternate-matmuls"], *names, AC_OPTION)


def _ac_mode(m: Meanings) -> str:
    stated = m.field(AC_MODE)
    if isinstance(stated, str) and stated:
        return stated.lower()
    kind = m.config.stated("activation_checkpoint")
    if "activation_checkpoint" in m.config.settings and kind is None:
        return "none"
    text = str(kind).lower()
    return next((mode for name, mode in AC_CLASSES.items() if name in text), "selective")


# Checkpoints and runtime


def _checkpoints(m: Meanings) -> None:
    """Checkpoints count only where they are turned on."""
    enabled = bool(m.field("checkpoint.enable", "checkpoint.enable_checkpoint"))
    names = ("checkpoint.enable", "checkpoint.enable_checkpoint")
    mode = str(m.field("checkpoint.async_mode") or "disabled").lower()
    if not enabled:
        m.give("checkpoint_interval_steps", None, *names)
        m.give("checkpoints_kept", None, *names)
        return
    m.give("ckpt_dir", m.field("checkpoint.folder"), "checkpoint.folder", *names)
    m.give("checkpoint_async", mode != "disabled", "checkpoint.async_mode")
    m.give("checkpoint_reshardable", True)
    m.give("dataloader_stateful", True)
    m.give("resume", m.is_stated("checkpoint.load_step", "checkpoint.initial_load_path"))


def _runtime(m: Meanings) -> None:
    """Garbage collection, vocabulary, fault tolerance."""
    m.give("manual_gc", bool(m.field("training.gc_freq")), "training.gc_freq")
    m.give("pads_vocab", False)
    m.give("uses_no_sync", False)
    if m.value("attention_backend"):
        m.follow("flash_attention", True, "attention_backend")
    loss = f"{m.config.stated('loss')} {' '.join(m.config.programs)}"
    if not m.is_stated("loss.num_chunks"):
        m.give("loss_chunks", LOSS_CHUNKS if "ChunkedLoss" in loss else 1, "loss")
    method = m.field("fault_tolerance.semi_sync_method")
    if isinstance(method, str) and method:
        m.give("synchronization", method.lower(), "fault_tolerance.semi_sync_method")
        steps = "fault_tolerance.sync_steps"
        m.give("sync_interval_steps", m.field(steps), steps)
