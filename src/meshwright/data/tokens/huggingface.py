"""Vocabularies of Hugging Face: tokenizer.json, or vocab.json with merges.txt."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.tokens import admission, fast
from meshwright.data.tokens.ends import stated
from meshwright.data.tokens.files import beside, read_bytes, read_json, refused
from meshwright.data.tokens.patterns import GPT2, encoding_of
from meshwright.data.tokens.quiet import first_line, is_of_library, silenced
from meshwright.data.tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from meshwright.data.settings import TokenizerSource
    from meshwright.data.tokens.files import Found
    from meshwright.data.tokens.vocabulary import Ids, Reference

_DEFINING = ("model", "added_tokens", "normalizer", "pre_tokenizer")  # what decides about ids
_PIECES = 400
_LARGEST_SECTION = 100  # keys; the vocabulary has more
_GPT2_LIKE = ("GPT2", "Roberta", "OPT", "GPTNeoX", "Bart", "Longformer", "LED", "")
_QWEN_LIKE = ("Qwen2",)
_BYTE_LEVEL: Mapping[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


class HuggingFace:
    """tokenizers, on one thread, blind to special tokens in text."""

    name = "tokenizers"

    def __init__(self, content: bytes) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers are processes
        self._library = need("tokenizers", "a tokenizer.json").Tokenizer.from_str(content.decode())
        self._library.no_truncation()
        self._library.no_padding()
        self._library.encode_special_tokens = True
        if getattr(self._library.model, "dropout", None):
            self._library.model.dropout = None  # ids are not to differ from run to run

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        (made,) = self._library.encode_batch_fast([text], add_special_tokens=False)
        return np.array(made.ids, dtype=np.uint32)

    def added(self) -> tuple[dict[str, int], dict[str, int]]:
        """The ids of added tokens that text may become, and of special ones. The library numbers
        them itself where the file's numbers do not follow the vocabulary."""
        kinds: tuple[dict[str, int], dict[str, int]] = ({}, {})
        for id, token in sorted(self._library.get_added_tokens_decoder().items()):
            kinds[token.special][token.content] = id
        return kinds

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        return str(self._library.decode(list(ids), skip_special_tokens=False))


def read(found: Found, settings: TokenizerSource) -> Vocabulary:
    """The vocabulary of a tokenizer.json. InvalidInput where tokenizers cannot load it."""
    del settings
    return _vocabulary(found, read_bytes(found.path), read_json(found.path), facts={})


def read_merges(found: Found, settings: TokenizerSource) -> Vocabulary:
    """The vocabulary of a vocab.json with merges.txt: the tokenizer.json that says the same."""
    import orjson

    tokenizer = _composed(found, settings)
    content = orjson.dumps(tokenizer, option=orjson.OPT_INDENT_2)
    return _vocabulary(found, content, tokenizer, facts={"pattern": settings.pattern})


def _vocabulary(
    found: Found, content: bytes, tokenizer: Mapping[str, Any], *, facts: Mapping[str, str]
) -> Vocabulary:
    _check(found.path, tokenizer)
    reference = _reference(found.path, content)
    extra, special = reference.added()
    ids = sorted({*_ids_of(tokenizer), *extra.values(), *special.values()})
    config = beside(found.folder, "tokenizer_config.json")
    why_not = admission.refusal(tokenizer)
    return Vocabulary(
        kind="json",
        files={"tokenizer.json": content, **_configs(found.folder)},
        facts=facts,
        size=1 + ids[-1],
        special=special,
        extra=extra,
        stated_eod=stated(config, "eos_token"),
        stated_pad=stated(config, "pad_token"),
        digest=_digest(tokenizer),
        reference=reference,
        pieces=pieces_of(reference, ids),
        fast=() if why_not else (lambda: fast.of_json(_without_special(tokenizer, extra)),),
        refusal=why_not,
    )


def _check(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """InvalidInput for what would bring the libraries down."""
    vocabulary = tokenizer["model"]["vocab"]
    added = tokenizer.get("added_tokens") or []
    if not isinstance(vocabulary, dict | list) or not vocabulary:
        raise refused(path, "has an empty vocabulary")
    if not isinstance(added, list) or not all(_is_added(token) for token in added):
        raise refused(path, "has added_tokens without content or id")
    if not isinstance(tokenizer["model"].get("merges") or [], list):
        raise refused(path, "has merges that are no list")
    values = vocabulary.values() if isinstance(vocabulary, dict) else ()
    if not all(type(value) is int and 0 <= value < 1 << 31 for value in values):
        raise refused(path, "has ids in model.vocab that are no whole numbers from 0 to 2^31")


def _is_added(token: Any) -> bool:
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        return False
    return type(token.get("id")) is int and 0 <= token["id"] < 1 << 31


def _reference(path: Path, content: bytes) -> HuggingFace:
    """tokenizers with the vocabulary; its panics are no Exception."""
    try:
        with silenced():
            return HuggingFace(content)
    except BaseException as error:
        if not is_of_library(error):
            raise
        what = f"tokenizers cannot load it: {first_line(error)}"
        raise refused(path, what, hint="fetch the file again") from None


def _ids_of(tokenizer: Mapping[str, Any]) -> Collection[int]:
    vocabulary = tokenizer["model"]["vocab"]
    return vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))


