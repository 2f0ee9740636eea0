"""Launchers before a training program: what they say of the machine, and where they end."""

from __future__ import annotations

import re
from dataclasses import field
from itertools import takewhile
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.text.shell.arguments import cut, is_flag, is_override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.frameworks.setting import Span
    from meshwright.frameworks.text.shell.expand import Argument

_PYTHON = pattern(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed|accelerate|colossalai)\Z")
_SCRIPT = pattern(r"[^=]+\.(?:py|pyz)\Z")
_INLINE = pattern(r"-[a-z]*c[a-z]*\Z")
_ASSIGNMENT = pattern(r"([A-Za-z_]\w*)=")
_WITH_COMMANDS = frozenset(
    {
        "accelerate",
        "axolotl",
        "colossalai",
        "litgpt",
        "llamafactory-cli",
        "lmf",
        "megatron",
        "nemo",
        "ray",
        "swift",
        "trl",
        "tune",
        "xtuner",
    }
)
_PROGRAMS = _WITH_COMMANDS | {"python", "python3", "torchrun", "deepspeed", "bash", "sh", "eval"}
_WRAPPERS = frozenset(
    {
        "aprun",
        "apptainer",
        "command",
        "conda",
        "docker",
        "enroot",
        "env",
        "exec",
        "flux",
        "horovodrun",
        "jsrun",
        "kubectl",
        "mpiexec",
        "mpiexec.hydra",
        "mpirun",
        "ncu",
        "nice",
        "nohup",
        "nsys",
        "numactl",
        "pdsh",
        "pipenv",
        "podman",
        "poetry",
        "prun",
        "salloc",
        "sbatch",
        "setsid",
        "singularity",
        "srun",
        "ssh",
        "stdbuf",
        "sudo",
        "taskset",
        "then",
        "time",
        "timeout",
        "unbuffer",
        "uv",
        "xargs",
    }
)
_IGNORED_WORDS = """
[ [[ test : true false echo printf cat ls cp mv rm ln mkdir rmdir touch cd pushd popd pip pip3 git
wget curl tar unzip zip chmod chown nvidia-smi rocm-smi huggingface-cli hf module ulimit tee sleep
wait kill pkill apt apt-get yum brew grep egrep sed awk cut sort head tail find date hostname
scontrol sinfo squeue scancel sacct set unset shift read return exit trap source . let local unalias
alias type which whoami getopts basename dirname realpath rsync scp aws gsutil azcopy wandb
tensorboard jq ps df du free lscpu ip ifconfig ibstat ibv_devinfo make cmake gcc ninja break
continue seq tr wc md5sum sysctl modprobe
"""
_IGNORED = frozenset(_IGNORED_WORDS.split())
# What each launcher calls the facts; "procs" and "nodes" count, "total" counts all processes.
_TORCHRUN = {"nproc_per_node": "gpus_per_node", "nnodes": "num_nodes"}
_DEEPSPEED = {"num_gpus": "gpus_per_node", "num_nodes": "num_nodes"}
_ACCELERATE = {"num_processes": "num_gpus", "num_machines": "num_nodes"}
_SRUN = {
    "nodes": "num_nodes",
    "N": "num_nodes",
    "ntasks": "num_tasks",
    "n": "num_tasks",
    "ntasks_per_node": "tasks_per_node",
    "gpus_per_node": "gpus_per_node",
    "gres": "gpus_per_node",
    "gpus": "num_gpus",
    "G": "num_gpus",
}
_MPIRUN = {
    "np": "num_gpus",
    "n": "num_gpus",
    "num_proc": "num_gpus",
    "npernode": "gpus_per_node",
    "N": "gpus_per_node",
    "ppn": "gpus_per_node",
    "map_by": "gpus_per_node",
    "nnodes": "num_nodes",
}
_FACTS = {
    "srun": _SRUN,
    "salloc": _SRUN,
    "sbatch": _SRUN,
    "mpirun": _MPIRUN,
    "mpiexec": _MPIRUN,
    "horovodrun": _MPIRUN,
    "prun": _MPIRUN,
    "colossalai": _TORCHRUN,
}
_TORCHRUN_BARE = frozenset({"standalone", "no_python", "use_env", "module", "m", "run_path"})
_ACCELERATE_LAUNCH_ONLY = pattern(
    r"num_|machine_rank|main_process_|same_network|rdzv_|gpu_ids|multi_gpu|rank|max_restarts"
    r"|monitor_interval|quiet|debug|module|m$|no_python|role|log_dir|tee|redirects|local_addr"
    r"|main_training_function|deepspeed_hostfile|deepspeed_multinode_launcher|enable_cpu_affinity"
)
_TORCH_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch", "torchrun"})


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure of the machine as a launcher's option states it."""

    name: str
    option: Argument
    value: Argument
    written: str = ""  # the value's text where only a part of it counts ("gpu:8")


