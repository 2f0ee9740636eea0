"""Encodes a sample of the saved text again and compares it with the tokens in the shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.needs import need
from meshwright.data.settings import TokenizerSource
from meshwright.data.shards.integrity import REPORT, finding
from meshwright.data.shards.names import TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from meshwright.base.finding import Finding
    from meshwright.data.shards.folder import Folder


def check_tokens(
    folder: Path, splits: dict[str, Folder], texts: list[str], *, documents: int
) -> tuple[list[Finding], int]:
    """Findings, and how many documents were compared: up to `documents` of each text file."""
    if not splits or not texts or not documents:
        return [], 0
    try:
        tokenizer = load_tokenizer(folder, next(iter(splits.values())))
    except MeshwrightError as error:
        return [finding(folder / TOKENIZER, f"cannot be used: {error}", hint=REPORT)], 0
    findings: list[Finding] = []
    compared = 0
    for name in texts:
        for row in _sample(folder / name, documents):
            wrong = _differs(row, splits, tokenizer)
            compared += wrong is not None
            if wrong:
                findings.append(finding(folder / name, wrong, hint=REPORT))
                break
    return findings, compared


def load_tokenizer(folder: Path, shards: Folder) -> Any:
    """The tokenizer that was saved; MeshwrightError when it is not the one that was used."""
    from meshwright.data.tokens.tokenizer import load

    tokenizer = load(TokenizerSource(file=str(folder / TOKENIZER)), library="reference")
    if tokenizer.digest != shards.vocabulary.digest:
        raise MeshwrightError(
            f"the tokenizer in {str(folder / TOKENIZER)!r} is not the one of the shards",
            hint="copy the one that was used, or build again",
        )
    return tokenizer


def _sample(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """Rows of the first, middle and last row groups of a text file, evenly spread."""
    parquet = need("pyarrow.parquet", "reading saved text")
    with parquet.ParquetFile(path) as table:
        groups = table.num_row_groups
        chosen = sorted({0, groups // 2, groups - 1} - {-1}) if groups else []
        for group in chosen:
            rows = table.read_row_group(group)
            places = np.unique(np.linspace(0, len(rows) - 1, count // len(chosen) + 1).astype(int))
            yield from rows.take(places).to_pylist() if len(rows) else ()


def _differs(row: dict[str, Any], splits: dict[str, Folder], tokenizer: Any) -> str | None:
    """What is wrong with one document; None when it is in none of the shards at hand."""
    for folder in splits.values():
        for number, record in enumerate(folder.records):
            if record.name == row["shard"]:
                found = folder.shard(number).document(int(row["document"])).tolist()
                wanted = [*tokenizer.reference([row["text"]])[0], tokenizer.eod_id]
                if found != wanted:
                    place = f"{row['input']}:{row['line']}"
                    return f"has {place}, whose tokens in {record.name} are others"
                return ""
    return None
