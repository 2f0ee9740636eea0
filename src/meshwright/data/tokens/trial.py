"""The choice of an encoder: gigatoken where it gives the reference's ids, else the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.data.tokens.fast import Guarded, ends_in_blanks, holding
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.quiet import first_line, is_of_library, silenced
from meshwright.data.tokens.recent import probes, unsettled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


class Remembered:
    """A reference that encodes no text twice; for the short time of a trial."""

    def __init__(self, inner: Reference) -> None:
        self.name, self.decode = inner.name, inner.decode
        self._inner = inner
        self._ids: dict[str, Ids] = {}

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        if text not in self._ids:
            self._ids[text] = self._inner.encode(text)
        return self._ids[text]


def choose(vocabulary: Vocabulary, *, library: str = "auto") -> tuple[Encoder, tuple[str, ...]]:
    """The encoder to use, with a remark where it is the slow one."""
    slow = Slow(vocabulary.reference)
    if library == "reference":
        return slow, ()
    texts, reason = battery(vocabulary), vocabulary.refusal
    for make in vocabulary.fast:
        encoder, reason = _tried(vocabulary, make, texts=texts)
        if encoder is not None:
            return encoder, ()
    return slow, (f"tokens come from {slow.name}, slower than gigatoken would be: {reason}",)


def _tried(
    vocabulary: Vocabulary, make: Callable[[], Encoder], *, texts: Sequence[str]
) -> tuple[Encoder | None, str]:
    """An encoder that encodes `texts` as the reference does; None and why where there is none."""
    try:
        with silenced():
            fast: Encoder = make()
            known = Remembered(vocabulary.reference)
            wrong = first_difference(fast, known, texts=texts)
            for near in _guards(vocabulary) if wrong is not None else ():
                guarded = Guarded(fast, vocabulary.reference, near)
                wrong = first_difference(guarded, known, texts=texts)
                if wrong is None:
                    return guarded, ""
    except BaseException as error:
        if not is_of_library(error):
            raise
        return None, f"gigatoken cannot take this vocabulary ({first_line(error)})"
    return (fast, "") if wrong is None else (None, f"gigatoken gives other ids for {shown(wrong)}")


def _guards(vocabulary: Vocabulary) -> Iterator[Callable[[bytes, Ids], bool]]:
    """What tells documents that gigatoken may get wrong, where it gets some wrong."""
    each: list[Callable[[bytes, Ids], bool]] = [unsettled, ends_in_blanks]
    if vocabulary.extra:
        each.append(holding(vocabulary.extra.values()))
    yield from each
    yield lambda text, ids: any(near(text, ids) for near in each)


def battery(vocabulary: Vocabulary) -> tuple[str, ...]:
    """The texts that an encoder of this vocabulary must encode as the reference does."""
    added = [*vocabulary.extra, *vocabulary.special]
    tokens = [*added[:200], *vocabulary.pieces]
    joined = ("".join(vocabulary.pieces), " ".join(vocabulary.pieces), "\n".join(added[:400]))
    return (*samples(TRIED, tokens=tokens), *joined, *probes())


def first_difference(encoder: Encoder, reference: Reference, *, texts: Sequence[str]) -> str | None:
    """The first text that the two encode differently; None where there is none."""
    for text in texts:
        if not np.array_equal(encoder.encode(text.encode()), reference.encode(text)):
            return text
    return None
