"""The tokenizer's files in the output folder, complete with what the settings added."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.data.tokens.files import RECORD, beside

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.data.settings import TokenizerSource
    from meshwright.data.tokens.vocabulary import Vocabulary

_CONFIG = "tokenizer_config.json"


def save(vocabulary: Vocabulary, folder: Path, *, eod_id: int) -> None:
    """Writes the files, and a record of what they do not say."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in vocabulary.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    if vocabulary.kind == "json" and _CONFIG not in vocabulary.files:
        _write(folder / _CONFIG, _config(vocabulary, eod_id))
    first = next(iter(vocabulary.files))
    facts = {name: value for name, value in vocabulary.facts.items() if value}
    _write(
        folder / RECORD, {"file": first, "eod": str(eod_id), "digest": vocabulary.digest, **facts}
    )


def recalled(settings: TokenizerSource, path: Path) -> TokenizerSource:
    """The settings with what a saved folder's record adds to them."""
    record = beside(path, RECORD) if path.is_dir() else {}
    return replace(
        settings,
        pattern=settings.pattern or str(record.get("pattern", "")),
        eod=settings.eod or str(record.get("eod", "")),
    )


def _config(vocabulary: Vocabulary, eod_id: int) -> dict[str, Any]:
    """The little that transformers wants to know: without an end of text Megatron stops."""
    names = {id: token for token, id in {**vocabulary.extra, **vocabulary.special}.items()}
    end = {"eos_token": names[eod_id]} if eod_id in names else {}
    return {"tokenizer_class": "PreTrainedTokenizerFast", **end}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
