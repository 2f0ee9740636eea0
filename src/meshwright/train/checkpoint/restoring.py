"""A checkpoint back into the stages and optimizers of a run, whatever plan either has.

Every rank reads the blocks that make up its own part. What stands in the folder is checked first,
and nothing of it is unpickled (see `storage`).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.train.checkpoint.folders import damage_of
from meshwright.train.checkpoint.index import INDEX, read_index
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.random import random_state, restore_random
from meshwright.train.checkpoint.state import OPTIMIZER, WEIGHTS, state_of
from meshwright.train.checkpoint.storage import FolderReader, LoadPlanning
from meshwright.train.model.names import names_of
from meshwright.train.model.share import boxes_of, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from meshwright.train.checkpoint.index import Entry, Index
    from meshwright.train.checkpoint.manifest import Manifest
    from meshwright.train.checkpoint.state import State, Value
    from meshwright.train.model.share import Box

_SHOWN = 8  # findings of one kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An option of an optimizer that is another one now: the run's own holds."""

    kind: str
    option: str
    then: Any
    now: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a checkpoint said: `facts` as given to `Saver.save`, options that have changed since."""

    step: int
    world_size: int
    facts: dict[str, Any]
    changes: tuple[Change, ...]


def restore(
    folder: str | Path,
    modules: Iterable[nn.Module],
    optimizers: Iterable[Optimizer] = (),
    *,
    is_verified: bool = False,
) -> Restored:
    """Fills the stages and optimizers of this rank from a checkpoint; all ranks call it.

    Plans, world sizes and number formats may differ: values are cut and cast as they are read. A
    state that the checkpoint has not (parameters never touched) is dropped. Without optimizers only
    weights are read. Learning rates and other options stay those of the optimizers as they are;
    `changes` says where they differ. Random generators are set where as many ranks wrote it.
    Files are verified first unless `latest` has done so. InvalidInput with all that does not fit.
    """
    folder, modules, optimizers = Path(folder), list(modules), list(optimizers)
    if not is_verified and (damage := damage_of(folder, group=dist.group.WORLD)):
        raise InvalidInput(damage)
    manifest, index = read_manifest(folder), read_index(folder / INDEX)
    _make_states(optimizers)
    if manifest.optimizers:  # else it is of weights alone, which is told
        _drop_untouched(index, modules, optimizers)
    state = state_of(modules, optimizers)
    _refuse(_misfits(state, index, folder))
    random = random_state() if manifest.world_size == dist.get_world_size() else {}
    random = {name: value for name, value in random.items() if name in index.tensors}
    wanted = [*state.tensors.items(), *random.items()]
    _read(folder, index, dict(wanted))
    with torch.no_grad():
        for name, copy in state.copies:
            part_of(copy).copy_(part_of(state.tensors[name]))
    _set_values(index.values, modules, optimizers)
    restore_random(random)
    return Restored(
        step=manifest.step,
        world_size=manifest.world_size,
        facts=manifest.facts,
        changes=_changes(manifest, state),
    )


def _read(folder: Path, index: Index, tensors: Mapping[str, Tensor]) -> None:
    """Fills this rank's parts through DCP."""
    wanted: dict[str, list[tuple[Box, Tensor]]] = {}
    for name, tensor in tensors.items():
        part = part_of(tensor)
        wanted[name] = [(box, box.of(part)) for box in boxes_of(tensor)]
    try:
        with torch.no_grad():
            dcp.load(wanted, storage_reader=FolderReader(folder, index), planner=LoadPlanning())
    except CheckpointException as error:
        cause = next((c for c, _ in error.failures.values()), error)
        reason = f"cannot be read: {' '.join(str(cause).split()) or type(cause).__name__}"
        raise InvalidInput([Finding(message=reason, file=str(folder))]) from None


# Optimizers


def _make_states(optimizers: Sequence[Optimizer]) -> None:
    """Lets optimizers make their states, of the right kind and layout, by a step that counts not.

    Weights may change by it, and are read afterwards.
    """
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if all(p in optimizer.state for p in parameters if p.requires_grad):
            continue
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _drop_untouched(
    index: Index, modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]
) -> None:
    """Removes the states of parameters of which the checkpoint has none."""
    kept = {_owner(name) for name in [*index.tensors, *index.values] if name.startswith(OPTIMIZER)}
    names = names_of(modules)
    for optimizer in optimizers:
        for parameter in list(optimizer.state):
            if names[parameter] not in kept:
                del optimizer.state[parameter]


