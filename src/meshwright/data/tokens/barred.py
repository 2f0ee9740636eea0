"""Special tokens kept out of text where their library lets text become them.

Most libraries can be told to take special tokens for plain text. Those of Unigram and of whole
words cannot: their special tokens are pieces of the model like any other, so a document that
spells </s> would end there. Such an id is replaced by the ids of its spelling in two parts, which
is the one place where ids differ from the library's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.data.tokens.vocabulary import Ids, Reference


@dataclass(frozen=True, slots=True)
class Barred:
    """A reference library, none of whose texts have the ids `spelled`."""

    inner: Reference
    spelled: Mapping[int, Ids]  # what stands in the place of an id

    @property
    def name(self) -> str:
        """That of the library."""
        return self.inner.name

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        ids = self.inner.encode(text)
        places = np.flatnonzero(np.isin(ids, [*self.spelled]))
        if not len(places):
            return ids
        parts: list[Ids] = []
        start = 0
        for place in places.tolist():
            parts += [ids[start:place], self.spelled[int(ids[place])]]
            start = place + 1
        return np.concatenate([*parts, ids[start:]])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        return self.inner.decode(ids)


def barred(reference: Reference, special: Mapping[str, int]) -> tuple[Reference, tuple[str, ...]]:
    """The reference without special tokens in text, and those that it cannot be rid of. The token
    for unknown text stays: text does become it."""
    unknown = set(special.values()) & set(reference.encode(_UNHEARD).tolist())
    found = {
        token: id
        for token, id in special.items()
        if id not in unknown and id in reference.encode(token).tolist()
    }
    if not found:
        return reference, ()
    never = np.array([id for id in special.values() if id not in unknown], dtype=np.uint32)
    spelled = {id: _in_two(reference, token, never) for token, id in found.items()}
    kept = {id: parts for id, parts in spelled.items() if parts is not None}
    left = tuple(token for token, id in found.items() if id not in kept)
    return (Barred(reference, kept) if kept else reference), left


_UNHEARD = "\U0001fae9\u2fd5\U00016a5e\ue000"  # what few vocabularies have a token for


def _in_two(reference: Reference, token: str, never: Ids) -> Ids | None:
    """The ids of the token's text cut where neither part gives an id of `never`."""
    for cut in range(1, len(token)):
        ids = np.concatenate([reference.encode(token[:cut]), reference.encode(token[cut:])])
        if not np.isin(ids, never).any():
            return ids
    return None
