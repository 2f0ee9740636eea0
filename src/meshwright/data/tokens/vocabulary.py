"""A vocabulary as read from its files, with the library that defines its ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


class Reference(Protocol):
    """The library whose ids are right by definition. Text is ordinary: no token is special in it,
    none is put before or behind."""

    @property
    def name(self) -> str:
        """What the library is called."""

    def encode(self, text: str) -> Ids:
        """The ids of one text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""


class Encoder(Protocol):
    """What turns the UTF-8 of one document into ids; it may keep a cache."""

    @property
    def name(self) -> str:
        """That of the library at work."""

    def encode(self, text: bytes) -> Ids:
        """The ids of one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What the files say.

    `special` are the tokens that no text may become, by content; `extra` added tokens that text
    may. `size` is one more than the largest id. `fast` are ways to make a gigatoken encoder
    of it, none where that library has not what the vocabulary asks for; `refusal` says why not.
    """

    kind: str  # json, tiktoken, sentencepiece
    files: Mapping[
        str, Path | bytes
    ]  # what to copy, by the name of the copy; the first is the main
    facts: Mapping[str, str]  # what the files do not say: pattern
    size: int
    special: Mapping[str, int]
    extra: Mapping[str, int]
    stated_eod: str = ""  # what the files themselves call the end of a text
    stated_pad: str = ""
    digest: str
    reference: Reference
    pieces: tuple[str, ...]  # a few hundred of its tokens as text, to try encoders with
    fast: tuple[Callable[[], Encoder], ...] = ()  # ways to make one, the cheapest first
    refusal: str = ""
