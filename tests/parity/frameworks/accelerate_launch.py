"""accelerate's YAML, judged by its launcher, ParallelismConfig and FSDP plugin."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import yaml
from comparing import PER_NODE, Config, Subject, perturbed

if TYPE_CHECKING:
    import random

FLAG = (False, True)
AXES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
SIZE = "parallelism_config_{}_size"
MESH: dict[str, tuple[Any, ...]] = {
    SIZE.format("dp_replicate"): (1, 2, 4),
    SIZE.format("dp_shard"): (1, 2, 8),
    SIZE.format("tp"): (1, 2, 4),
    SIZE.format("cp"): (1, 2),
    SIZE.format("sp"): (*[1] * 9, 2),
    "parallelism_config_cp_comm_strategy": ("allgather", "alltoall", "ring"),
}
FSDP: dict[str, tuple[Any, ...]] = {
    "fsdp_version": (1, 2),
    "fsdp_reshard_after_forward": (True, False, "FULL_SHARD", "SHARD_GRAD_OP"),
    "fsdp_sharding_strategy": ("FULL_SHARD", "HYBRID_SHARD"),
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "fsdp_forward_prefetch": FLAG,
    "fsdp_offload_params": FLAG,
    "fsdp_state_dict_type": ("SHARDED_STATE_DICT", "FULL_STATE_DICT", "LOCAL_STATE_DICT"),
    "fsdp_activation_checkpointing": FLAG,
    "fsdp_cpu_ram_efficient_loading": FLAG,
    "fsdp_use_orig_params": FLAG,
    "fsdp_sync_module_states": (True,),
}
TOP: dict[str, tuple[Any, ...]] = {
    "mixed_precision": ("bf16", "fp16", "no"),
    "distributed_type": ("FSDP", "MULTI_GPU"),
}


def draw(rng: random.Random) -> Config:
    """FSDP of either generation over a mesh that tiles the processes, with a few changes."""
    sizes = dict.fromkeys(AXES, 1)
    sizes["dp_shard"] = rng.choice((1, 2, 4, 8))
    for axis in rng.sample(("dp_replicate", "tp", "cp"), rng.choice((0, 1, 1, 2))):
        sizes[axis] = rng.choice((2, 4))
    gpus = 1
    for size in sizes.values():
        gpus *= size
    mesh = {SIZE.format(axis): size for axis, size in sizes.items() if size > 1}
    fsdp: Config = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    if rng.random() < 0.3:
        fsdp |= {"fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD"}
        mesh = {}
    return {
        "gpus": gpus,
        "mesh": perturbed(rng, mesh, MESH, most=1 if mesh else 0),
        "fsdp": perturbed(rng, fsdp, FSDP),
        "top": perturbed(rng, {"mixed_precision": "bf16", "distributed_type": "FSDP"}, TOP, most=1),
    }


def text(config: Config) -> str:
    """The YAML that `accelerate launch --config_file` takes."""
    gpus = config["gpus"]
    contents = {
        "compute_environment": "LOCAL_MACHINE",
        **config["top"],
        "num_machines": -(-gpus // PER_NODE),
        "num_processes": gpus,
        "machine_rank": 0,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 29500,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if contents["distributed_type"] == "FSDP":
        contents["fsdp_config"] = config["fsdp"]
    if config["mesh"]:
        contents["parallelism_config"] = config["mesh"]
    return yaml.safe_dump(contents, sort_keys=False)


def judge(config: Config) -> None:
    """Launches nothing: the launcher's environment, and what a script builds from it."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_multi_gpu_env

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accelerate.yaml"
        path.write_text(text(config), encoding="utf-8")
        parser = launch.launch_command_parser()
        args = parser.parse_args(["--config_file", str(path), "train.py"])
        args, _, _ = launch._validate_launch_command(args)
    with mock.patch.dict(os.environ):
        environment = prepare_multi_gpu_env(args)
    with mock.patch.dict(os.environ, environment):
        _build(config)


def _build(config: Config) -> None:
    from accelerate import FullyShardedDataParallelPlugin, ParallelismConfig
    from accelerate.utils import DistributedType

    sharded = config["top"]["distributed_type"] == "FSDP"
    version = 0
    if sharded:
        with (
            mock.patch("accelerate.utils.dataclasses.is_cuda_available", return_value=True),
            mock.patch("torch.cuda.current_device", return_value=0),
        ):
            version = FullyShardedDataParallelPlugin().fsdp_version
    if config["mesh"]:
        accelerator = SimpleNamespace(
            multi_device=not sharded and config["gpus"] > 1,
            num_processes=config["gpus"],
            is_fsdp2=version == 2,
            is_main_process=False,
            distributed_type=DistributedType.FSDP if sharded else DistributedType.MULTI_GPU,
        )
        ParallelismConfig()._validate_accelerator(accelerator)


SUBJECT = Subject(
    name="accelerate",
    framework="accelerate",
    version="1.15.0",
    file="accelerate.yaml",
    draw=draw,
    text=text,
    judge=judge,
    accepted={
        r"^only we refuse: DAT102$": "Ulysses ranks beside a mesh that fills the processes without "
        "them: accelerate leaves them to DeepSpeed, which then divides the replicas",
        r"^only they refuse: ValueError: ParallelismConfig is only compatible Distrib": "replicas "
        "under FSDP1: a reader cannot tell them from those that HYBRID_SHARD makes",
    },
)