def pieces_of(reference: Reference, ids: Sequence[int]) -> tuple[str, ...]:
    """Some hundred tokens as text, drawn evenly over the vocabulary."""
    chosen = sorted(random.Random(len(ids)).sample(range(len(ids)), min(_PIECES, len(ids))))
    texts = (reference.decode([ids[place]]) for place in chosen)
    return tuple(text for text in texts if text and "\ufffd" not in text)


def _without_special(tokenizer: Mapping[str, Any], extra: Mapping[str, int]) -> bytes:
    """The tokenizer.json for gigatoken, which takes every added token in text for itself."""
    import orjson

    ordinary = admission.ordinary_added(tokenizer)
    return orjson.dumps(
        {
            "model": tokenizer["model"],
            "added_tokens": [{**token, "id": extra[token["content"]]} for token in ordinary],
            "normalizer": tokenizer.get("normalizer"),
            "pre_tokenizer": _unwrapped(tokenizer.get("pre_tokenizer")),
        }
    )


def _unwrapped(splitting: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A sequence of one as that one."""
    parts = (splitting or {}).get("pretokenizers", ())
    return parts[0] if len(parts) == 1 else splitting


def _digest(tokenizer: Mapping[str, Any]) -> str:
    """Hash of what decides about ids, whatever the spelling of the file."""
    import orjson

    xxhash = need("xxhash", "hashing a vocabulary")
    model = dict(tokenizer["model"])
    merges = model.get("merges") or []
    model["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    parts = {**{name: tokenizer.get(name) for name in _DEFINING}, "model": model}
    content = orjson.dumps(_essential(parts), option=orjson.OPT_SORT_KEYS)
    return str(xxhash.xxh3_128_hexdigest(content))


def _essential(value: Any) -> Any:
    """Without fields that say nothing, or only where in the text a token stood."""
    if not isinstance(value, dict) or len(value) > _LARGEST_SECTION:
        return value
    kept = {key: _essential(inner) for key, inner in value.items() if key != "trim_offsets"}
    return {key: inner for key, inner in kept.items() if inner not in (None, "", False, [])}


def _configs(folder: Path) -> dict[str, Path]:
    names = ("tokenizer_config.json", "special_tokens_map.json")
    return {name: folder / name for name in names if (folder / name).is_file()}


def _composed(found: Found, settings: TokenizerSource) -> dict[str, Any]:
    """The tokenizer.json of a vocabulary and its merges."""
    vocabulary = read_json(found.path)
    merges = _merges(found.merges or found.path)
    if any(token.endswith("</w>") for token in vocabulary):
        raise refused(found.path, "marks the ends of words (CLIP)", hint="give a tokenizer.json")
    special = _special_of(found.folder, vocabulary)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": vocabulary[token], "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for token in special
        ],
        **_splitting(found, settings),
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }  # fmt: skip


def _merges(path: Path) -> list[list[str]]:
    """The pairs of a merges.txt; its first line may be a version."""
    try:
        lines = read_bytes(path).decode().split("\n")
    except UnicodeDecodeError:
        raise refused(path, "is not UTF-8") from None
    first = int(lines[0].startswith("#version"))
    pairs = [line.rstrip("\r").split(" ") for line in lines[first:] if line.strip()]
    for number, pair in enumerate(pairs, start=first + 1):
        if len(pair) != 2:
            raise refused(path, f"line {number} is not two tokens with a blank between them")
    return pairs


def _special_of(folder: Path, vocabulary: Mapping[str, int]) -> list[str]:
    """Special tokens that the folder names, or the usual ones, as far as the vocabulary has
    them."""
    named = beside(folder, "special_tokens_map.json") or beside(folder, "tokenizer_config.json")
    tokens = [stated(named, key) for key in named if key.endswith("_token")]
    usual = ["<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    return [token for token in dict.fromkeys(tokens + usual) if token in vocabulary]


def _splitting(found: Found, settings: TokenizerSource) -> dict[str, Any]:
    """Normalizer and pre-tokenizer, by the pattern that is given or the class that is named."""
    named = str(beside(found.folder, "tokenizer_config.json").get("tokenizer_class") or "")
    family = named.removesuffix("Fast").removesuffix("Tokenizer")
    name = settings.pattern or ("qwen" if family in _QWEN_LIKE else "")
    if not name and family not in _GPT2_LIKE:
        hint = 'pattern = "gpt2" (or another known name, or an expression)'
        raise refused(found.path, f"how a {named} splits text is not known", hint=hint)
    encoding = encoding_of(name or "gpt2")
    pattern = encoding.pattern if encoding else name
    byte_level = {**_BYTE_LEVEL, "use_regex": pattern == GPT2}
    if pattern == GPT2:
        return {"normalizer": None, "pre_tokenizer": byte_level}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    parts = [{**split, "invert": False}, byte_level]
    return {
        "normalizer": {"type": "NFC"} if name == "qwen" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
    }
