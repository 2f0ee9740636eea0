"""torchtitan's command line, judged by its recipes, its Trainer up to the model, and its stages."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from comparing import PER_NODE, Config, Subject, perturbed
from fake_ranks import fake_world, stage, stand_in

if TYPE_CHECKING:
    import random

FLAG = (False, True)
UNUSED = (
    *("torch.utils.tensorboard", "datasets", "datasets.distributed"),
    *("torchdata", "torchdata.stateful_dataloader", "torchdata.stateful_dataloader.stateful"),
)
RECIPES = (  # module, recipe
    ("llama3", "llama3_8b"),
    ("llama3", "llama3_70b"),
    ("llama3", "llama3_debugmodel"),
    ("qwen3", "qwen3_0_6b"),  # embeddings are tied
    ("qwen3", "qwen3_30b_a3b"),
    ("deepseek_v3", "deepseek_v3_16b"),
)
SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")
MESH = "parallelism."
DEGREES = {
    "dp_replicate": f"{MESH}data_parallel_replicate_degree",
    "dp_shard": f"{MESH}data_parallel_shard_degree",
    "cp": f"{MESH}context_parallel_degree",
    "tp": f"{MESH}tensor_parallel_degree",
    "pp": f"{MESH}pipeline_parallel_degree",
    "ep": f"{MESH}expert_parallel_degree",
}
CHANGES: dict[str, tuple[Any, ...]] = {
    DEGREES["dp_replicate"]: (1, 2),
    DEGREES["dp_shard"]: (-1, 1, 2, 3),
    DEGREES["cp"]: (1, 2, 3),
    DEGREES["tp"]: (1, 2, 3, 8, 16),
    DEGREES["ep"]: (1, 2, 4, 16),
    f"{MESH}enable_sequence_parallel": FLAG,
    f"{MESH}fsdp_reshard_after_forward": ("default", "always", "never"),
    f"{MESH}context_parallel_load_balancer": ("headtail", ""),
    f"{MESH}pipeline_parallel_schedule": SCHEDULES,
    f"{MESH}pipeline_parallel_microbatch_size": (0, 1, 2, 3),
    f"{MESH}pipeline_parallel_first_stage_less_layers": (0, 1, 2, 20),
    f"{MESH}pipeline_parallel_last_stage_less_layers": (0, 1, 2, 20),
    f"{MESH}pipeline_parallel_layers_per_stage": (1, 2, 4, 8, 9, 10, 16, 18),
    "training.local_batch_size": (1, 2, 4, 6, 8, 32),
    "training.global_batch_size": (-1, 16, 64, 100, 128),
    "training.seq_len": (2048, 4095, 4104, 8192, 16384, 1_000_000),
    "training.disable_cuda_graphs": FLAG,
    "training.enable_cpu_offload": FLAG,
    "training.dtype": ("float32", "bfloat16"),
    "compile.enable": FLAG,
    "compile.enable_async_tensor_parallel": FLAG,
    "debug.spmd_typechecking": FLAG,
}


def draw(rng: random.Random) -> Config:
    """A recipe on a mesh that tiles its GPUs, with up to three changes."""
    module, recipe = rng.choice(RECIPES)
    sizes = {name: rng.choice((1, 1, 2)) for name in ("dp_replicate", "cp")}
    sizes |= {"tp": rng.choice((1, 2, 4)), "pp": rng.choice((1, 1, 2, 4))}
    sizes["dp_shard"] = rng.choice((1, 2, 4))
    gpus = 1
    for size in sizes.values():
        gpus *= size
    sizes["ep"] = rng.choice((1, 1, 2, 4)) if module != "llama3" else 1
    settings: Config = {DEGREES[name]: size for name, size in sizes.items()}
    settings["training.disable_cuda_graphs"] = True
    if sizes["pp"] > 1:
        settings[f"{MESH}pipeline_parallel_schedule"] = rng.choice(SCHEDULES)
        settings["training.local_batch_size"] = 8
    settings["training.seq_len"] = 2048
    settings = perturbed(rng, settings, CHANGES, most=3)
    return {"gpus": gpus, "module": module, "recipe": recipe, "settings": settings}


def text(config: Config) -> str:
    """A launch with every setting as an option."""
    gpus = config["gpus"]
    per_node = min(gpus, PER_NODE)
    head = f"torchrun --nnodes {-(-gpus // per_node)} --nproc-per-node {per_node}"
    program = f"-m torchtitan.train --module {config['module']} --config {config['recipe']}"
    options = [_option(name, value) for name, value in config["settings"].items()]
    return " \\\n    ".join([f"{head} {program}", *options]) + "\n"


def _option(name: str, value: Any) -> str:
    if isinstance(value, bool):
        group, _, leaf = name.rpartition(".")
        return f"--{name}" if value else f"--{group}.no_{leaf}"
    return f"--{name} {value!r}" if value == "" else f"--{name} {value}"


def judge(config: Config) -> None:
    """Builds the recipe with its changes, then the Trainer as far as its parallel parts go."""
    stand_in(*UNUSED)
    registry = importlib.import_module(f"torchtitan.models.{config['module']}.config_registry")
    built = _changed(getattr(registry, config["recipe"])(), config["settings"])
    with fake_world(config["gpus"]):
        _construct(built)


def _changed(recipe: Any, settings: Config) -> Any:
    """The recipe's configuration with some values replaced, as its command line replaces them."""
    groups: dict[str, Config] = {}
    for name, value in settings.items():
        group, leaf = name.split(".")
        groups.setdefault(group, {})[leaf] = value
    made = {group: replace(getattr(recipe, group), **values) for group, values in groups.items()}
    return replace(recipe, **made)


