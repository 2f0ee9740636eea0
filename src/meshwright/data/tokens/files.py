"""Which file holds a vocabulary and of what kind; a clear word about those that hold none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 256 << 20  # no vocabulary is larger
GIVE = "give a tokenizer.json (or its folder), a .tiktoken file, a tekken.json or a sentencepiece"
GIVE += " .model"
RECORD = "meshwright.json"  # beside the copy in an output folder
KINDS = ("auto", "json", "tiktoken", "sentencepiece")

_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_IN_FOLDER = (
    "tokenizer.json",
    "tekken.json",
    *(vocabulary for vocabulary, _ in _PAIRS),
    "tiktoken.model",
    "tokenizer.model",
)
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", RECORD)
_BY_HEAD = {  # first bytes: what such a file is
    b"version https://git-lfs": "a git-lfs pointer, not the file itself (run `git lfs pull`)",
    b"GGUF": "a GGUF model",
    b"PK\x03\x04": "a zip archive, probably a torch checkpoint",
    b"\x80\x02": "a Python pickle, probably a torch checkpoint",
    b"\x80\x04": "a Python pickle",
    b"PAR1": "a parquet file",
    b"\x1f\x8b": "a gzip file (decompress it first)",
    b"\x28\xb5\x2f\xfd": "a zstd file (decompress it first)",
    b"<!DOCTYPE": "a web page, probably an error page saved in place of the file",
    b"<html": "a web page, probably an error page saved in place of the file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A vocabulary's files. `kind` is json, merges, tekken, tiktoken or sentencepiece."""

    kind: str
    path: Path
    merges: Path | None = None  # beside a vocab.json

    @property
    def folder(self) -> Path:
        """Where tokenizer_config.json may lie."""
        return self.path.parent


def refused(path: Path, what: str, *, hint: str = "", reason: str = "") -> InvalidInput:
    """The error for a file that cannot be the vocabulary."""
    finding = Finding(message=what, file=str(path), reason=reason, hint=hint or GIVE)
    return InvalidInput([finding], hint=hint or GIVE)


def recognize(path: Path, *, kind: str = "auto") -> Found:
    """What the file is, or the best of the files in a folder. InvalidInput where it is none."""
    if kind not in KINDS:
        raise MeshwrightError(f"no kind of tokenizer is called {kind!r}", hint=" | ".join(KINDS))
    try:
        if path.is_dir():
            return _in_folder(path, kind=kind)
        _refuse_absent(path)
        return _of_file(path, kind=kind)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}") from None


def files_read(path: Path) -> tuple[Path, ...]:
    """Every file that a tokenizer of that path may be read from, by name; never a model's weights.

    InvalidInput where there is nothing at the path.
    """
    _refuse_absent(path)
    folder, names = path.parent, [path.name]
    if path.is_dir():
        folder, names = path, _names_in(path)
    names += [name for pair in _PAIRS if {*pair} & {*names} for name in pair]
    paths = [folder / name for name in sorted({*names, *_BESIDE})]
    return tuple(p for p in paths if p.is_file() and p.stat().st_size <= MOST_BYTES)


def read_bytes(path: Path) -> bytes:
    """The whole file, which is of a size that a vocabulary may have."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise refused(path, "is no file")
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise refused(path, f"is {size >> 20} MiB, too large for a vocabulary")
        return path.read_bytes()
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; InvalidInput with line and column where it does not."""
    content = read_bytes(path)
    try:
        found = _parsed(content)
    except ValueError:
        raise _broken(path, content) from None
    if not isinstance(found, dict):
        raise refused(path, f"holds a JSON {type(found).__name__}, not the object of a tokenizer")
    return found


