"""DeepSpeed's JSON, judged by `DeepSpeedConfig`: batches, ZeRO, precision, removed keys."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from comparing import Config, Subject

if TYPE_CHECKING:
    import random

FLAG = (False, True)
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
REMOVED = ("amp", "elasticity", "sparse_attention", "curriculum_learning", "progressive_layer_drop")
REMOVED_BELOW = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")
WRONG_BELOW = ("offload_optimizr", "stage3_max_live_params", "overlap")
WRONG = ("zero_optimisation", "micro_batch_size", "activation_checkpoint")

# dotted path of a setting -> the values that a perturbation may give it; None removes it
CHANGES: dict[str, tuple[Any, ...]] = {
    "zero_optimization.stage": (0, 1, 2, 3, 4),
    "zero_optimization.overlap_comm": FLAG,
    "zero_optimization.contiguous_gradients": FLAG,
    "zero_optimization.reduce_bucket_size": (0, 1_000_000, 500_000_000, 5e8),
    "zero_optimization.allgather_bucket_size": (0, 200_000_000, 2e8),
    "zero_optimization.compute_grad_norm": FLAG,
    "zero_optimization.sub_group_size": (0, 1_000_000_000, 1e9),
    "zero_optimization.round_robin_gradients": FLAG,
    "zero_optimization.zero_hpz_partition_size": (1, 8),
    "zero_optimization.zero_quantized_weights": FLAG,
    "zero_optimization.stage3_prefetch_bucket_size": (0, 50_000_000, 0.9 * 4096 * 4096),
    "zero_optimization.stage3_param_persistence_threshold": (0, 100_000, 10 * 4096),
    "zero_optimization.stage3_max_live_parameters": (1_000_000_000, 1e9),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": FLAG,
    "zero_optimization.offload_optimizer": ({"device": "cpu"}, {"device": "none"}, None),
    "zero_optimization.offload_optimizer.ratio": (0.3, 1.0, 1.5),
    "zero_optimization.offload_optimizer.pin_memory": FLAG,
    "zero_optimization.offload_param": (*[{"device": "none"}] * 3, {"device": "cpu"}),
    "zero_optimization.sub_group_sise": (1_000_000,),
    "fp16.enabled": FLAG,
    "fp16.opt_level": ("O2",),
    "bf16.loss_scale": (1.0,),
    "bf16.enable": FLAG,
    "fp16.loss_scale": (0, 128, -1),
    "fp16.initial_scale_power": (12, 16),
    "fp16.fp16_master_weights_and_grads": FLAG,
    "bf16.enabled": FLAG,
    "bf16.bf16_master_weights_and_grads": FLAG,
    "bf16.bf16_optimizer_states": FLAG,
    "gradient_allreduce_op": ("avg", "sum"),
    "gradient_clipping": (0.0, 1.0),
    "communication_data_type": ("fp16", "bf16", "fp32", "float16"),
    "data_types.grad_accum_dtype": ("fp32", "bf16"),
    "checkpoint.tag_validation": ("Warn", "Fail", "Ignore", "Strict"),
    "activation_checkpointing.partition_activations": FLAG,
    "activation_checkpointing.cpu_checkpointing": FLAG,
    "wall_clock_breakdown": FLAG,
    "steps_per_print": (10, 2000),
    "dataloader_drop_last": FLAG,
    "optimizer.params.lr": (1e-4, 6e-4),
}


def draw(rng: random.Random) -> Config:
    """A configuration near a legal one: batch sizes that fit, ZeRO, a precision, a few changes."""
    gpus = rng.choice((1, 4, 8, 16, 24))
    settings: dict[str, Any] = {
        **_batch(rng, gpus),
        "zero_optimization": {"stage": rng.choice((1, 2, 3))},
        rng.choice(("bf16", "fp16")): {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
    }
    for path in rng.sample(sorted(CHANGES), rng.randint(0, 4)):
        _put(settings, path, rng.choice(CHANGES[path]))
    if rng.random() < 0.2:
        _misspell(rng, settings)
    return {"gpus": gpus, "settings": settings}


def _batch(rng: random.Random, gpus: int) -> dict[str, int]:
    """Two or three of the batch sizes, most of the time consistent."""
    micro, steps = rng.choice((1, 2, 4)), rng.choice((1, 2, 8))
    sizes = dict(zip(BATCH, (micro * steps * gpus, micro, steps), strict=True))
    if rng.random() < 0.3:
        name = rng.choice(BATCH)
        sizes[name] = max(sizes[name] + rng.choice((-1, 1, 2)), 0)
    kept = rng.sample(BATCH, rng.choice((1, 2, 2, 3, 3)))
    return {name: sizes[name] for name in BATCH if name in kept}


def _put(settings: dict[str, Any], path: str, value: Any) -> None:
    """Sets what a dotted path names, with the groups above it."""
    *groups, name = path.split(".")
    for group in groups:
        if not isinstance(settings.get(group), dict):
            settings[group] = {}
        settings = settings[group]
    settings[name] = value
    if value is None:
        del settings[name]


def _misspell(rng: random.Random, settings: dict[str, Any]) -> None:
    """Adds a key that the release has dropped, or never had."""
    kind = rng.random()
    if kind < 0.3:
        settings[rng.choice(REMOVED)] = {"enabled": True}
    elif kind < 0.5:
        settings[rng.choice(WRONG)] = 4
    else:
        settings["zero_optimization"][rng.choice(REMOVED_BELOW + WRONG_BELOW)] = 8


def text(config: Config) -> str:
    """The JSON file."""
    return json.dumps(config["settings"], indent=2)


def judge(config: Config) -> None:
    """Builds a `DeepSpeedConfig` on a fake world of as many ranks as there are GPUs."""
    from deepspeed.runtime.config import DeepSpeedConfig

    world = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: config["gpus"])
    with mock.patch("deepspeed.runtime.config.dist", world):
        DeepSpeedConfig(json.loads(json.dumps(config["settings"])))


SUBJECT = Subject(
    name="deepspeed",
    framework="deepspeed",
    version="0.19.8",
    file="ds_config.json",
    draw=draw,
    text=text,
    judge=judge,
    accepted={
        r"^only we refuse: CMP207$": "parameters stay on the GPU below stage 3, though the file "
        "says otherwise: an option that is silently ignored is an error here",
    },
)