@dataclass(slots=True)
class Launch:
    """What stands before a program's own arguments."""

    facts: list[Fact] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    environment: list[tuple[str, Argument, Span]] = field(default_factory=list)
    options: list[Argument] = field(default_factory=list)  # of the launcher, that are settings
    rest: tuple[Argument, ...] = ()
    script: Argument | None = None
    nested: Argument | None = None  # a whole command as one argument: bash -c "..."
    single_node: bool = False  # one host unless something says otherwise


def read_launch(arguments: Sequence[Argument]) -> Launch | None:
    """The launch of a command, None where the command trains nothing."""
    launch = Launch(rest=tuple(arguments))
    while launch.rest:
        name = _name(launch.rest[0])
        if name in _IGNORED:
            return None
        if (assigned := _assigned(launch.rest[0])) is not None:
            launch.environment.append(assigned)
            launch.rest = launch.rest[1:]
        elif name in _WRAPPERS:
            _through_wrapper(launch, name)
        else:
            break
    if launch.rest:
        _program(launch)
    return launch


def _name(argument: Argument) -> str:
    return (argument.text or "").rpartition("/")[2]


def _assigned(argument: Argument) -> tuple[str, Argument, Span] | None:
    head = argument.bits[0].text if argument.bits else None
    match = _ASSIGNMENT.match(head) if head else None
    if match is None:
        return None
    name, value = cut(argument, match.end() - 1)
    return match.group(1), value, name.where


def _through_wrapper(launch: Launch, name: str) -> None:
    """Steps over a wrapper and its options, up to the program that it starts."""
    rest = launch.rest[1:]
    if name in _FACTS:
        launch.programs.append(name)
    end = next((i for i, a in enumerate(rest) if _starts_program(a)), None)
    if end is None:
        last = rest[-1].text if rest else None
        single = last is not None and any(p in last.split() for p in _PROGRAMS)
        end = len(rest) - 1 if single else len(rest)
    _facts(launch, rest[:end], _FACTS.get(name, {}))
    _environment(launch, rest[:end])
    launch.rest = rest[end:]


def _starts_program(argument: Argument) -> bool:
    text = argument.text or ""
    name = text.rpartition("/")[2]
    return name in _PROGRAMS or bool(_PYTHON.match(text) or _SCRIPT.match(text)) or name in _FACTS


def _environment(launch: Launch, options: Sequence[Argument]) -> None:
    """Variables that `-x NAME=value`, `-e NAME=value`, `--env` and bare words set."""
    for argument in options:
        text = argument.bits[0].text or "" if argument.bits else ""
        match = re.match(r"--(?:env|export)=(?=[A-Za-z_]\w*=)", text)
        if match:
            argument = cut(argument, match.end() - 1)[1]
        elif is_flag(argument):
            continue
        if (assigned := _assigned(argument)) is not None:
            launch.environment.append(assigned)


def _facts(launch: Launch, options: Sequence[Argument], names: dict[str, str]) -> None:
    """The figures among a launcher's options."""
    for number, argument in enumerate(options):
        if not is_flag(argument):
            continue
        option, value = _option(options, number)
        name = plain(option.bits[0].text or "")
        short = re.fullmatch(r"([nNG])(\d+)", name)
        if short and names:
            name, value = short.group(1), option
        if name in names and value is not None:
            launch.facts.append(_fact(names[name], option, value, short.group(2) if short else ""))
        elif name == "standalone":
            launch.single_node = True
        elif name in ("include", "i") and value is not None and names is _DEEPSPEED:
            launch.facts.append(_fact("gpus_per_node", option, value, _included(value.text)))


def _option(options: Sequence[Argument], number: int) -> tuple[Argument, Argument | None]:
    argument = options[number]
    equals = (argument.bits[0].text or "").find("=")
    if equals > 0:
        return cut(argument, equals)
    following = options[number + 1] if number + 1 < len(options) else None
    return argument, None if following is None or is_flag(following) else following


def plain(option: str) -> str:
    """An option's name without dashes, "-" as "_"."""
    return option.lstrip("-").replace("-", "_")


def _fact(name: str, option: Argument, value: Argument, written: str) -> Fact:
    text = value.text or ""
    if not written and (found := re.search(r"(?:^|:)(\d{1,7})(?:\(|:node|,|$)", text)):
        written = found.group(1)
    return Fact(name, option, value, written)


def _included(text: str | None) -> str:
    """How many GPUs `--include localhost:0,1,2` names, "" where it names several hosts."""
    if text is None or "@" in text or ":" not in text:
        return ""
    return str(len([part for part in text.partition(":")[2].split(",") if part]))


