"""Blends: several folders of shards in one stream, by weight; written down as blend.toml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.decode import REFUSED, Decoder
from meshwright.base.encode import plain, to_toml
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.locate.toml import parse_toml
from meshwright.base.noun import dataclass
from meshwright.data.interleave import deviation, parts_of, tree_of
from meshwright.data.shards.folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.data.shards.folder import Folder

FORMAT = 1
LARGEST_BYTES = 1 << 20
_HEADER = "# Shards blended by weight: meshwright data mix. Paths are relative to this file.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendSource:
    """A folder, its share of the samples, and what was in it when the blend was made."""

    folder: str  # relative to the blend, or absolute
    weight: float  # share of the samples, over the sum of all weights
    rows: int  # for training
    tokens: int  # likewise, padding left out
    manifest: str  # digest of its manifest; another is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """blend.toml. All sources share tokenizer, length of rows and type of the ids."""

    format: int = FORMAT  # another is not read
    seq_len: int  # tokens of a row
    dtype: str  # of the ids: "<u2" or "<i4"
    tokenizer: str  # digest of the vocabulary
    sources: tuple[BlendSource, ...]  # one [[sources]] for each folder

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, as parts of one."""
        total = sum(source.weight for source in self.sources)
        return tuple(source.weight / total for source in self.sources)

    @property
    def deviation(self) -> float:
        """Samples by which a source can ever be ahead of or behind its share."""
        return deviation(tree_of(parts_of([source.weight for source in self.sources])))

    def epochs(self, tokens: float) -> tuple[float, ...]:
        """How often each source is gone through in so many tokens, padding counted."""
        samples = tokens / self.seq_len
        return tuple(
            samples * share / source.rows
            for share, source in zip(self.shares, self.sources, strict=True)
        )


def make_blend(
    paths: Sequence[str], *, weights: Sequence[float] = (), beside: Path = Path()
) -> Blend:
    """The blend of these folders; without weights each has its share of the tokens.

    Paths are written relative to `beside`, the folder that the blend will lie in, where they were
    given as relative ones. InvalidInput when the folders cannot be blended.
    """
    folders = [open_folder(path) for path in paths]
    weights = weights or [float(folder.tokens) for folder in folders]
    findings = [*_weights(paths, weights), *_differences(folders), *_empty(folders)]
    if findings:
        raise InvalidInput(findings)
    return Blend(
        seq_len=folders[0].seq_len,
        dtype=folders[0].vocabulary.dtype,
        tokenizer=folders[0].vocabulary.digest,
        sources=tuple(
            BlendSource(
                folder=path if os.path.isabs(path) else os.path.relpath(path, beside),
                weight=weight,
                rows=len(folder),
                tokens=folder.tokens,
                manifest=folder.manifest.digest,
            )
            for path, weight, folder in zip(paths, weights, folders, strict=True)
        ),
    )


def blend_text(blend: Blend) -> str:
    """The text of blend.toml."""
    return _HEADER + to_toml({"format": blend.format, **plain(blend)})


def read_blend(path: Path) -> Blend:
    """A blend from its file; InvalidInput with places when it is none."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise _refused(path, "is no file")
        if path.stat().st_size > LARGEST_BYTES:
            raise _refused(path, "is larger than any blend")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "meshwright data mix FOLDER... -o blend.toml makes one"
        raise _refused(path, reason, hint=hint) from None
    decoder = Decoder(parse_toml(text, str(path)))
    blend = decoder.record(Blend, ())
    if blend is not REFUSED:
        _check_values(decoder, blend)
    if decoder.findings:
        raise InvalidInput(decoder.findings)
    assert isinstance(blend, Blend)
    return blend


def open_blend(path: Path, split: str = "train") -> tuple[tuple[Folder, ...], tuple[int, ...]]:
    """The folders of a blend and their weights as whole numbers.

    InvalidInput when a folder is no longer what it was when the blend was made.
    """
    blend = read_blend(path)
    folders = tuple(open_folder(path.parent / source.folder, split) for source in blend.sources)
    findings = [
        _finding(
            f"{source.folder} was built again since the blend was made",
            file=path,
            hint="meshwright data mix FOLDER... -o blend.toml makes it anew",
        )
        for source, folder in zip(blend.sources, folders, strict=True)
        if folder.manifest.digest != source.manifest
    ]
    findings += _differences(folders)
    if findings:
        raise InvalidInput(findings)
    return folders, parts_of([source.weight for source in blend.sources])


def megatron_data_path(paths: Sequence[str], blend: Blend) -> list[str]:
    """The arguments of Megatron's --data-path: a weight and a prefix for each training shard.

    A source's weight is divided among its shards by their tokens.
    """
    words: list[str] = []
    for path, source in zip(paths, blend.sources, strict=True):
        for record in open_folder(path).records:
            if record.tokens:
                weight = source.weight * record.tokens / source.tokens
                words += [f"{weight:.10g}", os.path.join(path, record.name)]
    return words


def _weights(paths: Sequence[str], weights: Sequence[float]) -> Iterator[Finding]:
    if len(weights) != len(paths):
        message = f"{len(weights)} weights for {len(paths)} folders"
        yield _finding(message, hint="one weight for each folder, as --weights 0.7,0.3")
    for weight in weights:
        if not 0 < weight < 1e18:
            hint = "leave a folder out to give it none"
            yield _finding(f"weight {weight:g} is not positive and finite", hint=hint)


def _differences(folders: Sequence[Folder]) -> Iterator[Finding]:
    """One finding for each thing in which a folder differs from the first."""
    first = folders[0] if folders else None
    for folder in folders[1:]:
        assert first is not None
        for name, ours, theirs, hint in (
            ("tokenizer", folder.vocabulary.digest, first.vocabulary.digest, "one tokenizer"),
            ("eod_id", folder.vocabulary.eod_id, first.vocabulary.eod_id, "one --eod"),
            ("dtype", folder.vocabulary.dtype, first.vocabulary.dtype, "one tokenizer"),
            ("seq_len", folder.seq_len, first.seq_len, f"--seq-len {first.seq_len}"),
        ):
            if ours != theirs:
                yield _finding(
                    f"{folder.path} has {name} {ours}, {first.path} {theirs}",
                    hint=f"build both with {hint}",
                )


def _empty(folders: Sequence[Folder]) -> Iterator[Finding]:
    for folder in folders:
        if not len(folder):
            yield _finding(f"{folder.path} has no rows for training", hint="leave it out")


def _check_values(decoder: Decoder, blend: Blend) -> None:
    if blend.format != FORMAT:
        decoder.refuse(("format",), f"is unknown; this version reads {FORMAT}")
    if not blend.sources:
        decoder.missing(("sources",), hint="write [[sources]] with folder, weight, ...")
    if blend.seq_len < 1:
        decoder.refuse(("seq_len",), "is below 1")
    for number, source in enumerate(blend.sources):
        if not 0 < source.weight < 1e18:
            decoder.refuse(("sources", number, "weight"), "is not positive and finite")
        for name in ("rows", "tokens"):
            if getattr(source, name) < 1:
                decoder.refuse(("sources", number, name), "is below 1")


def _refused(path: Path, reason: str, *, hint: str = "make the blend again") -> MeshwrightError:
    return InvalidInput([_finding(reason, file=path, hint=hint)])


def _finding(message: str, *, hint: str, file: Path | str = "") -> Finding:
    return Finding(message=message, file=str(file), reason=message, hint=hint)