def _owner(name: str) -> str:
    """The parameter that an optimizer's state belongs to."""
    return name.removeprefix(OPTIMIZER).rpartition("/")[0]


def _set_values(
    values: Mapping[str, Value], modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]
) -> None:
    """States that are no tensors."""
    names = names_of(modules)
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key in state:
                name = f"{OPTIMIZER}{names[parameter]}/{key}"
                if name in values:
                    state[key] = values[name]


def _changes(manifest: Manifest, state: State) -> tuple[Change, ...]:
    """Options that are not what they were, by any parameter of a group."""
    then = {n: (o.kind, o.options) for o in manifest.optimizers for n in o.names}
    found: dict[Change, None] = {}
    for group in state.groups:
        for name in group.names:
            kind, options = then.get(name, ("", {}))
            if kind != group.kind:
                continue
            for option in options.keys() & group.options.keys():
                before, now = options[option], group.options[option]
                if before != now:
                    change = Change(
                        kind=kind, option=option, then=_hashable(before), now=_hashable(now)
                    )
                    found.setdefault(change)
    return tuple(sorted(found, key=lambda c: (c.kind, c.option)))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# What does not fit


def _misfits(state: State, index: Index, folder: Path) -> list[Finding]:
    """Tensors of any rank that the checkpoint lacks, has beside or in another shape."""
    found = [
        *_lacking(state, index, folder),
        *(
            _shaped(name, tensor, index.tensors[name], folder)
            for name, tensor in state.tensors.items()
            if name in index.tensors and tuple(tensor.shape) != index.tensors[name].shape
        ),
    ]
    held = [n for n in state.tensors if n.startswith(WEIGHTS)]
    every: list[tuple[list[str], list[Finding]]] = [([], [])] * dist.get_world_size()
    dist.all_gather_object(every, (held, found))
    known = {name for names, _ in every for name in names}
    findings = list(dict.fromkeys(f for _, rank_found in every for f in rank_found))
    extra = sorted(n for n in index.tensors if n.startswith(WEIGHTS) and n not in known)
    return findings + [_unexpected(name, index.tensors[name], folder) for name in extra[:_SHOWN]]


def _lacking(state: State, index: Index, folder: Path) -> list[Finding]:
    """Tensors and values of this rank that are not in the checkpoint."""
    names = [*state.tensors, *state.values]
    absent = [n for n in names if n not in index.tensors and n not in index.values]
    weights = [n for n in absent if n.startswith(WEIGHTS)]
    found = [
        Finding(
            message=f"the checkpoint has no {name.removeprefix(WEIGHTS)}",
            file=str(folder),
            key=name,
            hint="resume with the model that it was made of",
        )
        for name in weights[:_SHOWN]
    ]
    states: dict[str, list[str]] = defaultdict(list)
    for name in absent:
        if name.startswith(OPTIMIZER):
            states[name.rpartition("/")[2]].append(_owner(name))
    kinds = sorted({n.rpartition("/")[2] for n in index.tensors if n.startswith(OPTIMIZER)})
    for key, owners in states.items():
        message = f"the checkpoint has no optimizer state {key!r} of {owners[0]}"
        message += f" and {len(owners) - 1} more" if len(owners) > 1 else ""
        message += f"; it has {', '.join(kinds)}" if kinds else "; it has none at all"
        hint = "resume with the optimizer that it was made with, or start from its weights alone"
        found.append(Finding(message=message, file=str(folder), key=key, hint=hint))
    return found


def _shaped(name: str, tensor: Tensor, entry: Entry, folder: Path) -> Finding:
    return Finding(
        message=f"{name.partition('/')[2]} is {list(entry.shape)} in the checkpoint and "
        f"{list(tensor.shape)} in this run",
        file=str(folder),
        key=name,
        value=shown(list(entry.shape)),
        hint="resume with the model that it was made of",
    )


def _unexpected(name: str, entry: Entry, folder: Path) -> Finding:
    return Finding(
        message=f"the checkpoint has {name.removeprefix(WEIGHTS)} {list(entry.shape)}, "
        "which this model has not",
        file=str(folder),
        key=name,
        hint="resume with the model that it was made of",
    )


def _refuse(findings: Sequence[Finding]) -> None:
    if findings:
        raise InvalidInput(findings)
