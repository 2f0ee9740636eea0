"""How rank files split text before merging: they do not say it themselves.

Expressions and special tokens as published: OpenAI tiktoken 0.14 (tiktoken_ext/openai_public.py),
Meta llama-models 0.3 (llama3/tokenizer.py, llama4/tokenizer.py), Alibaba Qwen
(tokenization_qwen.py), Moonshot Kimi-K2 (tokenization_kimi.py), Mistral tekken.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_NO_HAN = r"&&[^\p{Han}]]"

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
LLAMA3 = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI = (
    r"[\p{Han}]+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER[:-1]}{_NO_HAN}*{_LOWER[:-1]}{_NO_HAN}+{_SUFFIX}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER[:-1]}{_NO_HAN}+{_LOWER[:-1]}{_NO_HAN}*{_SUFFIX}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SCHEMES: Mapping[str, str] = {  # expression: what gigatoken calls it
    GPT2: "gpt2",
    CL100K: "gpt4",
    LLAMA3: "olmo3",
    QWEN: "qwen2",
    QWEN35: "qwen35",
    O200K: "o200k",
    TEKKEN: "nemotron",
    KIMI: "kimi",
}
IN_JSON: Mapping[str, str] = {  # scheme: how a tokenizer.json writes it, where it does
    **{scheme: pattern for pattern, scheme in SCHEMES.items() if scheme not in ("gpt2", "kimi")},
    "gpt4": LLAMA3.replace(r"[\r\n]+|\s+(?!", r"[\r\n]|\s+(?!"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What goes with a published rank file. Special tokens that are named in `behind` have the ids
    that follow the last rank."""

    pattern: str
    special: Mapping[str, int]
    behind: tuple[str, ...] = ()
    eod: str = "<|endoftext|>"


_END = "<|endoftext|>"
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_LLAMA3 = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    *(f"<|reserved_special_token_{number}|>" for number in range(2, 247)),
)
_QWEN = (_END, "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))

ENCODINGS: Mapping[str, Encoding] = {
    "r50k_base": Encoding(pattern=GPT2, special={_END: 50256}),
    "gpt2": Encoding(pattern=GPT2, special={_END: 50256}),
    "p50k_base": Encoding(pattern=GPT2, special={_END: 50256}),
    "p50k_edit": Encoding(
        pattern=GPT2,
        special={_END: 50256, **{token: 50281 + place for place, token in enumerate(_FIM)}},
    ),
    "cl100k_base": Encoding(
        pattern=CL100K,
        special={
            _END: 100257,
            **{token: 100258 + place for place, token in enumerate(_FIM)},
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": Encoding(pattern=O200K, special={_END: 199999, "<|endofprompt|>": 200018}),
    "llama3": Encoding(pattern=LLAMA3, special={}, behind=_LLAMA3, eod="<|end_of_text|>"),
    "qwen": Encoding(pattern=QWEN, special={}, behind=_QWEN),
    "qwen35": Encoding(pattern=QWEN35, special={}, behind=(_END, "<|im_start|>", "<|im_end|>")),
    "kimi": Encoding(pattern=KIMI, special={}, behind=("[BOS]", "[EOS]"), eod="[EOS]"),
    "tekken": Encoding(pattern=TEKKEN, special={}),
}
ALIASES: Mapping[str, str] = {
    "r50k": "r50k_base",
    "gpt3": "r50k_base",
    "p50k": "p50k_base",
    "cl100k": "cl100k_base",
    "gpt4": "cl100k_base",
    "o200k": "o200k_base",
    "gpt4o": "o200k_base",
    "llama-3": "llama3",
    "qwen2": "qwen",
    "qwen3_5": "qwen35",
    "qwen3_6": "qwen35",
    "kimi_k2": "kimi",
}
PUBLISHED: Mapping[str, str] = {  # sha256 of a rank file: which it is
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k_base",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
}


def encoding_of(name: str) -> Encoding | None:
    """The published encoding of that name or alias."""
    return ENCODINGS.get(ALIASES.get(name, name))
