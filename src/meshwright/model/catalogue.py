"""The preset models, and how a name or a path becomes a `Model`.

A preset is one file in presets/: what it is, where its facts can be found, what second source they
were compared with, other names for it and the configuration in the keys of its family. Adding a
model is adding a file.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest, slug
from meshwright.base.pattern import pattern
from meshwright.model.config import model_from_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.model.architecture import Model

_FOLDER = Path(__file__).parent / "presets"
_SAME_SIZE = 0.002  # of the parameters: norms and biases that a shape leaves out
# endings by which publishers tell variants of one architecture apart
_VARIANT = pattern(r"[-_.]?(hf|it|pt|base|chat|instruct|text|thinking|fp8|bf16|\d{4})$", re.I)


@lru_cache(maxsize=1)
def presets() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def catalogue() -> dict[str, str]:
    """Every preset's name and a line on what it is."""
    return {name: _preset(name)["description"] for name in presets()}


def preset_config(name: str) -> dict[str, Any]:
    """The configuration of a preset, as its publisher's config.json says it."""
    config: dict[str, Any] = _preset(name)["config"]
    return config


def preset_checked(name: str) -> str:
    """What second source a preset's facts were compared with."""
    checked: str = _preset(name)["checked"]
    return checked


def preset_hub_name(name: str) -> str:
    """The name of a preset on the Hugging Face hub, "" if it is not there."""
    source, on_hub, _ = _preset(name)["source"].partition(" on Hugging Face")
    return source if on_hub else ""


def preset_of_shape(model: Model) -> str:
    """The preset with the dimensions and the size of a model, "" if there is none."""
    from meshwright.model.count import parameters

    own = parameters(model).total
    for name in presets():
        config = preset_config(name)
        widths = (config.get("hidden_size"), config.get("num_hidden_layers"))
        if widths != (model.hidden_size, model.num_hidden_layers):
            continue
        if abs(parameters(load(name)).total - own) <= _SAME_SIZE * own:
            return name
    return ""


def load(name_or_path: str | Path) -> Model:
    """The model of a preset, of a config.json, or of a folder that holds one.

    Names are matched without regard to case and separators, with or without a publisher's prefix
    ("meta-llama/Llama-3.1-70B") and a variant's ending ("-Instruct"). Raises `UnknownName` with
    the nearest presets, or `InvalidInput` with every problem of a file, located.
    """
    text = str(name_or_path)
    path = Path(text)
    if path.suffix == ".json" or (text and os.path.exists(text)):
        return _load_file(path / "config.json" if path.is_dir() else path)
    name = resolve(text)
    preset = _preset(name)
    return model_from_config(preset["config"], name=name, source=preset["source"])


def resolve(name: str) -> str:
    """The preset that a name means; raises `UnknownName` with suggestions."""
    known = {slug(preset): preset for preset in presets()}
    spellings = tuple(_spellings(name))
    for spelling in spellings:
        if slug(spelling) in known:
            return known[slug(spelling)]
    aliases = {slug(a): preset for preset in presets() for a in _preset(preset).get("aliases", ())}
    for spelling in spellings:
        if slug(spelling) in aliases:
            return aliases[slug(spelling)]
    raise UnknownName("model", name, suggestions=nearest(spellings[-1], presets()))


def _spellings(name: str) -> Iterator[str]:
    """A name, the name without its publisher, and that without endings, one after the other."""
    yield name
    bare = name.rsplit("/", 1)[-1]
    yield bare
    while (shorter := _VARIANT.sub("", bare)) != bare and shorter:
        bare = shorter
        yield bare


def _preset(name: str) -> Mapping[str, Any]:
    """One preset's file."""
    with open(_FOLDER / f"{name}.json", encoding="utf-8") as stream:
        content: Mapping[str, Any] = json.load(stream)
    return content


def _load_file(path: Path) -> Model:
    """The model of a configuration file, problems located in it."""
    from meshwright.base.locate import read

    document = read(path, syntax="json")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return model_from_config(document.data, name=name, source=str(path), locate=document.problem)
