"""The characters of a batch of documents, one byte each, from its UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.words.characters import BYTE, CONTINUATION, LOWER, characters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets

PADDING = 8  # bytes behind the characters, so that any block of 8 can be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Characters as `words.characters` says; `foreign` are the places of those beyond ASCII."""

    encoded: bytes  # the characters and `PADDING` zeros
    bounds: Offsets  # of the documents, in characters
    foreign: Offsets
    folded: NDArray[np.uint32]  # code points of the foreign ones, folded

    @property
    def characters(self) -> NDArray[np.uint8]:
        """The characters without what follows them."""
        return np.frombuffer(self.encoded, dtype=np.uint8)[:-PADDING]

    def foreign_of(self, *kinds: str) -> Offsets:
        """Where foreign characters of these classes stand."""
        found = self.characters[self.foreign]
        chosen: Mask = np.logical_or.reduce([found == BYTE[kind] for kind in kinds])
        return self.foreign[chosen]


def read(documents: Documents) -> Text:
    """The characters of a batch. Pure ASCII is taken as it is."""
    raw = documents.text.tobytes()
    if raw.isascii():
        return Text(
            encoded=raw.lower() + bytes(PADDING),
            bounds=documents.bounds,
            foreign=np.zeros(0, dtype=np.int64),
            folded=np.zeros(0, dtype=np.uint32),
        )
    leads = np.flatnonzero(documents.text >= 0xC0)
    codes, extra = decoded(documents.text, leads)
    before = bounds_of(extra)  # bytes that continue a character, up to each lead
    known = characters()
    folded = (codes + known.fold[codes]).astype(np.uint32)
    classes = np.frombuffer(bytearray(raw), dtype=np.uint8)
    classes[leads] = np.where(folded < 0x80, folded, known.kind[folded])
    still = folded >= 0x80
    return Text(
        encoded=classes.tobytes().translate(LOWER, CONTINUATION) + bytes(PADDING),
        bounds=documents.bounds - before[np.searchsorted(leads, documents.bounds)],
        foreign=(leads - before[:-1])[still],
        folded=folded[still],
    )


def decoded(text: NDArray[np.uint8], leads: Offsets) -> tuple[Offsets, Offsets]:
    """Code points of the characters that begin at `leads`; how many bytes more each has."""
    first = text[leads]
    codes = first.astype(np.int64) & np.where(
        first < 0xE0, 0x1F, np.where(first < 0xF0, 0x0F, 0x07)
    )
    extra = np.zeros(len(leads), dtype=np.int64)
    for further, threshold in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):
        at = np.flatnonzero(first >= threshold)
        codes[at] = codes[at] << 6 | text[leads[at] + further] & 0x3F
        extra[at] = further
    return codes, extra
