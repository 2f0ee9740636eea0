"""Which token stands behind a document, and which fills a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.tokens.vocabulary import Vocabulary

ENDS = (  # in order of preference
    "<|endoftext|>",
    "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
    "<eos>",
    "[EOS]",
    "<|eos|>",
    "<|end_of_document|>",
    "<|end|>",
    "<EOS>",
    "<EOT>",
    "<|EOT|>",
    "[SEP]",
)
PADS = (
    "<pad>",
    "[PAD]",
    "<|pad|>",
    "<|PAD|>",
    "<|finetune_right_pad_id|>",
    "<\uff5c\u2581pad\u2581\uff5c>",
    "<|padding|>",
    "<PAD>",
)
TURNS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|return|>")
_LISTED = 12


def stated(config: Mapping[str, Any], key: str) -> str:
    """A token that tokenizer_config.json names, "" where it names none."""
    value = config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def end_of(vocabulary: Vocabulary, *, given: str, file: str) -> tuple[int, tuple[str, ...]]:
    """The id of the token behind each document, with a remark where another may be meant.
    InvalidInput when there is none, or `given` is not in the vocabulary."""
    tokens = {**vocabulary.extra, **vocabulary.special}
    if given:
        return _given(vocabulary, given, file=file), ()
    name = vocabulary.stated_eod
    if name not in tokens:
        name = next((end for end in ENDS if end in tokens), "")
    if not name:
        raise _no_end(vocabulary, "the vocabulary names no end of text", file=file)
    other = next((end for end in ENDS if end in tokens and end != name), "")
    if name in TURNS and other:
        remark = f"documents end in {name}, which ends a turn; the vocabulary also has {other}"
        return tokens[name], (f'{remark} (eod = "{other}")',)
    return tokens[name], ()


def pad_of(vocabulary: Vocabulary, *, eod: int) -> int:
    """The id that fills rows: the vocabulary's own, or that of the end of text."""
    tokens = {**vocabulary.extra, **vocabulary.special}
    names = (vocabulary.stated_pad, *PADS)
    return next((tokens[name] for name in names if name in tokens), eod)


def _given(vocabulary: Vocabulary, given: str, *, file: str) -> int:
    """The id of a token that the settings name, by its content or its number."""
    tokens = {**vocabulary.extra, **vocabulary.special}
    if given in tokens:
        return tokens[given]
    if given.isascii() and given.isdigit() and int(given) < 1 << 31:
        return int(given)
    raise _no_end(vocabulary, f"no added token of the vocabulary is {given!r}", file=file)


def _no_end(vocabulary: Vocabulary, message: str, *, file: str) -> InvalidInput:
    names = [*vocabulary.special, *vocabulary.extra]
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    hint = f'eod = "{names[0]}" or another of: {listed}' if names else 'eod = "<id>", a number'
    finding = Finding(message=message, file=file, key="tokenizer.eod", hint=hint)
    return InvalidInput([finding], hint=hint)
