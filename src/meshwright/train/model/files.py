"""A folder of safetensors: which tensors its files hold, read from their headers alone.

Headers are read by the safetensors library, which checks lengths and offsets against the file. The
index names files of the folder and nothing else. Files of other formats are pickles: refused.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.train.model.lazy import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
LARGEST_INDEX_BYTES = 256 << 20
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_CONVERT = (
    'convert it where you trust it: python -c "from transformers import AutoModelForCausalLM as '
    "M; M.from_pretrained('FOLDER').save_pretrained('NEW')\""
)


def opener(folder: Path) -> Callable[[str], Any]:
    """Opens a safetensors file of a folder by name, each once."""
    from safetensors import safe_open

    return cache(lambda name: safe_open(folder / name, framework="pt"))


def tensors_in(folder: str | Path) -> dict[str, Stored]:
    """Every tensor of a folder by name; InvalidInput with all that cannot be read."""
    folder = Path(folder)
    names = weight_files(folder)
    open_file = opener(folder)
    found: dict[str, Stored] = {}
    wrong = _irregular(folder, names)
    if wrong:  # opening a named pipe would wait for ever
        raise InvalidInput(wrong)
    for name in names:
        try:
            file = open_file(name)
            for key in file.keys():  # noqa: SIM118 - no mapping
                part = file.get_slice(key)
                found[key] = Stored(
                    open=open_file,
                    file=name,
                    key=key,
                    shape=tuple(part.get_shape()),
                    dtype=_TYPES.get(part.get_dtype(), part.get_dtype()),
                )
        except Exception as error:  # safetensors raises kinds of its own, and OSError
            wrong.append(_finding(folder / name, f"cannot be read: {_first_line(error)}"))
    if wrong:
        raise InvalidInput(wrong)
    return found


def weight_files(folder: Path) -> list[str]:
    """Names of a folder's files that hold weights: those of the index, or all there are.

    InvalidInput where it has none, names files that are not there, or is no folder.
    """
    if not folder.is_dir():
        hint = "name a folder with config.json and *.safetensors"
        raise InvalidInput([_finding(folder, "is no folder", hint=hint)])
    if (folder / INDEX).exists():
        names = _indexed(folder / INDEX)
    else:
        names = sorted(p.name for p in folder.iterdir() if p.name.endswith(SUFFIX))
    if not names:
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLES)
        if pickles:
            reason = f"holds {pickles[0]}, a pickle, which can run code when it is read"
            raise InvalidInput([_finding(folder, reason, hint=_CONVERT)])
        raise InvalidInput([_finding(folder, "holds no safetensors")])
    return names


def _irregular(folder: Path, names: Iterable[str]) -> list[Finding]:
    """Names that are no plain files: pipes, sockets, devices, folders, links to nothing."""
    return [
        _finding(folder / name, "is no regular file", hint="put the weights themselves there")
        for name in names
        if not (folder / name).is_file()
    ]


def _indexed(path: Path) -> list[str]:
    """Names of files in an index."""
    try:
        if not path.is_file():
            raise InvalidInput([_finding(path, "is no regular file")])
        if path.stat().st_size > LARGEST_INDEX_BYTES:
            raise InvalidInput([_finding(path, "is larger than any index")])
        files = set(json.loads(path.read_bytes())["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput([_finding(path, f"is no index: {_first_line(error)}")]) from None
    wrong = [
        _finding(path, f"names {name!r}, which is no safetensors file of its folder")
        for name in files
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(SUFFIX)
    ]
    wrong += [
        _finding(path.parent / name, "is missing, though the index names it")
        for name in files
        if not wrong and not (path.parent / name).is_file()
    ]
    if wrong:
        raise InvalidInput(wrong)
    return sorted(files)


def _finding(path: Path, reason: str, *, hint: str = "download or export it again") -> Finding:
    return Finding(message=f"{path.name} {reason}", file=str(path), reason=reason, hint=hint)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
