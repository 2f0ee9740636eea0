"""The command that starts a configuration, and the files that a framework wants it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Expressed, Framework

_COMMANDS = {
    "accelerate": "accelerate launch{machine} --config_file {file} train.py",
    "axolotl": "axolotl train {file} --launcher torchrun -- {torchrun}",
    "colossalai": "colossalai run --nproc_per_node {each}{hosts} train.py",
    "deepspeed": "deepspeed{machines} train.py --deepspeed_config {file}",
    "hf-trainer": "torchrun {torchrun} train.py {file}",
    "llama-factory": "FORCE_TORCHRUN=1{exports} llamafactory-cli train {file}",
    "megatron-bridge": "torchrun {torchrun} run_recipe.py --config-file {file}",
    "nanotron": "torchrun {torchrun} run_train.py --config-file {file}",
    "nemo": "torchrun {torchrun} train.py --yaml {file}",
    "paddlenlp": "python -u -m paddle.distributed.launch{ranks} run_pretrain.py {file}",
    "torchtitan": "torchrun {torchrun} -m torchtitan.train --job.config_file {file}",
    "verl": "python3 -m verl.trainer.main_ppo $(grep -v '^#' {file})",
}
_MESHED = "accelerate launch{machine} --config_file accelerate.yaml train.py {file}"
_TRAINERS = frozenset({"hf-trainer", "llama-factory", "axolotl", "ms-swift"})
_ARGUMENTS = frozenset({"megatron-lm", "mindspeed"})
_NEEDS = (
    ("tokenizer (--tokenizer-type)", ("--tokenizer-type", "--tokenizer-model", "--vocab-file")),
    (
        "data (--data-path or --mock-data)",
        ("--data-path", "--mock-data", "--data-args-path", "--train-data-path"),
    ),
    ("learning rate (--lr)", ("--lr",)),
    ("length of the run (--train-iters)", ("--train-iters", "--train-samples")),
)
ENGINE_FILE = "ds_config.json"
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_LAUNCHERS = frozenset({"NPROC_PER_NODE", "NNODES", "NODE_RANK", "FORCE_TORCHRUN", "WORLD_SIZE"})


def command_of(target: Framework, expressed: Expressed, files: Mapping[str, str]) -> str:
    """The command line that starts what was written, with its environment; a script starts itself.

    Several nodes each run it, with NODE_RANK and MASTER_ADDR set.
    """
    name = next(iter(files), "")
    if name.endswith(".sh"):
        return f"bash {name}"
    words = _COMMANDS.get(target.name, "")
    if target.name == "hf-trainer" and "accelerate.yaml" in files:
        words = _MESHED
    environment = "".join(f"{k}={v} " for k, v in _environment(expressed).items())
    return environment + words.format(**_launcher(expressed.launch), file=name) if words else ""


def to_state(target: Framework, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What has to be stated before the command starts or trains what is meant, with its names."""
    needs = _NEEDS if target.name in _ARGUMENTS else ()
    return tuple(said for said, names in needs if not {*names} & {*settings})


def unknown_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What Megatron has defaults for that the model may not be trained with."""
    rotary = settings.get("--position-embedding-type") == "rope"
    told = not rotary or "--rotary-base" in settings
    base = () if told else ("rotary base (--rotary-base, else 10000)",)
    known = "--norm-epsilon" in settings
    return base + (() if known else ("epsilon of norms (--norm-epsilon, else 1e-5)",))


def _environment(expressed: Expressed) -> Mapping[str, Any]:
    return expressed.launch.get("environment") or {}


def _launcher(launch: Mapping[str, Any]) -> dict[str, str]:
    """Nodes and processes in the words of every launcher."""
    nodes, each = int(launch.get("num_nodes") or 1), int(launch.get("gpus_per_node") or 1)
    torchrun, machine, exports = f"--nproc_per_node {each}", "", ""
    hosts, ranks = "", f' --gpus "{",".join(map(str, range(each)))}"'
    if nodes > 1:
        torchrun += f" --nnodes {nodes} --node_rank $NODE_RANK --master_addr $MASTER_ADDR"
        machine = " --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR"
        machine += " --main_process_port 29500"
        exports = f" NNODES={nodes} NODE_RANK=$NODE_RANK MASTER_ADDR=$MASTER_ADDR"
        hosts = " --hostfile hostfile"
        ranks = f" --master $MASTER_ADDR:29500 --nnodes {nodes} --rank $NODE_RANK" + ranks
    return {
        "each": str(each),
        "torchrun": torchrun,
        "machine": machine,
        "machines": f" --num_nodes {nodes} --num_gpus {each}" + hosts,
        "exports": exports,
        "hosts": hosts,
        "ranks": ranks,
    }


def beside(target: Framework, expressed: Expressed) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the main file, and those of each file that has to stand beside it.

    Trainers on transformers take DeepSpeed's settings as a file of their own, and the mesh from
    accelerate's.
    """
    settings = dict(expressed.settings)
    others: dict[str, Any] = dict(expressed.beside)
    if target.name not in _TRAINERS:
        return settings, others
    if engine := _taken(settings, "deepspeed."):
        settings["deepspeed"] = ENGINE_FILE
        others[ENGINE_FILE] = engine
    if target.name == "hf-trainer" and (mesh := _taken(settings, "parallelism_config.")):
        others["accelerate.yaml"] = _accelerate(mesh, settings, expressed.launch)
    return settings, others


def _taken(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The settings under a prefix, without it, taken out."""
    names = [name for name in settings if name.startswith(prefix)]
    return {name.removeprefix(prefix): settings.pop(name) for name in names}


def _accelerate(
    mesh: Mapping[str, Any], settings: Mapping[str, Any], launch: Mapping[str, Any]
) -> dict[str, Any]:
    """accelerate's file of a mesh."""
    section = "parallelism_config.parallelism_config_"
    sharded = settings.get("fsdp")
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else "MULTI_GPU",
        **({"fsdp_config.fsdp_version": 2} if sharded else {}),
        "mixed_precision": next((h for h in ("bf16", "fp16") if settings.get(h)), "no"),
        "num_machines": launch.get("num_nodes") or 1,
        "num_processes": launch.get("num_gpus") or 1,
        **{section + name.removeprefix("cp_handler."): value for name, value in mesh.items()},
    }


def written(target: Framework, expressed: Expressed) -> dict[str, str]:
    """The files that state what was expressed, the one to start first."""
    from meshwright.frameworks.text.render import render

    syntax = expressed.syntax or target.syntaxes[0]
    name = expressed.file_name or target.file_name
    settings, others = beside(target, expressed)
    if expressed.text:
        return {name: expressed.text}
    files = {
        name: render(syntax, settings, launch=expressed.launch, program=expressed.program),
    }
    for other, content in others.items():
        kind = "json" if other.endswith(".json") else "yaml"
        files[other] = render(kind, content, launch={})
    return files


def fitting_environment(environment: Mapping[str, str], target: Framework) -> dict[str, str]:
    """The environment without what only the source's launcher reads, or the target suffers from.

    One hardware queue, which Megatron's tensor parallelism asks for, keeps FSDP's gathers from
    running beside the products.
    """
    away = _LAUNCHERS | (frozenset() if "megatron-core" in _below(target) else {QUEUES})
    return {name: value for name, value in environment.items() if name not in away}


def _below(target: Framework) -> tuple[str, ...]:
    """What a framework is, and runs on; nanotron asks for one queue as Megatron does."""
    asks = target.name in ("nanotron", "meshwright")
    return (*target.scopes, *target.below, *(("megatron-core",) if asks else ()))
