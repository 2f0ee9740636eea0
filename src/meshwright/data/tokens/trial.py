"""The choice of an encoder: gigatoken where it gives the reference's ids, else the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.data.tokens.hostile import samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.data.tokens.vocabulary import Encoder, Ids, Reference, Vocabulary

TRIED = 1200  # texts, some 60 KB: what the slowest reference encodes in a tenth of a second


@dataclass(frozen=True, slots=True)
class Slow:
    """The reference library as the encoder."""

    reference: Reference

    @property
    def name(self) -> str:
        """That of the library."""
        return self.reference.name

    def encode(self, text: bytes) -> Ids:
        """The ids of one document."""
        return self.reference.encode(text.decode())


def choose(vocabulary: Vocabulary, *, library: str = "auto") -> tuple[Encoder, tuple[str, ...]]:
    """The encoder to use, with a remark where it is the slow one."""
    slow = Slow(vocabulary.reference)
    if library == "reference":
        return slow, ()
    if vocabulary.fast is None:
        return slow, (_remark(slow.name, vocabulary.refusal),)
    try:
        fast = vocabulary.fast()
        wrong = first_difference(fast, vocabulary.reference, texts=battery(vocabulary))
    except BaseException as error:
        if not _of_library(error):
            raise
        return slow, (_remark(slow.name, f"gigatoken cannot take it ({_first_line(error)})"),)
    if wrong is None:
        return fast, ()
    return slow, (_remark(slow.name, f"gigatoken gives other ids for {shown(wrong)}"),)


def battery(vocabulary: Vocabulary) -> tuple[str, ...]:
    """The texts that an encoder of this vocabulary must encode as the reference does."""
    added = [*vocabulary.extra, *vocabulary.special]
    tokens = [*added[:200], *vocabulary.pieces]
    joined = ("".join(vocabulary.pieces), " ".join(vocabulary.pieces), "\n".join(added[:400]))
    return (*samples(TRIED, tokens=tokens), *joined)


def first_difference(encoder: Encoder, reference: Reference, *, texts: Sequence[str]) -> str | None:
    """The first text that the two encode differently; None where there is none."""
    for text in texts:
        if not np.array_equal(encoder.encode(text.encode()), reference.encode(text)):
            return text
    return None


def _of_library(error: BaseException) -> bool:
    """Whether a library failed, rather than the user or the machine stopping the program. Rust's
    panics arrive as an exception that is not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _remark(library: str, reason: str) -> str:
    return f"tokens come from {library}, some 50 times slower than gigatoken: {reason}"
