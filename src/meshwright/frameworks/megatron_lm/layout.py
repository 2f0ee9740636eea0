"""Megatron's pipeline layouts: which layers every stage holds, as a string or a list of lists.

`E` is the embedding, `t` a decoder layer, `m` one of multi-token prediction, `L` the loss; `|` ends
a stage, `x*n` repeats, parentheses group and commas mean nothing: "Et*3|(tt|)*29m|L"
(megatron/core/transformer/pipeline_parallel_layer_layout.py, 0.14 and later).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 100_000  # letters of a layout written out; no model comes near
_WORDS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_TOKEN = pattern(r"\*(\d{1,6})|([EtmL|()])|([\s,]+)|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Layout:
    """The letters of every stage, in model order (virtual stages included)."""

    stages: tuple[str, ...]

    @property
    def decoders(self) -> tuple[int, ...]:
        """Decoder layers of every stage."""
        return tuple(stage.count("t") for stage in self.stages)

    @property
    def mtp(self) -> int:
        """Multi-token-prediction layers of all stages."""
        return sum(stage.count("m") for stage in self.stages)

    @property
    def starts_with_embedding(self) -> bool:
        """Whether the first stage begins with the embedding."""
        return bool(self.stages) and self.stages[0].startswith("E")

    @property
    def ends_with_loss(self) -> bool:
        """Whether the last stage ends with the loss."""
        return bool(self.stages) and self.stages[-1].endswith("L")


def read_layout(value: Any) -> Layout | None:
    """The layout that a string or a list of stages spells; None where it spells none."""
    if isinstance(value, str) and value.strip():
        letters = _written_out(value.strip().strip("\"'"))
        return None if letters is None else Layout(tuple(letters.split("|")))
    if isinstance(value, list) and value:
        if all(isinstance(item, str) and item in _WORDS for item in value):
            return None
        stages = [_listed(stage) for stage in value]
        return None if None in stages else Layout(tuple(s for s in stages if s is not None))
    return None


def _listed(stage: Any) -> str | None:
    """The letters of a stage given as a list of words, or as a string of letters."""
    if isinstance(stage, str):
        return stage if set(stage) <= set("EtmL") else None
    if not isinstance(stage, list) or any(word not in _WORDS for word in stage):
        return None
    return "".join(_WORDS[word] for word in stage)


def _written_out(text: str) -> str | None:
    """The letters without repetition and groups; None where the text is no layout."""
    groups: list[str] = [""]
    last = ""
    for times, letter, blank, other in _TOKEN.findall(text):
        if other or (letter == ")" and len(groups) == 1):
            return None
        if blank:
            continue
        if times:
            if not last or len(last) * int(times) > LONGEST:
                return None
            groups[-1] = groups[-1][: len(groups[-1]) - len(last)] + last * int(times)
            last = ""
        elif letter == "(":
            groups.append("")
            last = ""
        else:
            last = groups.pop() if letter == ")" else letter
            groups[-1] += last
        if len(groups[-1]) > LONGEST or len(groups) > LONGEST:
            return None
    return groups[0] if len(groups) == 1 else None


def written_layout(layers: Sequence[int], *, mtp: int = 0) -> str:
    """The layout string of so many decoder layers a chunk, the embedding first, the loss last."""
    last = len(layers) - 1
    stages = [
        ("E" if i == 0 else "") + _times("t", n) + (_times("m", mtp) + "L" if i == last else "")
        for i, n in enumerate(layers)
    ]
    parts: list[tuple[str, int]] = []
    for stage in stages:
        if parts and parts[-1][0] == stage:
            parts[-1] = (stage, parts[-1][1] + 1)
        else:
            parts.append((stage, 1))
    written = [_repeated(stage, n, end=i == len(parts) - 1) for i, (stage, n) in enumerate(parts)]
    return "".join(written)


def _times(letter: str, times: int) -> str:
    return letter if times == 1 else f"{letter}*{times}" if times else ""


def _repeated(stage: str, times: int, *, end: bool) -> str:
    """A stage so many times, each ended by a bar unless it is the last of all."""
    if times == 1:
        return stage if end else stage + "|"
    return f"({stage}|)*{times - 1}{stage}" if end else f"({stage}|)*{times}"
