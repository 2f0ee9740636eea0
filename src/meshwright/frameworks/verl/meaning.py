"""What a verl configuration means beyond its table.

Units: the batch of a step (`data.train_batch_size`) and of an update (`ppo_mini_batch_size`) count
prompts over all GPUs, each answered `rollout.n` times; the micro-batch counts samples on one GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.frameworks.meanings import Meanings, with_files
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

ACTOR = "actor_rollout_ref.actor."
MODEL = "actor_rollout_ref.model."
OVERRIDES = ACTOR + "optim.override_optimizer_config."
ROLLOUT = "actor_rollout_ref.rollout."
MEGATRON_WORDS = ("ppo_megatron_trainer", "megatron")
_FUSED_CHUNKS = 8
_MOST_SAMPLES = 10**7
_MESH = ("tp", "pp", "cp", "ep", "etp", "sequence_parallel", "use_distributed_optimizer")


@dataclass(frozen=True, slots=True)
class Names:
    """Where one trainer keeps what all of them have."""

    strategy: str
    fsdp: str  # prefix of the FSDP settings
    megatron: str  # prefix of the Megatron settings
    model: tuple[str, ...]
    ulysses: tuple[str, ...]
    checkpointing: str
    padding: tuple[str, ...]
    micro: tuple[str, ...]
    lora: str
    rate: str


PPO = Names(
    ACTOR + "strategy",
    ACTOR + "fsdp_config.",
    ACTOR + "megatron.",
    (MODEL + "path",),
    (
        ACTOR + "ulysses_sequence_parallel_size",
        ACTOR + "fsdp_config.ulysses_sequence_parallel_size",
    ),
    MODEL + "enable_gradient_checkpointing",
    (MODEL + "use_remove_padding", ACTOR + "use_remove_padding"),
    (ACTOR + "ppo_micro_batch_size_per_gpu", ACTOR + "ppo_micro_batch_size"),
    MODEL + "lora_rank",
    ACTOR + "optim.lr",
)
ENGINE = Names(
    "engine.strategy",
    "engine.",
    "engine.",
    ("model.path", "model.partial_pretrain"),
    ("engine.ulysses_sequence_parallel_size", "engine.ulysses_parallel_size"),
    "model.enable_gradient_checkpointing",
    ("model.use_remove_padding", "engine.use_remove_padding"),
    ("data.micro_batch_size_per_gpu", "data.micro_batch_size"),
    "model.lora_rank",
    "optim.lr",
)
SFT = Names(
    "model.strategy",
    "model.fsdp_config.",
    "engine.",
    ("model.partial_pretrain", "model.path"),
    ("ulysses_sequence_parallel_size",),
    "model.enable_gradient_checkpointing",
    ("use_remove_padding",),
    ("data.micro_batch_size_per_gpu", "data.micro_batch_size"),
    "model.lora_rank",
    "optim.lr",
)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give, or gives in verl's units."""
    m = Meanings(*with_files(config, values))
    names = _names(m)
    _machine(m)
    _lengths(m, names)
    below = "megatron" if _runs_megatron(m, names) else "fsdp"
    m.give("rl_backend", _back_end(m, names) or below, names.strategy)
    if below == "megatron":
        _megatron(m, names)
    else:
        _fsdp(m, names)
    _common(m, names)
    _batch(m, names)
    return m.given


def _names(m: Meanings) -> Names:
    """Which trainer a configuration is for."""
    stated = list(m.config.settings)
    if any(name.startswith("actor_rollout_ref.") for name in stated):
        return PPO
    programs = " ".join(m.config.programs)
    if any(name.startswith("engine.") for name in stated) or "engine" in programs:
        return ENGINE
    sft = ("model.partial_pretrain", "ulysses_sequence_parallel_size", "data.balance_dp_token")
    return SFT if m.is_stated(*sft) or "sft" in programs else PPO


def _back_end(m: Meanings, names: Names) -> str:
    """What trains, as stated: "fsdp2", "megatron", "veomni"; "" where nothing states it."""
    stated = (m.config.stated(name) for name in (names.strategy, "engine", "model_engine"))
    return next((word.lower() for word in stated if isinstance(word, str)), "")


