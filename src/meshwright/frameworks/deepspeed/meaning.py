"""What a DeepSpeed JSON means: stage, precision, what lies on the host, batch.

Source: DeepSpeed 0.19.8, deepspeed/runtime/config.py, runtime/zero/config.py and the choice of
optimizer wrapper and dtypes in runtime/engine.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.deepspeed.refused import refused_values
from meshwright.frameworks.field import release
from meshwright.frameworks.hugging_face.mesh import give_context, give_plain
from meshwright.frameworks.hugging_face.optimizers import optimizer_word
from meshwright.frameworks.hugging_face.sharding import truth
from meshwright.frameworks.hugging_face.widths import autocast, bytes_of, single, widths
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.setting import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Setting

AUTO = "auto"
TRIAD = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
ZERO = "zero_optimization."
_REMOVED_INSIDE = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")
_TESTED = frozenset(  # optimizers that ZeRO wraps without being told that they are untested
    ("adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam", "muon", "lion", "adagrad")
)
_KERNEL_FIELDS = ("bf16.enabled", "fp16.enabled", "torch_autocast.enabled")


def meaning(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _unread_autos(m)
    _give_mesh(m)
    _give_stage(m)
    _give_offload(m)
    give_widths(m, arithmetic_of(config, "bf16" if leaves_precision(config) else "fp32"))
    _give_optimizer(m)
    _give_batch(m)
    _give_keys(m)
    return m.given


def _unread_autos(m: Meanings) -> None:
    """ "auto" is stated, but what it stands for is the trainer's."""
    table = m.config.framework.table
    for name, setting in m.config.settings.items():
        if setting.value == AUTO:
            known = table.find(name, m.config.version)
            if known is not None and known.variable:
                m.given[known.variable] = Value(value=UNKNOWN, settings=(setting,))


def _give_mesh(m: Meanings) -> None:
    m.give("use_deepspeed", True)
    m.give("tp", max(_whole(m.field("tensor_parallel.autotp_size")), 1), *_of("autotp_size"))
    on = truth(m.field("expert_parallel.enabled"))
    m.give("ep", m.count("ep") if on else 1, *_of("autoep_size", "enabled"))
    stages = m.field("pipeline.stages")
    if isinstance(stages, int) and not isinstance(stages, bool) and stages > 0:
        m.give("pp", stages, "pipeline.stages")
    give_context(m)
    if truth(m.field("tensor_parallel.vocab_parallel_lm_head")):
        m.give("vocab_parallel", True, "tensor_parallel.vocab_parallel_lm_head")
        m.give("loss_parallel", True, "tensor_parallel.vocab_parallel_lm_head")
    give_plain(m)


def _of(*leaves: str) -> tuple[str, ...]:
    groups = {"autotp_size": "tensor_parallel"}
    return tuple(f"{groups.get(leaf, 'expert_parallel')}.{leaf}" for leaf in leaves)


def _give_stage(m: Meanings) -> None:
    """Stage of ZeRO, and what is overlapped: by default only stage 3 overlaps."""
    flat = m.config.settings.get("zero_optimization")
    if flat is not None and isinstance(flat.value, bool):  # the oldest way to write it
        m.give("zero_stage", int(flat.value), "zero_optimization")
    stage = m.count("zero_stage", 0)
    overlapped = truth(m.field(ZERO + "overlap_comm"))
    overlaps = stage == 3 if overlapped is None else overlapped
    m.give("overlap_comm", overlaps, ZERO + "overlap_comm")
    m.give("overlap_grad_reduce", overlaps, ZERO + "overlap_comm")
    m.give("overlap_param_gather", stage == 3, ZERO + "stage")
    bucket = m.value("reduce_bucket_size")
    if stage and isinstance(bucket, int):
        m.follow("bucket_elements", bucket, "reduce_bucket_size")
    universal = truth(m.field("checkpoint.load_universal"))
    m.give("checkpoint_reshardable", bool(universal), "checkpoint.load_universal")


def _give_offload(m: Meanings) -> None:
    """Optimizer states and weights on the host or on disk, by the new names and the old."""
    for part, old in (("offload_optimizer", "cpu_offload"), ("offload_param", "cpu_offload_param")):
        name = f"{ZERO}{part}.device"
        away = str(m.field(name)) in ("cpu", "nvme") or bool(truth(m.field(ZERO + old)))
        where = (name, ZERO + old)
        if part == "offload_param":
            m.give("offload_params", away, *where)
            continue
        m.give("optimizer_offload", away, *where)
        ratio = m.value("offload_optimizer_ratio", 1.0)
        share = float(ratio) if isinstance(ratio, int | float) else 1.0
        m.give("offload_optimizer", share if away else 0.0, *where)
    if truth(m.field("activation_checkpointing.cpu_checkpointing")):
        m.give("offload_activations", 1.0, "activation_checkpointing.cpu_checkpointing")


# Precision


def arithmetic_of(config: Config, otherwise: str = "fp32") -> str:
    """ "bf16", "fp16" or "fp32"; `otherwise` where the JSON leaves it to the trainer."""
    for name, word in (("bf16.enabled", "bf16"), ("fp16.enabled", "fp16")):
        if truth(config.stated(name)):
            return word
    if truth(config.stated("torch_autocast.enabled")):
        return "fp16" if bytes_word(config.stated("torch_autocast.dtype")) == "fp16" else "bf16"
    if otherwise == "fp32":
        return otherwise
    own = config.settings.get(f"{otherwise}.enabled")
    left = own is None or own.value == AUTO
    return otherwise if left else "fp32"


