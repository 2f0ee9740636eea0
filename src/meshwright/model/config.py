"""From a Hugging Face style configuration to a `Model`, with everything that is wrong at once.

Each file in families/ reads one group of architectures and lists them in a mapping `FAMILIES`:
model_type -> reader. Adding a family is adding a file there. Where a key is absent the value is
the one that transformers 5.24 takes for the family (src/transformers/models/*/configuration_*.py),
and the model says so in `assumptions`.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.names import nearest
from meshwright.base.problem import Problem
from meshwright.model import families
from meshwright.model.fields import Fields, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from meshwright.base.finding import Finding
    from meshwright.model.architecture import Model

    Reader = Callable[[Fields], Model]
    Locate = Callable[[Problem], Finding]

GENERIC = "llama"
_LLAMA_KEYS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
# parts of keys that only other kinds of layer have: experts, latent attention, state spaces
_FOREIGN = (
    "expert",
    "moe",
    "lora_rank",
    "mamba",
    "ssm",
    "state_size",
    "linear_",
    "hybrid",
    "conv_",
)
_INHERITED = ("tie_word_embeddings",)  # a composite configuration may state it at the top only


class InvalidConfig(MeshwrightError):  # noqa: N818 - says what it is
    """A model configuration that cannot be read; `problems` lists everything wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@lru_cache(maxsize=1)
def _files() -> tuple[str, ...]:
    """Names of the files in families/, sorted."""
    folder = Path(families.__path__[0])
    return tuple(sorted(path.stem for path in folder.glob("[!_]*.py")))


def _readers_in(file: str) -> Mapping[str, Reader]:
    """model_type -> reader as one file lists them."""
    listed: Mapping[str, Reader] = importlib.import_module(f"{families.__name__}.{file}").FAMILIES
    return listed


def readers() -> Mapping[str, Reader]:
    """Every known model_type and its reader, from the files in families/."""
    return {kind: reader for file in _files() for kind, reader in _readers_in(file).items()}


def reader_of(kind: str) -> Reader | None:
    """The reader of a model_type, None when there is none.

    Files whose name begins the model_type are opened first, so that the others mostly stay shut.
    """
    for file in sorted(_files(), key=lambda name: (not kind.startswith(name), -len(name))):
        found = _readers_in(file).get(kind)
        if found is not None:
            return found
    return None


def model_from_config(
    config: Mapping[str, Any], *, name: str = "", source: str = "", locate: Locate | None = None
) -> Model:
    """The model that a configuration describes; multimodal ones are read for their text part.

    Raises `InvalidConfig` with every problem found; with `locate`, which finds a problem's place in
    a file (`Document.finding`), the same as `InvalidInput`.
    """
    try:
        return _read(config, name=name, source=source)
    except InvalidConfig as error:
        if locate is None:
            raise
        raise InvalidInput(locate(problem) for problem in error.problems) from None


def _read(config: object, *, name: str, source: str) -> Model:
    """The model, or InvalidConfig."""
    if not isinstance(config, dict):
        reason = "is no mapping of keys to values"
        raise InvalidConfig(
            [Problem("", printable(config), reason, "give the contents of a config.json")]
        )
    fields, reader = _select(config, name=name, source=source)
    model = reader(fields)
    if fields.problems:
        raise InvalidConfig(fields.problems)
    return replace(
        model, assumptions=tuple(fields.assumptions), source=model.source or fields.source
    )


def _select(config: Mapping[str, Any], *, name: str, source: str) -> tuple[Fields, Reader]:
    """The mapping that describes the text model, and the reader of its family."""
    text, path = _text_part(config)
    outer, inner = config.get("model_type"), text.get("model_type")
    kind = inner if isinstance(inner, str) else outer
    fields = Fields(text, path=path, name=name, source=source)
    if path:
        fields.assume(f"only the text part ({path}) is read")
    for candidate in (kind, f"{kind}_text") if isinstance(kind, str) else ():
        reader = reader_of(candidate)
        if reader is not None:
            fields.owner = candidate
            return fields, reader
    return fields, _generic(fields, kind)


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The nested text configuration and its path, or the configuration itself."""
    for key in ("text_config", "llm_config", "language_config"):
        nested = config.get(key)
        if nested is not None and not isinstance(nested, dict):
            hint = "write a mapping of keys to values, or leave it out"
            raise InvalidConfig([Problem(key, printable(nested), "is no mapping", hint)])
        if isinstance(nested, dict):
            inherited = {k: config[k] for k in _INHERITED if k in config and k not in nested}
            return {**inherited, **nested}, key
    return config, ""


def _generic(fields: Fields, kind: object) -> Reader:
    """The reader for an unknown model_type: Llama's when all its keys are there, else a problem."""
    fields.owner = GENERIC
    known = readers()
    if kind is not None and not isinstance(kind, str):
        fields.reject("model_type", "is not text", value=kind)
        return _nothing
    if _looks_like_llama(fields.config):
        shown = f"model_type {kind!r} is unknown" if kind else "no model_type"
        fields.assume(f"{shown}: read as a Llama-like decoder")
        return known[GENERIC]
    near = nearest(kind or "", known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    reason = "is an unknown architecture" if kind else "is missing"
    fields.problems.append(Problem(fields.located("model_type"), printable(kind), reason, hint))
    return _nothing


def _looks_like_llama(config: Mapping[str, Any]) -> bool:
    """True when a Llama-like decoder's keys are all there and none of another kind's."""
    foreign = any(value and part in str(key) for key, value in config.items() for part in _FOREIGN)
    return not foreign and all(config.get(key) is not None for key in _LLAMA_KEYS)


def _nothing(fields: Fields) -> Model:
    """Stands in for the reader of an architecture that is not known."""
    raise InvalidConfig(fields.problems)