def _runs_megatron(m: Meanings, names: Names) -> bool:
    """Whether Megatron is below: asked for, or configured."""
    for name in (names.strategy, "engine", "model_engine"):
        if isinstance(strategy := m.config.stated(name), str):
            return strategy.lower() == "megatron"
    asked = f"{m.config.stated('config_name')} {' '.join(m.config.programs)}"
    if any(word in asked for word in MEGATRON_WORDS):
        return True
    own = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    return m.is_stated(*(names.megatron + name for name in own))


def _machine(m: Meanings) -> None:
    """GPUs of all nodes."""
    nodes, per_node = m.value("num_nodes"), m.value("gpus_per_node")
    stated = m.is_stated("trainer.n_gpus_per_node")
    if stated and isinstance(nodes, int) and isinstance(per_node, int):
        m.follow("num_gpus", nodes * per_node, "num_nodes", "gpus_per_node")
    if not stated and not m.stating("gpus_per_node"):
        m.give("gpus_per_node", UNKNOWN)


def _lengths(m: Meanings, names: Names) -> None:
    """A sequence is a prompt with its answer."""
    parts = ("data.max_prompt_length", "data.max_response_length")
    m.give("pads_sequences", True)
    if names is PPO:
        lengths = [m.field(name) for name in parts]
        if all(isinstance(n, int) for n in lengths) and m.is_stated(*parts):
            m.give("seq_len", sum(lengths), *parts)
    elif m.is_stated("data.max_length"):
        m.give("seq_len", m.field("data.max_length"), "data.max_length")


# Back ends


