"""What gigatoken gets wrong, and that it is then not used.

Each form of tokenizer.json below was measured with gigatoken 0.10.0: "gigatoken" forms it encodes
as tokenizers does, "guarded" ones but for documents that a guard sends to the reference, the rest
it refuses or gets wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens import patterns
from meshwright.data.tokens.fast import Gigatoken, Guarded
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.tokenizer import load
from meshwright.data.tokens.trial import Slow, choose, first_difference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshwright.data.tokens.vocabulary import Ids

KINDS = {"gigatoken": Gigatoken, "guarded": Guarded, "reference": Slow}
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
LAST = {**BYTE_LEVEL, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}
CL100K_IN_JSON = patterns.IN_JSON["gpt4"]


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [*parts]}


def split(pattern: str, **fields: Any) -> dict[str, Any]:
    return sequence({**SPLIT, "pattern": {"Regex": pattern}, **fields}, LAST)


def added(content: str, id: int = 900, **fields: Any) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content, "special": False, **plain, **fields}


BYTE_LEVEL_FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("gigatoken", {}),
    "prefix space": ("gigatoken", {"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}}),
    "sequence of one": ("gigatoken", {"pre_tokenizer": sequence(BYTE_LEVEL)}),
    "llama3": ("gigatoken", {"pre_tokenizer": split(patterns.LLAMA3)}),
    "qwen": ("gigatoken", {"pre_tokenizer": split(patterns.QWEN)}),
    "qwen35": ("gigatoken", {"pre_tokenizer": split(patterns.QWEN35)}),
    "o200k": ("gigatoken", {"pre_tokenizer": split(patterns.O200K)}),
    "tekken": ("gigatoken", {"pre_tokenizer": split(patterns.TEKKEN)}),
    "cl100k": ("guarded", {"pre_tokenizer": split(CL100K_IN_JSON)}),
    "unknown split": ("reference", {"pre_tokenizer": split(r"\p{L}+|\s+")}),
    "inverted": (
        "gigatoken",
        {"pre_tokenizer": split(patterns.LLAMA3, behavior="Removed", invert=True)},
    ),
    "removed": ("reference", {"pre_tokenizer": split(patterns.LLAMA3, behavior="Removed")}),
    "digits": ("reference", {"pre_tokenizer": sequence(DIGITS, BYTE_LEVEL)}),
    "split and digits": (
        "reference",
        {"pre_tokenizer": sequence({**SPLIT, "pattern": {"Regex": patterns.LLAMA3}}, DIGITS, LAST)},
    ),
    "no splitting": ("reference", {"pre_tokenizer": LAST}),
    "no pre-tokenizer": ("reference", {"pre_tokenizer": None}),
    "nfc": ("guarded", {"normalizer": {"type": "NFC"}}),
    "nfkc": ("reference", {"normalizer": {"type": "NFKC"}}),
    "lowercase": ("reference", {"normalizer": {"type": "Lowercase"}}),
    "empty normalizers": ("gigatoken", {"normalizer": {"type": "Sequence", "normalizers": []}}),
    "ignore merges": ("gigatoken", {"model": {"ignore_merges": True}}),
    "dropout": ("reference", {"model": {"dropout": 0.1}}),
    "end of word": ("reference", {"model": {"end_of_word_suffix": "</w>"}}),
    "added": ("gigatoken", {"added": [added("<tool>")]}),
    "added blanks": ("gigatoken", {"added": [added(" " * (n + 2), 900 + n) for n in range(23)]}),
    "added lstrip": ("gigatoken", {"added": [added("<tool>", lstrip=True)]}),
    "added rstrip": ("gigatoken", {"added": [added("<tool>", rstrip=True)]}),
    "added whole word": ("guarded", {"added": [added("tool", single_word=True)]}),
    "added in special": (
        "guarded",
        {"added": [added("<|a b|>", special=True), added("a b", 901)]},
    ),
    "added prefixes": ("gigatoken", {"added": [added("<a"), added("<ab>", 901)]}),
    "added normalized": (
        "reference",
        {"normalizer": {"type": "NFC"}, "added": [added("\u00e9", normalized=True)]},
    ),
}


@pytest.mark.parametrize("form", BYTE_LEVEL_FORMS)
def test_byte_level_forms_have_the_ids_of_tokenizers(
    form: str, byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    kind, parts = BYTE_LEVEL_FORMS[form]
    tokenizer = load(TokenizerSource(file=str(written(byte_level, **parts)), eod="0"))
    assert isinstance(tokenizer.encoder, KINDS[kind])
    assert bool(tokenizer.remarks) == (kind == "reference")
    tokens = ("<tool>", "tool", "<|a b|>", "a b", "<ab>", "    ", "\u00e9", "<|endoftext|>")
    texts = samples(1500, tokens=tokens, seed=29)
    assert first_difference(tokenizer.encoder, tokenizer.vocabulary.reference, texts=texts) is None


def metaspace(scheme: str, **fields: Any) -> dict[str, Any]:
    splitting = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme}
    return {"normalizer": None, "pre_tokenizer": {**splitting, "split": True, **fields}}


LLAMA_FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("gigatoken", {}),
    "always": ("gigatoken", metaspace("always")),
    "never": ("gigatoken", metaspace("never")),
    "first": ("gigatoken", metaspace("first")),
    "first, whole": ("gigatoken", metaspace("first", split=False)),
    "added": ("gigatoken", {"added": [added("<tool>", 1200)]}),
    "ignore merges": ("reference", {"model": {"ignore_merges": True}}),
    "nfkc": ("reference", {"normalizer": {"type": "NFKC"}}),
}


@pytest.mark.parametrize("form", LLAMA_FORMS)
def test_forms_with_a_token_for_each_byte_have_the_ids_of_tokenizers(
    form: str, llama_like: dict[str, Any], written: Callable[..., Path]
) -> None:
    kind, parts = LLAMA_FORMS[form]
    tokenizer = load(TokenizerSource(file=str(written(llama_like, **parts))))
    assert isinstance(tokenizer.encoder, KINDS[kind])
    texts = samples(1000, tokens=("<tool>", "</s>", "<0x0A>"), seed=31)
    assert first_difference(tokenizer.encoder, tokenizer.vocabulary.reference, texts=texts) is None


def test_without_all_bytes_gigatoken_is_found_wrong(
    llama_like: dict[str, Any], written: Callable[..., Path]
) -> None:
    vocabulary = llama_like["model"]["vocab"]
    kept = {token: id for token, id in vocabulary.items() if not token.startswith("<0x8")}
    tokenizer = load(TokenizerSource(file=str(written(llama_like, model={"vocab": kept}))))
    assert tokenizer.engine == "tokenizers"
    assert any("other ids" in remark for remark in tokenizer.remarks)


def test_an_encoder_that_errs_once_is_not_used(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    from dataclasses import replace

    vocabulary = load(TokenizerSource(file=str(written(byte_level)))).vocabulary

    class Errs:
        name = "errs"

        def encode(self, text: bytes) -> Ids:
            ids = vocabulary.reference.encode(text.decode())
            return ids[:-1] if text == b"trailing\n\n" else ids

    encoder, remarks = choose(replace(vocabulary, fast=(Errs,)))
    assert isinstance(encoder, Slow)
    assert "trailing" in remarks[0]


def test_an_encoder_that_panics_is_not_used(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    from dataclasses import replace

    class PanicException(BaseException):
        pass

    def panics() -> Gigatoken:
        raise PanicException("index out of bounds")

    def interrupts() -> Gigatoken:
        raise KeyboardInterrupt

    vocabulary = load(TokenizerSource(file=str(written(byte_level)))).vocabulary
    encoder, remarks = choose(replace(vocabulary, fast=(panics,)))
    assert isinstance(encoder, Slow)
    assert "index out of bounds" in remarks[0]
    with pytest.raises(KeyboardInterrupt):
        choose(replace(vocabulary, fast=(interrupts,)))


def test_a_guarded_encoder_is_fast_where_no_token_is_near(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    parts = {"added": [added("tool", single_word=True)]}
    tokenizer = load(TokenizerSource(file=str(written(byte_level, **parts))))
    assert tokenizer.engine == "gigatoken"
    texts = ["a tool here", "toolbox", "none"]
    ids, bounds = tokenizer.encode(documents_of(texts))
    found = [ids[bounds[i] : bounds[i + 1]].tolist() for i in range(3)]
    assert found == tokenizer.reference(texts)
    assert 900 in found[0]
    assert 900 not in found[1]
    assert np.all(np.diff(bounds) > 0)
