"""The lines and paragraphs of a batch of documents, as columns.

A **line** is what stands between line feeds; lines of nothing but white space do not count. A
**paragraph** is a maximal run of lines with no blank one in between. Both are compared as they are
written, case and indentation included, and found again by the hash of their bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.words.characters import SPACE, marked
from meshwright.data.words.groups import Groups
from meshwright.data.words.hashing import hashes_of, hashes_of_ends
from meshwright.data.words.text import PADDING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets

LINE_FEED = 10
_SPACE = np.frombuffer(SPACE, dtype=np.bool_)
_STEPS = 64  # of white space at an end of a line that are walked for all lines together


@dataclass(frozen=True, kw_only=True)
class Stretches:
    """Lines or paragraphs: those of document i are bounds[i] to bounds[i + 1].

    `start` and `stop` count characters, `first_byte` and `last_byte` (exclusive) bytes of the text.
    """

    documents: Documents
    start: Offsets
    stop: Offsets
    first_byte: Offsets
    last_byte: Offsets
    bounds: Offsets

    @property
    def counts(self) -> Offsets:
        """How many each document has."""
        return np.diff(self.bounds)

    @property
    def lengths(self) -> Offsets:
        """Characters of each, white space at its ends included."""
        return self.stop - self.start

    @cached_property
    def repeats(self) -> Mask:
        """Which ones stand in their document before, too."""
        text = self.documents.text.tobytes() + bytes(PADDING)
        lengths = self.last_byte - self.first_byte
        document = np.repeat(np.arange(len(self.bounds) - 1, dtype=np.int32), self.counts)
        groups = Groups.of(hashes_of_ends(text, self.first_byte, lengths), document)
        alike = np.flatnonzero(groups.is_shared)
        hashes = hashes_of(text, self.first_byte[alike], lengths[alike])
        repeats = np.zeros(len(lengths), dtype=np.bool_)
        repeats[alike] = Groups.of(hashes, document[alike]).is_later
        return repeats


@dataclass(frozen=True, kw_only=True)
class Lines(Stretches):
    """Lines that are not blank; `first` and `last` are their first and last dark characters.

    `chunk` is the number of the first of the chunks (`chunks_of`) of each.
    """

    first: Offsets
    last: Offsets
    chunk: Offsets

    @cached_property
    def paragraphs(self) -> Stretches:
        """The paragraphs that these lines make."""
        begins = np.ones(len(self.start), dtype=np.bool_)
        begins[1:] = self.start[1:] - self.stop[:-1] != 1
        begins[self.bounds[:-1][self.counts > 0]] = True
        at = np.flatnonzero(begins)
        ends = np.append(at[1:], len(begins)) - 1 if len(at) else at
        return Stretches(
            documents=self.documents,
            start=self.start[at],
            stop=self.stop[ends],
            first_byte=self.first_byte[at],
            last_byte=self.last_byte[ends],
            bounds=np.searchsorted(at, self.bounds).astype(np.int64),
        )


def chunks_of(characters: NDArray[np.uint8], bounds: Offsets) -> Offsets:
    """Where chunks begin: what stands between white space, and in one document."""
    dark = ~marked(characters, SPACE)
    begins = dark.copy()
    begins[1:] &= ~dark[:-1]
    starts = bounds[:-1][np.diff(bounds) > 0]
    begins[starts] = dark[starts]
    return np.flatnonzero(begins)


def lines_of(
    documents: Documents,
    characters: NDArray[np.uint8],
    bounds: Offsets,
    *,
    feeds: Offsets,
    chunks: Offsets,
) -> Lines:
    """The lines of a batch, whose documents lie at `bounds` of `characters`.

    `feeds` are the places of its line feeds, `chunks` those that `chunks_of` finds.
    """
    start, stop = _between(feeds, bounds)
    first_byte, last_byte = start, stop
    if len(characters) != len(documents.text):
        feeds = np.flatnonzero(documents.text == LINE_FEED)
        first_byte, last_byte = _between(feeds, documents.bounds)
    chunk = np.searchsorted(chunks, start)
    first = np.append(chunks, len(characters))[chunk]
    held = first < stop
    start, stop, first = start[held], stop[held], first[held]
    return Lines(
        documents=documents,
        start=start,
        stop=stop,
        first_byte=first_byte[held],
        last_byte=last_byte[held],
        bounds=np.searchsorted(start, bounds).astype(np.int64),
        first=first,
        last=_last(characters, first, stop),
        chunk=chunk[held],
    )


def _between(feeds: Offsets, bounds: Offsets) -> tuple[Offsets, Offsets]:
    """Where lines begin and end, those without characters left out."""
    starts = np.sort(np.concatenate([bounds[:-1], feeds + 1]), kind="stable")
    stops = np.sort(np.concatenate([feeds, bounds[1:]]), kind="stable")
    held = starts < stops
    return starts[held], stops[held]


def _last(characters: NDArray[np.uint8], first: Offsets, stop: Offsets) -> Offsets:
    """The last character but white space of lines; `first` is their first such."""
    last = stop - 1
    moving = np.flatnonzero(_SPACE[characters[last]])
    for _ in range(_STEPS):
        last[moving] -= 1
        moving = moving[_SPACE[characters[last[moving]]]]
        if not len(moving):
            break
    for line in moving.tolist():  # one by one, lest a long line be walked in steps
        dark = np.flatnonzero(~_SPACE[characters[first[line] : last[line]]])
        last[line] = first[line] + (dark[-1] if len(dark) else 0)
    return last
