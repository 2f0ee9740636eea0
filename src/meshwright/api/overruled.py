"""What files state and what is given beside them states otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model

_OF_THE_MODEL = {"num_hidden_layers": "layers", "hidden_size": "channels"}
_OF_THE_MACHINE = {"num_nodes": "nodes", "num_gpus": "GPUs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overruled:
    """A number that a file states (`theirs`) and that is given as another (`ours`)."""

    noun: str
    theirs: int
    ours: int
    settings: tuple[Setting, ...]


def overruled(
    reading: Reading, *, model: Model | None, cluster: Cluster | None
) -> tuple[Finding, ...]:
    """CFG203: a note each on the model and the machine, where a file states other numbers.

    `reading` is what the files say alone, `model` and `cluster` what is given beside them.
    """
    found = []
    if model is not None and (differing := list(_of_model(reading, model))):
        found.append(_note(differing, f"--model {model.name}"))
    if cluster is not None and (differing := list(_of_machine(reading, cluster))):
        found.append(_note(differing, "--gpus and --nodes"))
    return tuple(found)


def _of_model(reading: Reading, model: Model) -> Iterator[_Overruled]:
    from meshwright.frameworks.jobs import stated_model

    own = reading.model or stated_model(reading)
    for name, noun in _OF_THE_MODEL.items():
        theirs = reading.value(name) if reading.is_stated(name) else getattr(own, name, None)
        where = reading.settings_of(name) or reading.settings_of("model_name")
        yield from _differing(noun, theirs, getattr(model, name, None), where)


def _of_machine(reading: Reading, cluster: Cluster) -> Iterator[_Overruled]:
    from meshwright.frameworks.jobs import stated_gpus

    stated = {"num_gpus": stated_gpus(reading), "num_nodes": reading.value("num_nodes")}
    for name, noun in _OF_THE_MACHINE.items():
        where = reading.settings_of(name)
        if name == "num_gpus":
            where = where or reading.settings_of("gpus_per_node")
        yield from _differing(noun, stated[name], getattr(cluster, name), where)


def _differing(
    noun: str, theirs: object, ours: object, where: tuple[Setting, ...]
) -> Iterator[_Overruled]:
    """The number, if a setting states it and it is another."""
    if where and isinstance(theirs, int) and isinstance(ours, int) and theirs != ours:
        yield _Overruled(noun=noun, theirs=theirs, ours=ours, settings=where)


def _note(differing: list[_Overruled], option: str) -> Finding:
    theirs = ", ".join(f"{one.theirs} {one.noun}" for one in differing)
    ours = ", ".join(f"{one.ours} {one.noun}" for one in differing)
    mark = differing[0].settings[0].label("overruled")
    return Finding(
        code="CFG203",
        severity=Severity.INFO,
        message=f"the file says {theirs}; overruled by {option}: {ours}",
        file=mark.file,
        line=mark.line,
        column=mark.column,
        key=differing[0].settings[0].name,
        value=differing[0].theirs,
        labels=(mark,),
        hint="leave the option out to judge what the file says",
    )
