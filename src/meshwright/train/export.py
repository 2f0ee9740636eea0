"""A checkpoint as a folder that transformers' `from_pretrained` and vLLM load.

One process, and no model in memory: tensors are put together from the pieces that ranks wrote, one
at a time, in the arrangement that the family is published in (an expert a tensor, where it is so).
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.shards.hashed import creating
from meshwright.train import safetensors
from meshwright.train.adapters import lora
from meshwright.train.adapters.conversion import out_of_model, tied_names
from meshwright.train.checkpoint.folders import damage_of, latest, steps_in
from meshwright.train.checkpoint.index import INDEX, key_of, read_index
from meshwright.train.checkpoint.manifest import MANIFEST, read_manifest
from meshwright.train.checkpoint.state import WEIGHTS
from meshwright.train.model.configuration import configuration_from_keys
from meshwright.train.model.files import INDEX as FILES
from meshwright.train.model.files import SUFFIX, opener
from meshwright.train.model.lazy import Pieced
from meshwright.train.model.merged import Merged
from meshwright.train.model.twin import twin_of
from meshwright.train.safetensors import Outline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from meshwright.base.finding import Finding
    from meshwright.train.checkpoint.index import Index
    from meshwright.train.checkpoint.manifest import Manifest
    from meshwright.train.model.lazy import Lazy

SHARD_BYTES = 5 * 10**9  # as the hubs have it
DTYPES = ("float32", "bfloat16", "float16", "float64")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
_WRITTEN = frozenset({"config.json", "generation_config.json", FILES, *TOKENIZER_FILES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A checkpoint that was verified, and what is wrong with newer ones."""

    folder: Path
    damage: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: `step` that the weights are of, `files` by name with their bytes.

    `damage` is of newer checkpoints of the run that were passed over.
    """

    folder: Path
    step: int
    model_type: str
    parameters: int
    dtype: str
    files: dict[str, int]
    damage: tuple[Finding, ...] = ()


def export(
    checkpoint: str | Path,
    out: str | Path,
    *,
    dtype: str | None = None,
    tokenizer: str | Path | None = None,
    shard_bytes: int = SHARD_BYTES,
    force: bool = False,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """Writes the weights of a checkpoint ("runs/a/step-1000") into the folder `out`.

    Of the folder of a run it takes the newest checkpoint that is whole. `dtype` is that of the
    files, by default the one that weights were trained in. `tokenizer` is a folder whose tokenizer
    goes with them. `out` is there whole or not at all; with `force` it replaces an earlier export,
    never a folder in which anything else lies. `tell` is
    given bytes done and in all. InvalidInput for a checkpoint that is unfinished, torn or changed,
    MeshwrightError for one of a model that is not known.
    """
    out = Path(out).resolve() if Path(out).is_symlink() else Path(out)
    _check(out, dtype)
    _check_replaced(out, Path(checkpoint), force=force)
    found = _whole(Path(checkpoint))
    checkpoint = found.folder
    manifest = read_manifest(checkpoint)
    model = _model(manifest, checkpoint)
    index = read_index(checkpoint / INDEX)
    tensors = _arranged(model, index, checkpoint)
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        kind = dtype or _commonest(tensors)
        kept = _kept_wide(model, dtype)
        outlines = {
            name: Outline(
                dtype=lazy.dtype if dtype is None or name in kept else dtype, shape=lazy.shape
            )
            for name, lazy in tensors.items()
        }
        _write_weights(part, tensors, outlines, shard_bytes=shard_bytes, tell=tell)
        _write_configuration(part, model, kind)
        _copy_tokenizer(tokenizer or _known_tokenizer(manifest), part)
        _put(part, out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeshwrightError(f"cannot write {str(out)!r}: {reason}", hint="name another") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(
        folder=out,
        step=manifest.step,
        model_type=model.config.model_type,
        parameters=sum(t.numel() for t in model.parameters()),
        dtype=kind,
        files={path.name: path.stat().st_size for path in sorted(out.iterdir())},
        damage=found.damage,
    )


def _check(out: Path, dtype: str | None) -> None:
    """MeshwrightError for what can be seen to be wrong before anything is read."""
    if dtype is not None and dtype not in DTYPES:
        raise MeshwrightError(f"no dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")
    if out.is_file() or (out.exists() and not out.is_dir()):
        raise MeshwrightError(f"{str(out)!r} is a file", hint="name a folder")
    if not out.parent.is_dir():
        raise MeshwrightError(
            f"{str(out.parent)!r} is no folder", hint=f"mkdir -p {shlex.quote(str(out.parent))}"
        )


def _check_replaced(out: Path, checkpoint: Path, *, force: bool) -> None:
    """MeshwrightError where anything would be lost but an earlier export that may be replaced."""
    place = out.resolve()
    for held, what in ((Path.cwd(), "folder that you are in"), (checkpoint, "checkpoint itself")):
        if held.resolve().is_relative_to(place):
            raise MeshwrightError(
                f"{str(out)!r} is or holds the {what}", hint="name another folder with -o"
            )
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in names if not _is_exported(name)]
    if foreign:
        raise MeshwrightError(
            f"the folder {str(out)!r} holds {foreign[0]!r}, which no export writes",
            hint="name another folder with -o",
        )
    if names and not force:
        raise MeshwrightError(
            f"the folder {str(out)!r} is not empty", hint="name another, or replace it: --force"
        )


def _is_exported(name: str) -> bool:
    """Whether a file is one that an export writes."""
    return name in _WRITTEN or (name.startswith("model") and name.endswith(SUFFIX))


def _whole(checkpoint: Path) -> Whole:
    """The checkpoint that was named, or the newest of the run that was; all of it verified."""
    if not (checkpoint / MANIFEST).exists() and steps_in(checkpoint):
        newest = latest(checkpoint)
        if newest.folder is None:
            raise InvalidInput(newest.damage)
        return Whole(folder=newest.folder, damage=newest.damage)
    damage = damage_of(checkpoint)
    if damage:
        raise InvalidInput(damage)
    return Whole(folder=checkpoint)


def _model(manifest: Manifest, checkpoint: Path) -> Any:
    """The model that the checkpoint says it is of, on meta."""
    keys = manifest.facts.get("config")
    if not isinstance(keys, dict):
        raise MeshwrightError(
            f"{checkpoint} does not say of which model it is",
            hint="export a checkpoint that `meshwright train` wrote",
        )
    return twin_of(configuration_from_keys(keys))


def _arranged(model: Any, index: Index, checkpoint: Path) -> dict[str, Lazy]:
    """Every tensor to be written, in order; tied ones once."""
    open_file = opener(checkpoint)
    held: dict[str, Lazy] = {}
    for name, value in model.state_dict().items():
        if name in tied_names(model):
            continue
        entry = index.tensors.get(WEIGHTS + name)
        if entry is None or entry.shape != tuple(value.shape):
            raise MeshwrightError(
                f"{checkpoint} has no {name} of {list(value.shape)}, which its own configuration "
                "calls for",
                hint="export another step",
            )
        held[name] = Pieced(open=open_file, entry=entry, key_of=_key_under(WEIGHTS + name))
    return out_of_model(model, {name: _merged(name, held[name], index, open_file) for name in held})


def _merged(name: str, base: Lazy, index: Index, open_file: Callable[[str], Any]) -> Lazy:
    """The weight with its adapter, where it has one."""
    pair = lora.adapters_of(name)
    entries = [index.tensors.get(WEIGHTS + n) for n in pair or ()]
    if pair is None or not all(entries):
        return base
    down, up = (
        Pieced(open=open_file, entry=entry, key_of=_key_under(WEIGHTS + n))
        for n, entry in zip(pair, entries, strict=True)
        if entry is not None
    )
    return Merged(base=base, down=down, up=up, scaling=lora.SCALING)


def _kept_wide(model: Any, dtype: str | None) -> frozenset[str]:
    """Tensors that keep their type: what transformers keeps in float32 (routers), and buffers."""
    if dtype is None:
        return frozenset()
    narrow = twin_of(model.config, dtype=getattr(torch, dtype))
    buffers = {name for name, _ in narrow.named_buffers()}
    wide = {n for n, p in narrow.named_parameters() if p.dtype is not getattr(torch, dtype)}
    return frozenset(buffers | wide)


def _key_under(name: str) -> Callable[[tuple[int, ...]], str]:
    return lambda start: key_of(name, start)


def _commonest(tensors: Mapping[str, Lazy]) -> str:
    """The type of most tensors."""
    kinds = [lazy.dtype for lazy in tensors.values()]
    return max(set(kinds), key=kinds.count)


# Writing


def _write_weights(
    folder: Path,
    tensors: Mapping[str, Lazy],
    outlines: Mapping[str, Outline],
    *,
    shard_bytes: int,
    tell: Callable[[int, int], None],
) -> None:
    """The files of the weights, and their index where there are several."""
    shards = _shards(outlines, shard_bytes)
    total = sum(outline.bytes for outline in outlines.values())
    done = 0
    names: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = "model.safetensors"
        if len(shards) > 1:
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        names |= dict.fromkeys(shard, name)
        mine = {key: outlines[key] for key in shard}
        with creating(folder / name) as file:
            safetensors.write(file, mine, _values(tensors, mine), metadata={"format": "pt"})
        done += sum(outline.bytes for outline in mine.values())
        tell(done, total)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": names}
        _write_json(folder / FILES, index)


def _shards(outlines: Mapping[str, Outline], most: int) -> list[list[str]]:
    """Names by file, in order: as many as fit, at least one."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, outline in outlines.items():
        if shards[-1] and size + outline.bytes > most:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += outline.bytes
    return shards


