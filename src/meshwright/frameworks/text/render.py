"""Settings written as a new file of one syntax."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.text.written import argument_words, nested, plain_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYNTAXES = ("shell", "json", "toml", "yaml", "python", "overrides")


def render(
    syntax: str,
    settings: Mapping[str, Any],
    *,
    launch: Mapping[str, Any],
    program: str = "",
    comments: Iterable[str] = (),
) -> str:
    """The text of a file that states `settings`.

    `launch` may hold num_gpus, num_nodes, gpus_per_node and environment: a shell script carries
    them out, other syntaxes say them in a comment (JSON has none). `program` is what a script
    starts ("pretrain_gpt.py", "megatron sft", "-m verl.trainer.main_ppo") or what a Python recipe
    makes ("torchtitan.trainer:Trainer.Config"). Without a program a shell text is a bare list of
    arguments. MeshwrightError for what a syntax cannot hold.
    """
    said = [f"# {line}" for comment in comments for line in comment.splitlines() or [""]]
    if syntax == "shell":
        return _shell(settings, launch, program, said)
    if syntax == "json":
        return json.dumps(nested(settings), indent=2, ensure_ascii=False) + "\n"
    remark = _remark(launch)
    head = said + ([f"# {remark}"] if remark else [])
    if syntax == "overrides":
        body = [shlex.quote(f"{name}={plain_text(v)}") for name, v in settings.items()]
        return "\n".join([*head, *body]) + "\n"
    if syntax == "python":
        return _python(settings, program, head)
    if syntax not in SYNTAXES:
        raise MeshwrightError(f"no syntax {syntax!r}", hint=f"one of {', '.join(SYNTAXES)}")
    body_text = _toml(settings) if syntax == "toml" else _yaml(settings)
    return "\n".join([*head, *([""] if head else []), body_text])


def _remark(launch: Mapping[str, Any]) -> str:
    """The machine in words that the reader understands: "4 nodes x 8 GPUs"."""
    nodes, each, total = (launch.get(k) for k in ("num_nodes", "gpus_per_node", "num_gpus"))
    if nodes and total and not each and total % nodes == 0:
        each = total // nodes
    if nodes and each:
        return f"{nodes} node{'s' if nodes != 1 else ''} x {each} GPU{'s' if each != 1 else ''}"
    return f"{total} GPU{'s' if total != 1 else ''}" if total else ""


def _shell(
    settings: Mapping[str, Any], launch: Mapping[str, Any], program: str, said: list[str]
) -> str:
    stated = {name: v for name, v in settings.items() if v is not None or "." in name}
    lines = [" ".join(argument_words(name, value)) for name, value in stated.items()]
    environment = launch.get("environment") or {}
    exports = [f"export {name}={shlex.quote(plain_text(v))}" for name, v in environment.items()]
    if not program:
        remark = _remark(launch)
        return "\n".join([*said, *([f"# {remark}"] if remark else []), *exports, *lines]) + "\n"
    head = ["#!/bin/bash", *said, "set -euo pipefail", "", *exports, *_counts(launch)]
    array = ["ARGS=(", *(f"    {line}" for line in lines), ")"] if lines else ["ARGS=()"]
    return "\n".join([*head, *array, "", f'{_command(program, launch)} "${{ARGS[@]}}"']) + "\n"


def _counts(launch: Mapping[str, Any]) -> list[str]:
    names = {"num_nodes": "NNODES", "gpus_per_node": "GPUS_PER_NODE"}
    lines = [f"{spelled}={launch[name]}" for name, spelled in names.items() if launch.get(name)]
    return [*lines, ""] if lines else []


def _command(program: str, launch: Mapping[str, Any]) -> str:
    """The command line up to the arguments; a Python script gets torchrun before it."""
    first = program.split()[0]
    if not (first.endswith(".py") or first == "-m") or not launch.get("gpus_per_node"):
        return f"python {program}" if first == "-m" or first.endswith(".py") else program
    words = ["torchrun", "--nproc_per_node $GPUS_PER_NODE"]
    if launch.get("num_nodes"):
        words += ["--nnodes $NNODES"]
    if (launch.get("num_nodes") or 1) > 1:
        words += ["--node_rank ${NODE_RANK:-0}", "--master_addr ${MASTER_ADDR:-localhost}"]
        words += ["--master_port ${MASTER_PORT:-29500}"]
    return " \\\n    ".join([" ".join(words), program])


def _toml(settings: Mapping[str, Any]) -> str:
    from meshwright.base.encode import to_toml

    return to_toml(nested({name: v for name, v in settings.items() if v is not None}))


def _yaml(settings: Mapping[str, Any]) -> str:
    lines: list[str] = []
    _yaml_lines(nested(settings), "", lines)
    return "\n".join(lines) + "\n" if lines else "{}\n"


def _yaml_lines(node: Mapping[str, Any], indent: str, lines: list[str]) -> None:
    from meshwright.frameworks.text.written import key_text

    for name, value in node.items():
        key = f"{indent}{key_text('yaml', name)}:"
        if isinstance(value, dict) and value:
            lines.append(key)
            _yaml_lines(value, indent + "  ", lines)
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines.append(key)
            lines += [f"{indent}- {value_text('yaml', item)}" for item in value]
        else:
            lines.append(f"{key} {value_text('yaml', value)}")


def _python(settings: Mapping[str, Any], program: str, head: list[str]) -> str:
    """A recipe function that sets attributes of the object that `program` makes."""
    module, _, made = program.rpartition(":")
    made = made or "Config"
    lines = [*head, "", f"from {module} import {made.partition('.')[0]}", ""] if module else [*head]
    lines += ["", "def train_config():", f"    config = {made}()"]
    for name, value in settings.items():
        if not all(part.isidentifier() for part in name.split(".")):
            raise MeshwrightError(f"{name} is no attribute that Python can set")
        lines.append(f"    config.{name} = {value_text('python', value)}")
    return "\n".join([*lines, "    return config"]).lstrip("\n") + "\n"
