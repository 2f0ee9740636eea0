"""Which tokenizer.json gigatoken may stand in for: only forms that it reads in full.

gigatoken 0.10 passes over fields that it does not know (src/load_tokenizer/hf.rs of its
repository), so a trial alone could miss what is rare in text. Where a form is admitted, the trial
still decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_IDS = 1 << 22  # it makes room for every id up to the largest
_SPLITS = {("Isolated", False), ("Removed", True)}  # both keep all that matches and all between


def refusal(tokenizer: Mapping[str, Any]) -> str:
    """Why gigatoken may not be asked, "" where it may."""
    try:
        return _refusal(tokenizer)
    except (AttributeError, KeyError, TypeError, ValueError):  # tokenizers takes many spellings
        return "this form of tokenizer.json is not known"


def _refusal(tokenizer: Mapping[str, Any]) -> str:
    model = tokenizer["model"]
    kind = model.get("type", "BPE" if "merges" in model else "another model")
    if kind != "BPE":
        return f"it has no {kind} models"
    for reason in (*_of_model(model), *_of_added(tokenizer)):
        return reason
    if model.get("byte_fallback"):
        return "it does not heed ignore_merges here" if model.get("ignore_merges") else ""
    return next(_of_byte_level(tokenizer), "")


def _of_model(model: Mapping[str, Any]) -> Iterator[str]:
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            yield f"it does not heed {field}"
    vocabulary = model["vocab"]
    if max(vocabulary.values(), default=0) >= MOST_IDS:
        yield "its ids are too large"


def _of_added(tokenizer: Mapping[str, Any]) -> Iterator[str]:
    """Added tokens that text may become; special ones are taken out."""
    for token in ordinary_added(tokenizer):
        normalizes = tokenizer.get("normalizer") not in (None, _NO_NORMALIZER)
        byte_level = not tokenizer["model"].get("byte_fallback")
        if token.get("normalized", True) and normalizes and byte_level:
            yield "it finds added tokens in the text before normalization"


def ordinary_added(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The added tokens that are not special: text may become them."""
    return [token for token in tokenizer.get("added_tokens") or () if not token.get("special")]


_NO_NORMALIZER: Mapping[str, Any] = {"type": "Sequence", "normalizers": []}


def _of_byte_level(tokenizer: Mapping[str, Any]) -> Iterator[str]:
    if missing := sum(letter not in tokenizer["model"]["vocab"] for letter in byte_letters()):
        yield f"{missing} bytes have no token"
    yield from _of_normalizer(tokenizer.get("normalizer"))
    yield from _of_splitting(tokenizer.get("pre_tokenizer"))


def _of_normalizer(normalizer: Mapping[str, Any] | None) -> Iterator[str]:
    whole = normalizer or _NO_NORMALIZER
    for part in whole.get("normalizers", [whole]):
        if part.get("type") != "NFC":
            yield f"it has no {part.get('type')} normalizer"


def _of_splitting(splitting: Mapping[str, Any] | None) -> Iterator[str]:
    """Either ByteLevel by itself, or Splits followed by a ByteLevel that splits no more."""
    if splitting is None:
        yield "it would split a text that is to stay whole"
        return
    parts = splitting.get("pretokenizers", [splitting])
    *splits, last = parts or [{}]
    if last.get("type") != "ByteLevel":
        yield f"it has no {last.get('type')} pre-tokenizer"
    elif last.get("use_regex", True) == bool(splits):
        yield "it would split but once"
    for split in splits:
        form = (split.get("behavior"), bool(split.get("invert")))
        if split.get("type") != "Split" or form not in _SPLITS:
            yield f"it does not heed a {split.get('type')} pre-tokenizer of this form"


def byte_letters() -> str:
    """The 256 characters that stand for bytes in byte-level vocabularies, by byte (Radford et al.
    2019, encoder.py of GPT-2)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters, next_letter = [], 256
    for byte in range(256):
        letters.append(chr(byte if byte in plain else next_letter))
        next_letter += byte not in plain
    return "".join(letters)
