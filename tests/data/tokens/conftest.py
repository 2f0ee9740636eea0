"""Small vocabularies, trained on the spot, in every form that users bring."""

from __future__ import annotations

import base64
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.data.tokens.hostile import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROSE = (
    "The quick brown fox jumps over the lazy dog; it's what foxes do, isn't it?\n"
    "def tokenize(text):\n    return [word for word in text.split() if word]\n\n"
    "Numbers such as 3.14159, 1,234,567 and 0x1F; dates: 2024-02-29. Straße, naïve, Ελλάδα.\n"
)
END = "<|endoftext|>"
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _texts() -> Iterator[str]:
    yield from [PROSE] * 20
    yield from samples(800, seed=11)


@pytest.fixture(scope="session")
def byte_level() -> dict[str, Any]:
    """GPT-2's form: 256 bytes and some merges, one special token, id 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[END],
        show_progress=False,
    )
    made.train_from_iterator(_texts(), trainer)
    return dict(json.loads(made.to_str()))


@pytest.fixture(scope="session")
def llama_like() -> dict[str, Any]:
    """Llama 2's form: sentencepiece's BPE with a token for each byte."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        limit_alphabet=200,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    made.train_from_iterator(_texts(), trainer)
    found = dict(json.loads(made.to_str()))
    found["model"] |= {"byte_fallback": True, "fuse_unk": True}
    found["added_tokens"] = found["added_tokens"][: len(special)]
    blanks = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    parts = [{"type": "Prepend", "prepend": "▁"}, blanks]
    spelled = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    decoders = [spelled, {"type": "ByteFallback"}, {"type": "Fuse"}]
    found["normalizer"] = {"type": "Sequence", "normalizers": parts}
    found["pre_tokenizer"] = None
    found["decoder"] = {"type": "Sequence", "decoders": decoders}
    return found


@pytest.fixture(scope="session")
def unigram() -> dict[str, Any]:
    """T5's form."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
    )
    made.train_from_iterator([PROSE] * 20, trainer)
    return dict(json.loads(made.to_str()))


@pytest.fixture(scope="session")
def ranks(byte_level: dict[str, Any]) -> bytes:
    """The byte-level vocabulary as a rank file, without its special token."""
    from meshwright.data.tokens.admission import byte_letters

    bytes_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    tokens = [
        bytes(bytes_of[letter] for letter in token)
        for token in sorted(byte_level["model"]["vocab"], key=byte_level["model"]["vocab"].get)
        if token != END
    ]
    return b"".join(
        b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tokenizer.json, with some of its parts replaced, and gives its path."""

    def write(tokenizer: dict[str, Any], **parts: Any) -> Path:
        changed = copy.deepcopy(tokenizer)
        changed["model"] |= parts.pop("model", {})
        changed["added_tokens"] += parts.pop("added", [])
        changed |= parts
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(changed, ensure_ascii=False), encoding="utf-8")
        return path

    return write


def added(content: str, id: int, **fields: Any) -> dict[str, Any]:
    """An added token of a tokenizer.json."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content, "special": False, **plain, **fields}