class Reached(Exception):  # noqa: N818 - the Trainer has come as far as it is asked to
    """Everything that is compared has been passed."""


def _construct(config: Any) -> None:
    """`Trainer.__init__` until it shards the model, which is not built."""
    import torch
    from torchtitan import trainer
    from torchtitan.distributed import parallel_dims

    spec = config.model_spec
    model = mock.MagicMock()
    quiet = mock.MagicMock()
    patches = (
        (type(spec.model), "build", {"return_value": model}),
        (type(spec.model), "get_nparams_and_flops", {"return_value": (1, 1)}),
        (trainer.utils, "device_module", {"new": quiet}),
        (trainer.utils, "device_type", {"new": "cpu"}),
        (trainer.utils, "get_local_device", {"return_value": torch.device("cpu")}),
        (parallel_dims, "device_type", {"new": "cpu"}),
        (trainer, "has_quantization", {"return_value": False}),
        (trainer.dist_utils, "set_determinism", {"new": quiet}),
        (trainer.Trainer, "init_distributed", {"new": _dims}),
        (type(config), "maybe_log", {"new": quiet}),
        (type(config), "to_dict", {"return_value": {}}),
        (type(config.metrics), "build", {"return_value": quiet}),
        (type(config.loss), "build", {"return_value": quiet}),
    )
    with ExitStack() as stack:
        for owner, name, new in patches:
            stack.enter_context(mock.patch.object(owner, name, **new))
        stopped = replace(spec, pipelining_fn=_stages, parallelize_fn=_stop)
        built = replace(config, model_spec=stopped)
        try:
            trainer.Trainer(built)
        except Reached:
            return


def _dims(self: Any) -> Any:
    import torch.distributed as dist
    from torchtitan.distributed import ParallelDims

    return ParallelDims.from_config(self.config.parallelism, dist.get_world_size())


def _stop(_model: Any, **given: Any) -> None:
    given["parallel_dims"].build_mesh()
    raise Reached


def _stages(_model: Any, **given: Any) -> None:
    """torchtitan's split into stages and its schedule, over stages without modules."""
    from torchtitan.distributed import pipeline_parallel as pipeline

    dims, parallelism = given["parallel_dims"], given["parallelism"]
    dims.build_mesh()
    found = pipeline._get_pipeline_metadata(dims, parallelism, given["model_config"])
    pipeline._generate_llm_fqn_per_model_part(*found)
    _schedule(pipeline, parallelism, given["training"], found[0])
    raise Reached


def _schedule(pipeline: Any, parallelism: Any, training: Any, num_stages: int) -> None:
    degree = parallelism.pipeline_parallel_degree
    stages = [stage(n, num_stages, degree) for n in range(0, num_stages, degree)]
    pipeline._build_pipeline_schedule(
        parallelism=parallelism,
        local_batch_size=training.local_batch_size,
        stages=stages,
        loss_fn=lambda *_: (0, 0),
    )


SUBJECT = Subject(
    name="torchtitan",
    framework="torchtitan",
    version="0.3.0",
    file="train.sh",
    draw=draw,
    text=text,
    judge=judge,
)