def _values(tensors: Mapping[str, Lazy], outlines: Mapping[str, Outline]) -> Iterator[torch.Tensor]:
    """The values of each tensor, one in memory at a time."""
    for name, outline in outlines.items():
        values = torch.empty(outline.shape, dtype=getattr(torch, outline.dtype))
        tensors[name].read_into(values, (0,) * len(outline.shape))
        yield values


def _write_configuration(folder: Path, model: Any, dtype: str) -> None:
    """config.json and generation_config.json, as `save_pretrained` writes them."""
    model.config.architectures = [type(model).__name__]
    model.config.dtype = dtype
    model.config.use_cache = True
    model.config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)


def _known_tokenizer(manifest: Manifest) -> Path | None:
    """The tokenizer that the run was told of, if it is still there."""
    told = manifest.facts.get("tokenizer")
    folder = Path(told) if isinstance(told, str) and told else None
    return folder if folder and any((folder / n).is_file() for n in TOKENIZER_FILES) else None


def _copy_tokenizer(source: str | Path | None, folder: Path) -> None:
    if source is None:
        return
    found = [Path(source) / n for n in TOKENIZER_FILES if (Path(source) / n).is_file()]
    if not found:
        raise MeshwrightError(
            f"{str(source)!r} holds no tokenizer", hint="name a folder with tokenizer.json"
        )
    for path in found:
        shutil.copyfile(path, folder / path.name)


def _write_json(path: Path, value: Any) -> None:
    with creating(path) as file:
        file.write((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def _put(part: Path, out: Path) -> None:
    """Gives the folder its name; what stood there before goes once the new one is whole."""
    if out.exists():
        old = out.with_name(f".{out.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
        part.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    else:
        part.rename(out)