def beside(folder: Path, name: str) -> dict[str, Any]:
    """A small JSON file that may lie in the folder; {} where it is absent or broken."""
    path = folder / name
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        found = _parsed(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _parsed(content: bytes) -> Any:
    import orjson

    return orjson.loads(content)


def _broken(path: Path, content: bytes) -> InvalidInput:
    """Where and why the JSON cannot be read."""
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        truncated = error.pos >= len(error.doc.rstrip()) - 1
        what = "ends in the middle of its JSON" if truncated else f"is not JSON: {error.msg}"
        finding = Finding(message=what, file=str(path), line=error.lineno, column=error.colno)
        return InvalidInput([finding], hint="fetch the file again" if truncated else GIVE)
    except (ValueError, RecursionError):
        pass
    return refused(path, "is not JSON in UTF-8", hint="fetch the file again")


def _refuse_absent(path: Path) -> None:
    if not path.exists():
        raise refused(path, "there is no such file; nothing is downloaded", hint=_absent(path))
    if not path.is_file() and not path.is_dir():  # a pipe would be waited for
        raise refused(path, "is a pipe or device, which can be read only once")


def _absent(path: Path) -> str:
    looks_like_hub = path.suffix == "" and len(path.parts) == 2
    fetched = "fetch its tokenizer.json first and give the path" if looks_like_hub else ""
    return fetched or GIVE


def _in_folder(folder: Path, *, kind: str) -> Found:
    """The vocabulary of a folder."""
    wrong: InvalidInput | None = None
    for name in _names_in(folder):
        path = folder / name
        if path.is_file():
            try:
                return _of_file(path, kind=kind)
            except InvalidInput as error:
                wrong = wrong or error
    if wrong is not None:
        raise wrong
    listed = ", ".join(sorted(path.name for path in folder.iterdir())[:12])
    raise refused(folder, "the folder holds no tokenizer", reason=f"it holds {listed or 'nothing'}")


def _names_in(folder: Path) -> list[str]:
    """What a vocabulary may be called in a folder, in the order in which libraries prefer them."""
    record = beside(folder, RECORD)
    names = [str(record["file"])] if record.get("file") else []
    names += [*_IN_FOLDER, *sorted(path.name for path in folder.glob("*.tiktoken"))]
    names += sorted(path.name for path in folder.glob("*.model*"))
    return [name for name in dict.fromkeys(names) if (folder / name).parent == folder]


def _of_file(path: Path, *, kind: str) -> Found:
    """What one file is, by its content, not by its name."""
    with path.open("rb") as file:
        head = file.read(4096)
    _refuse_other(path, head)
    found = _by_content(path, head)
    allowed = {"auto": (), "json": ("json", "merges"), "tiktoken": ("tiktoken", "tekken")}
    if kind != "auto" and found.kind not in allowed.get(kind, (kind,)):
        raise refused(path, f"is no {kind} file: it looks like {found.kind}")
    return found


def _refuse_other(path: Path, head: bytes) -> None:
    """InvalidInput for the kinds of file that are often given by mistake."""
    if not head.strip():
        raise refused(path, "is empty", hint="fetch the file again")
    for start, what in _BY_HEAD.items():
        if head.lstrip()[: len(start)] == start:
            raise refused(path, f"is {what}")
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < (1 << 31):
        raise refused(path, "is a safetensors file: a model's weights, not its tokenizer")


def _by_content(path: Path, head: bytes) -> Found:
    if head.lstrip()[:1] in (b"{", b"["):
        return _of_json(path)
    if head[:1] == b"\n":  # field 1 of the protobuf, a piece
        return Found(kind="sentencepiece", path=path)
    if _is_ranks(head):
        return Found(kind="tiktoken", path=path)
    if head[:9] == b"#version:" or path.name in {"merges.txt", "vocab.bpe"}:
        return _pair_of(path)
    raise refused(path, "is no tokenizer that is known")


def _is_ranks(head: bytes) -> bool:
    """Whether the first line is `base64 rank`."""
    parts = head.split(b"\n", 1)[0].split()
    return len(parts) == 2 and parts[1].isdigit() and not set(parts[0]) & set(b"{}[]:,\"'")


def _of_json(path: Path) -> Found:
    """Which JSON it is, by its keys."""
    keys = read_json(path)
    model = keys.get("model")
    if isinstance(model, dict) and "vocab" in model:
        return Found(kind="json", path=path)
    if isinstance(keys.get("vocab"), list) and isinstance(keys.get("config"), dict):
        return Found(kind="tekken", path=path)
    known = _known_json(keys)
    if known:
        near = path.with_name("tokenizer.json")
        raise refused(path, f"is {known}", hint=f"give {near}" if near.is_file() else "")
    if keys and all(type(value) is int for value in keys.values()):
        return _pair_of(path)
    raise refused(path, "is JSON, but no tokenizer: it has no `model.vocab`")


def _known_json(keys: dict[str, Any]) -> str:
    """What a JSON file that is no tokenizer is, by keys that give it away."""
    signs = {
        "weight_map": "the index of a model's weights",
        "tokenizer_class": "a tokenizer_config.json, which has no vocabulary",
        "added_tokens_decoder": "a tokenizer_config.json, which has no vocabulary",
        "architectures": "a model's config.json",
        "model_type": "a model's config.json",
        "hidden_size": "a model's config.json",
        "eos_token_id": "a generation_config.json",
        "eos_token": "a special_tokens_map.json, which has no vocabulary",
    }
    return next((what for key, what in signs.items() if key in keys), "")


def _pair_of(path: Path) -> Found:
    """A vocabulary with its merges, given by either."""
    for vocabulary, merges in _PAIRS:
        first, second = path.with_name(vocabulary), path.with_name(merges)
        if path.name in (vocabulary, merges) and first.is_file() and second.is_file():
            return Found(kind="merges", path=first, merges=second)
    wanted = " or ".join(" with ".join(pair) for pair in _PAIRS)
    raise refused(
        path,
        "is half of a vocabulary; the other half does not lie beside it",
        hint=f"keep {wanted} in one folder",
    )