def _megatron(m: Meanings, names: Names) -> None:
    """bf16 weights with fp32 copies in the optimizer, whose states are sharded."""
    chunks = names.megatron + "virtual_pipeline_model_parallel_size"
    vpp = m.field(chunks)
    m.give("vpp", vpp if isinstance(vpp, int) and vpp > 1 and m.count("pp") > 1 else 1, chunks)
    m.give("schedule", "interleaved" if m.count("vpp") > 1 else "1f1b", chunks)
    sharded = bool(m.value("use_distributed_optimizer", True))
    m.follow("zero_stage", 1 if sharded else 0, "use_distributed_optimizer")
    if m.value("etp") is None:
        m.follow("etp", m.count("tp"), "tp")
    m.follow(
        "sequence_parallel",
        m.count("tp") > 1 and bool(m.value("sequence_parallel", True)),
        "sequence_parallel",
    )
    m.give("ulysses", 1)
    m.give("param_bytes", 2)
    _gradients(m, names.megatron + "override_ddp_config.")
    m.give("master_weights", True)
    method, layers = m.value("recompute_method"), m.value("recompute_num_layers")
    if m.value("recompute") is None:
        m.give("recompute", "none")
    if m.value("recompute") == "full" and isinstance(layers, int):
        uniform = method == "uniform"
        every = uniform and layers == 1  # each layer by itself: all of them
        m.follow("recompute_layers", 0 if every else layers, "recompute_num_layers")
        m.follow("recompute_uniform", uniform and not every, "recompute_method")
    if _world(m):
        others = m.count("tp") * m.count("pp") * m.count("cp")
        m.follow("dp", max((_world(m) or 1) // others, 1), "gpus_per_node", "num_nodes")


def _gradients(m: Meanings, ddp: str) -> None:
    """Width and overlap: verl/utils/megatron_utils.py sums in fp32 and overlaps nothing."""
    wide = m.field(ddp + "grad_reduce_in_fp32")
    for variable in ("grad_bytes", "reduce_bytes"):
        m.give(variable, 2 if wide is False else 4, ddp + "grad_reduce_in_fp32")
    for variable in ("overlap_grad_reduce", "overlap_param_gather"):
        m.give(variable, m.field(ddp + variable) is True, ddp + variable)


_MODULES = {
    "core_attn": "core-attention",
    "mlp": "mlp",
    "layernorm": "norm",
    "moe_act": "moe-activation",
    "moe": "moe",
    "shared_experts": "shared-experts",
    "mla_up_proj": "mla-up-projection",
}


def _modules(m: Meanings) -> list[str]:
    stated = m.value("recompute_modules", [])
    return [_MODULES[x] for x in stated if x in _MODULES] if isinstance(stated, list) else []


def _fsdp(m: Meanings, names: Names) -> None:
    """Parameters in fp32 unless told otherwise, cast when gathered; Ulysses splits sequences."""
    for variable in _MESH:
        m.give(variable, False if variable in _MESH[-2:] else 1)
    degree = next((m.field(n) for n in names.ulysses if m.is_stated(n)), None)
    degree = m.field(*names.ulysses) if degree is None else degree
    degree = degree if isinstance(degree, int) and degree > 0 else 1
    for variable in ("ulysses", "cp"):
        m.give(variable, degree, *names.ulysses)
    m.give("context_parallel", "ulysses", *names.ulysses)
    m.give("zero_stage", 3, names.strategy)
    _sharding_group(m, names, degree)
    width = 2 if "16" in str(m.field(names.fsdp + "model_dtype") or "fp32") else 4
    for variable in ("param_bytes", "grad_bytes", "optimizer_state_bytes"):
        m.give(variable, width, names.fsdp + "model_dtype")
    wire = names.fsdp + "mixed_precision.reduce_dtype"
    m.give("reduce_bytes", 2 if "16" in str(m.config.stated(wire)) else 4, wire)
    m.give("master_weights", False)
    policy = names.fsdp + "offload_policy"
    offloads = bool(m.field(policy))
    m.give("offload_params", offloads, policy)
    m.give("offload_optimizer", 1.0 if offloads else 0.0, policy)
    m.give("recompute", "full" if m.field(names.checkpointing) else "none", names.checkpointing)
    m.give("overlap_grad_reduce", True)
    m.give("overlap_param_gather", True)


def _sharding_group(m: Meanings, names: Names, degree: int) -> None:
    """Replicas of the sharding group, where the group is smaller than the job."""
    world, size = _world(m), m.field(names.fsdp + "fsdp_size")
    if world:
        m.follow("dp", max(world // degree, 1), "gpus_per_node", "num_nodes")
        whole = isinstance(size, int) and 0 < size < world and world % size == 0
        m.give("dp_replicate", world // size if whole else 1, names.fsdp + "fsdp_size")
    elif isinstance(size, int) and size > 0:
        m.give("dp_shard", size, names.fsdp + "fsdp_size")


def _world(m: Meanings) -> int | None:
    gpus = m.value("num_gpus")
    return gpus if isinstance(gpus, int) and gpus > 0 else None


# What both have


def _common(m: Meanings, names: Names) -> None:
    """Model, arithmetic, packing."""
    path = m.field(*names.model)
    if m.is_stated(*names.model) and isinstance(path, str):
        m.give("model_name", path, *names.model)
    dtypes = (names.megatron + "dtype", names.fsdp + "dtype")
    half = "fp16" if "float16" in [m.config.stated(name) for name in dtypes] else "bf16"
    m.give("precision", half, *dtypes)
    m.give(half, True, *dtypes)
    m.give("flash_attention", True)
    m.give("optimizer", "adam")
    unpadded = bool(m.field(*names.padding))
    m.give("remove_padding", unpadded, *names.padding)
    m.give("packed", unpadded, *names.padding)
    m.give("document_mask", unpadded, *names.padding)
    rank = m.field(names.lora)
    m.give("lora_rank", rank if isinstance(rank, int) else 0, names.lora)
    m.give("masked_loss", True)
    fused = MODEL + "use_fused_kernels"
    m.give("fused_loss", True)
    m.give("loss_chunks", _FUSED_CHUNKS if m.field(fused) else 1, fused)
    if m.value("recompute_modules") is not None:
        m.follow("recompute_modules", _modules(m), "recompute_modules")
    _optimizer_offload(m, names)
    interval = m.value("checkpoint_interval_steps")
    if not isinstance(interval, int) or interval < 1:
        m.follow("checkpoint_interval_steps", None, "checkpoint_interval_steps")
    m.give("resume", m.field("trainer.resume_mode") == "resume_path", "trainer.resume_mode")


def _optimizer_offload(m: Meanings, names: Names) -> None:
    """States on the host: between phases, or in training too (Megatron's optimizer)."""
    resting = (names.fsdp + "optimizer_offload", names.megatron + "optimizer_offload")
    training = OVERRIDES + "optimizer_cpu_offload"
    share = OVERRIDES + "optimizer_offload_fraction"
    held = bool(m.config.stated(training))
    m.give("optimizer_offload", held or bool(m.field(*resting)), *resting, training)
    if held:
        part = m.config.stated(share)
        part = float(part) if isinstance(part, int | float) and 0 <= part <= 1 else 1.0
        m.give("offload_optimizer", part, training, share)


def _batch(m: Meanings, names: Names) -> None:
    """Samples of an update are the global batch; a step makes several updates."""
    if names is PPO:
        _prompts(m)
    else:
        m.give("rollout_batch_size", UNKNOWN)
        m.give("mini_batch_size", UNKNOWN)
        if m.is_stated("data.train_batch_size"):
            batch = m.field("data.train_batch_size")
            m.give("global_batch_size", batch, "data.train_batch_size")
    _micro_batch(m, names)
    if names is PPO:
        _accumulation(m)


def _prompts(m: Meanings) -> None:
    """Samples of a step and of an update, each prompt answered several times."""
    prompts, mini, answers = (
        m.value(v) for v in ("rollout_batch_size", "mini_batch_size", "rollout_n")
    )
    if not all(isinstance(n, int) and n > 0 for n in (prompts, mini, answers)):
        return
    m.follow("samples_per_step", prompts * answers, "rollout_batch_size", "rollout_n")
    m.follow("global_batch_size", mini * answers, "mini_batch_size", "rollout_n")
    m.follow("updates_per_step", prompts / mini, "rollout_batch_size", "mini_batch_size")
    if isinstance(dp := m.value("dp"), int):
        m.follow("samples_per_rank", mini * answers / dp, "mini_batch_size", "rollout_n")


def _micro_batch(m: Meanings, names: Names) -> None:
    """Samples of a forward pass: stated by GPU or for all, or what a budget of tokens holds."""
    seq_len, budget = m.value("seq_len"), m.value("max_token_len_per_gpu")
    if m.value("dynamic_batch_size", False):
        if isinstance(seq_len, int) and isinstance(budget, int) and seq_len > 0:
            samples = max(budget * m.count("cp") // seq_len, 1)
            m.follow("micro_batch_size", _whole_share(m, samples), "max_token_len_per_gpu")
        return
    per_gpu, overall = (m.config.stated(name) for name in names.micro)
    if isinstance(per_gpu, int) and per_gpu > 0:
        m.give("micro_batch_size", per_gpu, names.micro[0])
    elif isinstance(overall, int) and overall > 0 and (world := _world(m)):
        m.give("micro_batch_size", max(overall // world, 1), names.micro[1])


def _whole_share(m: Meanings, samples: int) -> int:
    """The most samples, `samples` at most, that share out those of a rank without a rest.

    Micro-batches that are filled up to a budget of tokens differ in size, so none can be left over.
    """
    batch, dp = m.value("global_batch_size"), m.value("dp")
    if not isinstance(batch, int) or not 0 < batch <= _MOST_SAMPLES:
        return samples
    if not isinstance(dp, int):
        return int(2 ** (samples.bit_length() - 1))
    if batch % dp:
        return 1
    share = batch // dp
    return next(n for n in range(min(samples, share), 0, -1) if share % n == 0)


def _accumulation(m: Meanings) -> None:
    """Forward passes of a rank in one update."""
    micro, share = m.value("micro_batch_size"), m.value("samples_per_rank")
    if share is None or not isinstance(micro, int) or m.value("dynamic_batch_size", False):
        return
    passes = share / micro
    m.follow("accumulation_steps", passes, "micro_batch_size", "mini_batch_size")
    if passes == int(passes) and passes >= 1:
        m.follow("gradient_accumulation_steps", int(passes), "micro_batch_size")
