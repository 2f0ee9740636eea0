"""What a source of data is, by its name and by what lies there. Nothing is read but names."""

from __future__ import annotations

from pathlib import Path

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.words import shown
from meshwright.data.shards.names import MANIFEST
from meshwright.train.settings import SYNTHETIC

SHARDS, BLEND, INDEXED, TEXT = "shards", "blend", "indexed", "text"

_INDEX_ENDINGS = (".bin", ".idx")
_HINT = (
    "give a folder or blend.toml of `meshwright data`, the prefix of .bin and .idx files, "
    f'text or .jsonl, or "{SYNTHETIC}"'
)


def kind_of(source: str) -> str:
    """One of "synthetic", "shards", "blend", "indexed", "text"; InvalidInput where it is none."""
    if source == SYNTHETIC:
        return SYNTHETIC
    path = Path(source)
    if path.suffix == ".toml" and path.is_file():
        return BLEND
    if path.is_dir():
        return SHARDS if (path / MANIFEST).is_file() else _of_texts(path)
    if prefix_of(source) is not None:
        return INDEXED
    alone = _half_of(path)
    if alone is not None:
        raise _refused(
            source, f"{alone[0].name} is there, but {alone[1].name} beside it is missing"
        )
    if path.is_file():
        return TEXT
    raise _refused(source, "there is no such file or folder")


def prefix_of(source: str) -> Path | None:
    """The common name of a .bin and an .idx file, from it or from the name of either."""
    prefix, named = _pair_of(Path(source))
    return prefix if all(file.is_file() for file in named) else None


def _pair_of(path: Path) -> tuple[Path, list[Path]]:
    """The prefix that a name means, and its two files."""
    prefix = path.with_suffix("") if path.suffix in _INDEX_ENDINGS else path
    return prefix, [prefix.with_name(prefix.name + ending) for ending in _INDEX_ENDINGS]


def _half_of(path: Path) -> tuple[Path, Path] | None:
    """(the file of a pair that is there, the one that is missing), None where that is not so.

    A text whose name lies beside a .bin of another meaning stays a text.
    """
    _, named = _pair_of(path)
    there = [file for file in named if file.is_file()]
    if len(there) != 1 or (path.suffix not in _INDEX_ENDINGS and path.is_file()):
        return None
    missing = next(file for file in named if file != there[0])
    return there[0], missing


def _of_texts(folder: Path) -> str:
    """A folder without a manifest holds texts, or nothing that is of use."""
    endings = {"".join(path.suffixes[-2:]) for path in folder.iterdir() if path.is_file()}
    if any(".jsonl" in ending or ".txt" in ending for ending in endings):
        return TEXT
    raise _refused(str(folder), f"the folder has no {MANIFEST}, and no .jsonl or .txt files")


def _refused(source: str, reason: str) -> InvalidInput:
    message = f"data {shown(source)}: {reason}"
    finding = Finding(message=message, key="data", value=source, reason=reason, hint=_HINT)
    return InvalidInput([finding], hint=_HINT)
