"""Which configuration a run begins with, and whether the plan says the same.

A preset and a model written out block by block hold sizes; rotary bases, epsilons and scalings
stand in the config.json beside the weights. So a run that goes on takes the configuration that it
began with, one that starts from weights takes theirs, and only a run from nothing takes the plan's.
Nothing of torch or transformers is imported.
"""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.encode import plain
from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.model.catalogue import load
from meshwright.train.families import model_type_of
from meshwright.train.model.configuration import (
    CONFIG,
    NOT_OF_THE_MODEL,
    file_keys,
    is_lost,
    keys_behind,
    text_part,
)
from meshwright.train.model.files import weight_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.model.architecture import Model

_SHOWN = 6  # sizes and keys that differ
_UNSTATED = object()
# of training from random values, of generating, or of what is written: weights do not hang on it
_INDIFFERENT = frozenset(
    {"initializer_range", "max_position_embeddings", "rope_scaling", "rope_parameters"}
    | {"bos_token_id", "eos_token_id", "pad_token_id", "output_router_logits"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The keys of config.json that ranks build the model from, and what is wrong with them."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def beginning(
    model: Model,
    *,
    section: Mapping[str, Any] | None = None,
    folder: str | Path = ".",
    weights: str | None = None,
    run: str | None = None,
) -> Beginning:
    """The configuration of a run of `model`, whose plan file in `folder` has this [model] section.

    `weights` is a folder of safetensors to start from, `run` that of a run which is gone on with.
    InvalidInput where `weights` is none.
    """
    if weights is not None:
        weight_files(Path(weights))
    for origin in (_begun(run), weights):
        if origin is not None and (Path(origin) / CONFIG).is_file():
            return _held_against(Path(origin) / CONFIG, model, section, Path(folder))
    keys = keys_behind(model, section=section, folder=folder)
    lost = is_lost(model, section=section, folder=folder)
    return Beginning(keys=keys, findings=(_lost(model),) if lost else ())


def _begun(run: str | None) -> str | None:
    """The folder of a run, where it has a checkpoint to go on from."""
    return run if run is not None and any(Path(run).glob("step-*")) else None


def _held_against(
    path: Path, model: Model, section: Mapping[str, Any] | None, folder: Path
) -> Beginning:
    """The configuration in a file, with every difference from what the plan says."""
    keys = file_keys(path)
    try:
        theirs = load(path)
    except InvalidInput as error:
        return Beginning(keys=keys, findings=tuple(error.findings))
    found = [*_sizes(theirs, model, path)]
    if not found and section and "runs" not in section and set(section) != {"name"}:
        own = keys_behind(model, section=section, folder=folder)
        found = [*_keys(keys, own, path)]
    return Beginning(keys=keys, findings=tuple(found))


def _sizes(theirs: Model, model: Model, path: Path) -> Iterator[Finding]:
    """Sizes in which the model in a file is not that of the plan."""
    is_kin = model_type_of(theirs.family) == model_type_of(model.family)
    same = replace(
        theirs,
        family=model.family if is_kin else theirs.family,
        name=model.name,
        source=model.source,
        assumptions=model.assumptions,
        max_position_embeddings=model.max_position_embeddings,
        mtp=model.mtp,  # not among what is trained, and left out of what is exported
    )
    if same == model:
        return
    ours, others = _flat(plain(model)), _flat(plain(same))
    differing = [n for n in {**ours, **others} if ours.get(n) != others.get(n)]
    for name in differing[:_SHOWN]:
        mine, other = (shown(found.get(name, "not stated")) for found in (ours, others))
        yield Finding(
            message=f"{name} is {other} in {path}, {mine} in the plan's model",
            file=str(path),
            key=name,
            value=others.get(name),
            hint=f'[model] path = "{path}" in the plan, or other weights or another run',
        )


def _keys(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Keys that the plan states and a file states otherwise."""
    stated, own = _comparable(theirs), _comparable(ours)
    for name in [n for n in own if stated.get(n, own[n]) != own[n]][:_SHOWN]:
        yield Finding(
            message=f"{name} is {shown(stated[name])} in {path}, {shown(own[name])} in the plan",
            file=str(path),
            key=name,
            value=stated[name],
            hint=f"leave {name} out of [model], or write the value that is meant into {path}",
        )


def _comparable(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Stated keys that change what the model computes, rotary ones under one name each."""
    text = text_part(keys)
    kept = {
        name: value
        for name, value in text.items()
        if value is not None and name not in NOT_OF_THE_MODEL | _INDIFFERENT
    }
    rotary = {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    if not any(isinstance(value, dict) for value in rotary.values()):  # else one a kind of layer
        kind = rotary.pop("type", rotary.get("rope_type"))
        rotary["rope_type"] = kind
        kept |= {n: v for n, v in rotary.items() if v is not None and v != "default"}
    return kept


def _flat(value: Any, under: str = "") -> dict[str, Any]:
    """A tree of tables and lists by dotted path."""
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        entries = enumerate(value)  # type: ignore[assignment]
    else:
        return {under: value}
    found: dict[str, Any] = {}
    for name, entry in entries:
        found |= _flat(entry, f"{under}.{name}" if under else str(name))
    return found


def _lost(model: Model) -> Finding:
    return Finding(
        message=f"the model was read from {model.source!r}, which is not there or reads otherwise; "
        "its rotary base, epsilons and scalings are not in the plan",
        key="model.source",
        value=model.source,
        hint='put the file beside the plan, or write [model] path = "config.json"',
    )