def leaves_precision(config: Config) -> bool:
    """Whether "auto" leaves bf16 to the trainer, and nothing else states the arithmetic."""
    setting = config.settings.get("bf16.enabled")
    return setting is not None and setting.value == AUTO and arithmetic_of(config) == "fp32"


def bytes_word(dtype: Any) -> str:
    """ "fp16", "bf16" or "fp32" for a dtype by any name, "" for none."""
    word = str(dtype).lower().removeprefix("torch.")
    names = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32"}
    word = names.get(word, word)
    return word if word in ("fp16", "bf16", "fp32") else ""


def give_widths(m: Meanings, precision: str, *more: str) -> None:
    """The bytes of every copy of a parameter under an arithmetic."""
    found = _widths(m.config, precision)
    where = _KERNEL_FIELDS + more
    for variable, value in found.items():
        m.give(variable, value, *where)
    for half in _HALF:  # both, where both are stated: DeepSpeed refuses the pair
        m.give(half, precision == half or truth(m.config.stated(f"{half}.enabled")) is True, *where)


def _widths(config: Config, precision: str) -> dict[str, Any]:
    """Plan fields; gradients are kept and reduced as wide as the weights unless told otherwise."""
    wire = config.stated("communication_data_type")
    if precision == "fp32":
        return single() | {"reduce_bytes": bytes_of(wire, 4)}
    halves = truth(config.stated("bf16.enabled")), truth(config.stated("fp16.enabled"))
    if truth(config.stated("torch_autocast.enabled")) and not any(halves):
        return autocast(precision, reduce=bytes_of(wire, 2))
    narrow = any(truth(config.stated(f"{p}.{p}_master_weights_and_grads")) for p in _HALF)
    states = truth(config.stated("bf16.bf16_optimizer_states"))
    return widths(
        precision,
        param=2,
        grad=bytes_of(config.stated("data_types.grad_accum_dtype"), 2),
        reduce=bytes_of(wire, 2),
        state=2 if states else 4,
        master=not narrow,
    )


_HALF = ("bf16", "fp16")


# Optimizer, batch, keys


def _give_optimizer(m: Meanings) -> None:
    stated = m.config.stated("optimizer.type")
    if not isinstance(stated, str):
        return
    word = optimizer_word(stated)
    if word == "sgd" and m.config.stated("optimizer.params.momentum"):
        word = "sgd-momentum"
    m.give("optimizer", word if word is not None else UNKNOWN, "optimizer.type")
    m.give("ds_optimizer", stated, "optimizer.type")
    plain = stated.lower().replace("_", "")
    m.give("optimizer_zero_tested", plain in _TESTED, "optimizer.type")
    m.give("client_optimizer", False, "optimizer.type")
    prefix = "optimizer.params."
    params = {n: s for n, s in m.config.settings.items() if n.startswith(prefix)}
    m.give("ds_optimizer_params", {n[len(prefix) :]: s.value for n, s in params.items()}, *params)


def _give_batch(m: Meanings) -> None:
    """The triad as stated (None where it is not), and what follows from it."""
    for name in TRIAD:
        if name not in m.config.settings:
            m.give(name, None)
    whole, micro, steps = (m.value(name) for name in TRIAD)
    if isinstance(micro, int) and micro > 0:
        m.follow("micro_batch_size", micro, TRIAD[1])
        if steps is None and whole is None and TRIAD[2] not in m.config.settings:
            m.give(TRIAD[2], 1)
    if isinstance(whole, int) and whole > 0:
        m.follow("global_batch_size", whole, TRIAD[0])
        _give_micro_batch(m, whole, micro, steps)


def _give_micro_batch(m: Meanings, whole: int, micro: Any, steps: Any) -> None:
    """The micro-batch that DeepSpeed computes where only the whole batch is stated."""
    world = m.value("num_gpus")
    if micro is not None or m.is_unreadable(TRIAD[1]) or not isinstance(world, int):
        return
    replicas = max(world // (m.count("tp") * m.count("pp") * m.count("cp")), 1)
    size = whole // replicas // (steps if isinstance(steps, int) and steps > 0 else 1)
    if size > 0:
        m.follow("micro_batch_size", size, TRIAD[0], TRIAD[2])


def _give_keys(m: Meanings) -> None:
    """The keys that stand in the JSON, and those inside zero_optimization that no release knows."""
    names = [*m.config.settings, *(s.spelled for s in m.config.unknown)]
    heads = list(dict.fromkeys(name.split(".")[0] for name in names))
    inside = [key for key in _REMOVED_INSIDE if any(n.startswith(ZERO + key) for n in names)]
    m.give("ds_config_keys", [*heads, *inside], *m.config.settings)
    strange = _strange(m.config)
    keys = [s.spelled.removeprefix(ZERO) for s in strange]
    m.given["ds_unknown_zero_keys"] = Value(value=keys, settings=tuple(strange))
    refused = refused_values(m.config.settings)
    m.give("ds_refused_values", refused, *refused)


def _strange(config: Config) -> list[Setting]:
    """Keys of the sections that take no others than their own, which the release does not know."""
    version = config.version
    strict = (ZERO,) if version and release(version) < (0, 19) else (ZERO, "bf16.", "fp16.")
    table = config.framework.table
    outdated = [
        s
        for s in config.settings.values()
        if (known := table.find(s.spelled, version)) and not known.exists_in(version)
    ]
    inside = [s for s in (*config.unknown, *outdated) if s.spelled.startswith(strict)]
    return [s for s in inside if not s.spelled.removeprefix(ZERO).startswith(_REMOVED_INSIDE)]


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