def _program(launch: Launch) -> None:
    """Reads the program, its launcher's options and the script; `rest` becomes its arguments."""
    first, rest = launch.rest[0], launch.rest[1:]
    name = _name(first)
    if is_flag(first) or is_override(first):  # a bare list
        return
    if name in ("bash", "sh", "zsh", "eval"):
        _shell(launch, name, rest)
    elif name.startswith("python") and _PYTHON.match(name):
        launch.rest = rest
        _python(launch)
    elif name == "torchrun":
        launch.programs.append(name)
        _torchrun(launch, rest)
    elif name == "deepspeed":
        launch.programs.append(name)
        _until_script(launch, rest, _DEEPSPEED)
    elif name == "accelerate":
        _accelerate(launch, rest)
    elif name == "ray" and (at := next((i for i, a in enumerate(rest) if a.text == "--"), 0)):
        launch.programs.append(f"{name} {rest[0].text or ''}".strip())
        launch.rest = rest[at + 1 :]  # what is submitted; the options before it are ray's own
        if launch.rest:
            _program(launch)
    elif name in _WITH_COMMANDS and rest and not is_flag(rest[0]):
        launch.programs.append(f"{name} {rest[0].text or ''}".strip())
        launch.rest = rest[1:]
        if name == "colossalai":
            _until_script(launch, rest[1:], _TORCHRUN)
        elif launch.rest and (launch.rest[0].text or "").endswith((".yaml", ".yml", ".json")):
            launch.script = launch.rest[0]
    else:
        _named(launch, first)
        launch.rest = rest


def _shell(launch: Launch, name: str, rest: tuple[Argument, ...]) -> None:
    """`bash -c "..."`, `eval "..."`, `bash script.sh --args`."""
    words = [a for a in rest if not is_flag(a)]
    options = takewhile(is_flag, rest)
    inline = name == "eval" or any(_INLINE.match(a.text or "") for a in options)
    if inline and words:
        launch.nested, launch.rest = words[0], ()
        if name == "eval" and len(words) > 1:
            launch.nested, launch.rest = None, rest
            _program(launch)
        return
    launch.rest = ()
    if words:
        _named(launch, words[0])
        launch.rest = rest[rest.index(words[0]) + 1 :]


def _named(launch: Launch, script: Argument) -> None:
    """Notes the program that trains, by its whole and its last name."""
    text = script.readable
    if text and text != "-":
        launch.programs += dict.fromkeys((text.rpartition("/")[2], text))
    launch.script = script


def _python(launch: Launch) -> None:
    """`python script.py`, `python -m module`, `python -u -m torch.distributed.run ...`."""
    rest = launch.rest
    at = 0
    while at < len(rest) and is_flag(rest[at]):
        if rest[at].text == "-m" and at + 1 < len(rest):
            module = rest[at + 1].text or ""
            launch.rest = rest[at + 2 :]
            if module in _TORCH_MODULES:
                launch.programs.append("torchrun")
                _torchrun(launch, launch.rest)
            elif module.startswith("accelerate.commands.launch"):
                _accelerate(launch, launch.rest)
            else:
                _named(launch, rest[at + 1])
            return
        if rest[at].text == "-c":  # a program of its own
            launch.rest = ()
            return
        if (rest[at].text or "").startswith("--"):
            break  # flags without a script
        at += 2 if rest[at].text in ("-X", "-W") else 1
    if at < len(rest) and not is_flag(rest[at]):
        _named(launch, rest[at])
        at += 1
    launch.rest = rest[at:]


def _torchrun(launch: Launch, rest: tuple[Argument, ...]) -> None:
    launch.single_node = True
    _until_script(launch, rest, _TORCHRUN)


def _until_script(launch: Launch, rest: tuple[Argument, ...], names: dict[str, str]) -> None:
    """A launcher's options up to the script or module that it starts."""
    at = 0
    while at < len(rest):
        argument = rest[at]
        if not is_flag(argument):
            if (argument.text is not None or not argument.is_list) and not _assigned(argument):
                break
            at += 1
            continue
        name = plain(argument.text or "")
        if name in ("m", "module"):
            at += 1
            break
        has_value = "=" not in (argument.bits[0].text or "") and name not in _TORCHRUN_BARE
        following = rest[at + 1] if at + 1 < len(rest) else None
        takes = has_value and following is not None and not is_flag(following)
        at += 2 if takes and not _SCRIPT.match((following and following.text) or "") else 1
    _facts(launch, rest[:at], names)
    _environment(launch, rest[:at])
    if at < len(rest):
        _named(launch, rest[at])
    launch.rest = rest[at + 1 :]


def _accelerate(launch: Launch, rest: tuple[Argument, ...]) -> None:
    """`accelerate launch --options script.py --arguments`; its options are settings too."""
    if rest and rest[0].text == "launch":
        rest = rest[1:]
    launch.programs.append("accelerate launch")
    before = len(launch.facts)
    _until_script(launch, rest, _ACCELERATE)
    end = len(rest) - len(launch.rest) - (launch.script is not None)
    if len(launch.facts) == before:
        launch.single_node = False
    launch.options = list(_own_options(rest[: max(end, 0)]))


def _own_options(options: Sequence[Argument]) -> list[Argument]:
    """The options of accelerate that are more than facts of the launch."""
    kept: list[Argument] = []
    keeps = False
    for argument in options:
        if is_flag(argument):
            name = plain((argument.bits[0].text or "").partition("=")[0])
            keeps = not _ACCELERATE_LAUNCH_ONLY.match(name)
        if keeps:
            kept.append(argument)
    return kept
