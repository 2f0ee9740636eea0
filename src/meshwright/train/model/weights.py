"""Weights to start from: a folder of safetensors as transformers and the hubs have it.

Every rank reads the slices that it holds and no others, also where files hold one tensor an expert
and modules all experts in one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.train.adapters.conversion import ignored_patterns, into_model, tied_names
from meshwright.train.adapters.lora import first_value, is_adapter
from meshwright.train.model import initial
from meshwright.train.model.files import tensors_in
from meshwright.train.model.initial import fill_buffers, materialize
from meshwright.train.model.names import named_tensors
from meshwright.train.model.share import boxes_of, part_of
from meshwright.train.model.twin import twin_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor, nn

    from meshwright.train.model.lazy import Lazy

READABLE = ("float64", "float32", "float16", "bfloat16")
_SHOWN = 8  # findings of one kind


def load(
    modules: Iterable[nn.Module],
    folder: str | Path,
    *,
    device: torch.device | str,
    config: Any = None,
    seed: int = 0,
) -> None:
    """Fills a rank's stages, on meta or empty, from the safetensors in `folder`.

    Values are cast to the stages' types. `config` is the whole model's configuration, by default
    the stages' own. Adapters, which the folder has none of, start by `seed`. InvalidInput with
    every tensor that is missing, left over, of another shape or quantized: the same on all ranks.
    """
    modules = list(modules)
    sources = sources_in(folder, config or _config(modules[0]))
    for module in modules:
        materialize(module, device=device)
        fill_buffers(module)
        with torch.no_grad():
            for name, tensor in named_tensors(module):
                if is_adapter(name):
                    initial.fill(tensor, first_value(name, tensor), seed=seed, name=name)
                else:
                    fill(tensor, sources[name])


def fill(tensor: Tensor, source: Lazy) -> None:
    """Reads this rank's part of a tensor."""
    part = part_of(tensor)
    for box in boxes_of(tensor):
        source.read_into(box.of(part), box.start)


def sources_in(folder: str | Path, config: Any) -> dict[str, Lazy]:
    """Where every weight of a model lies in a folder, by canonical name; InvalidInput with all
    that does not fit.
    """
    folder = Path(folder)
    twin = twin_of(config)
    found = into_model(twin, tensors_in(folder))
    for name, origin in tied_names(twin).items():
        found.setdefault(origin, found[name]) if name in found else None
        found.pop(name, None)
    wanted = {n: t for n, t in twin.state_dict().items() if n not in tied_names(twin)}
    wrong = [*_missing(wanted, found, folder), *_unfit(wanted, found, folder)]
    wrong += _left_over(twin, wanted, found, folder)
    if wrong:
        raise InvalidInput(wrong)
    return {name: found[name] for name in wanted}


def _config(module: nn.Module) -> Any:
    return getattr(module, "lm", module).config


def _missing(
    wanted: Mapping[str, Tensor], found: Mapping[str, Lazy], folder: Path
) -> Iterator[Finding]:
    absent = [name for name in wanted if name not in found]
    for name in absent[:_SHOWN]:
        shape = list(wanted[name].shape)
        rest = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
        yield Finding(
            message=f"no file holds {name} {shape}{rest}",
            file=str(folder),
            key=name,
            reason="is missing",
            hint="see that config.json is that of these weights, and that all files are there",
        )


def _unfit(
    wanted: Mapping[str, Tensor], found: Mapping[str, Lazy], folder: Path
) -> Iterator[Finding]:
    """Tensors of another shape, and quantized ones."""
    for name in wanted.keys() & found.keys():
        lazy, shape = found[name], tuple(wanted[name].shape)
        place = str(folder / lazy.places[0])
        if lazy.shape != shape:
            yield Finding(
                message=f"{name} is {list(lazy.shape)} in the file, {list(shape)} in the model",
                file=place,
                key=name,
                reason="has another shape",
                hint="see that config.json is that of these weights",
            )
        elif lazy.dtype not in READABLE:
            yield Finding(
                message=f"{name} is stored as {lazy.dtype}: quantized weights are not read",
                file=place,
                key=name,
                reason="is quantized",
                hint="take the bfloat16 release, or dequantize it with transformers first",
            )


def _left_over(
    twin: Any, wanted: Mapping[str, Tensor], found: Mapping[str, Lazy], folder: Path
) -> Iterator[Finding]:
    """Tensors that the model has no place for, but those that its family is known to come with."""
    ignored = [re.compile(pattern) for pattern in ignored_patterns(twin)]
    extra = [n for n in found if n not in wanted and not any(p.search(n) for p in ignored)]
    for name in extra[:_SHOWN]:
        rest = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        yield Finding(
            message=f"{name} {list(found[name].shape)} is not in the model{rest}",
            file=str(folder / found[name].places[0]),
            key=name,
            reason="is left over",
            hint="see that config.json is that of these weights",
        )
