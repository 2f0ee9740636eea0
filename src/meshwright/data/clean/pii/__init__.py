"""Personal data replaced by placeholders: e-mail addresses, IP addresses, phone numbers, IBANs.

A placeholder is a value that is reserved for documentation, chosen by the hash of what it stands
for: the same address becomes the same placeholder in every document, whatever came before it.
Placeholders themselves are left as they are, so masking twice changes nothing more.

Only documents that hold a trace of something (an "@", digits around dots, ...) are looked at. The
traces of a batch are found in a few passes over its bytes; every trace is then examined within a
window of bounded length, so that no text takes longer than linear time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.clean.pii import email, iban, ip, phone
from meshwright.data.documents import documents_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from meshwright.data.clean.pii.found import Found
    from meshwright.data.documents import Bytes, Documents, Offsets
    from meshwright.data.settings import Pii

# What each kind looks for: where its traces are in a batch, and what is there in a document.
_KINDS: Mapping[str, tuple[Callable[[Bytes], Offsets], Callable[[bytes, int], Found | None]]] = {
    "email": (email.traces, email.at),
    "ip": (ip.traces, ip.at),
    "phone": (phone.traces, phone.at),
    "iban": (iban.traces, iban.at),
}
KINDS = tuple(_KINDS)
_ROUNDS = 4  # a placeholder may complete what stood beside it: digits before an address


def mask(documents: Documents, settings: Pii) -> tuple[Documents, dict[str, int]]:
    """The batch with placeholders, and how many values of each kind were replaced."""
    counts: Counter[str] = Counter(dict.fromkeys(settings.kinds, 0))
    changed: dict[int, bytes] = {}
    numbers = np.arange(len(documents))
    looked_at = documents
    for _ in range(_ROUNDS):
        masked = _mask_once(looked_at, settings.kinds, counts)
        if not masked:
            break
        changed.update((int(numbers[place]), text) for place, text in masked.items())
        numbers = numbers[list(masked)]
        looked_at = documents_of(list(masked.values()))
    return documents.with_texts(changed), dict(counts)


def _mask_once(
    documents: Documents, kinds: Iterable[str], counts: Counter[str]
) -> Mapping[int, bytes]:
    """The documents that hold anything, with placeholders."""
    masked: dict[int, bytes] = {}
    for number, places in _suspects(documents, kinds).items():
        text = documents.encoded(number)
        found = _apart(_found(text, places))
        if found:
            masked[number] = _replaced(text, found)
            counts.update(one.kind for one in found)
    return masked


def _suspects(
    documents: Documents, kinds: Iterable[str]
) -> Mapping[int, list[tuple[str, list[int]]]]:
    """By document: each kind with the places of its traces, counted from the document's start."""
    suspects: dict[int, list[tuple[str, list[int]]]] = {}
    for kind in (kind for kind in KINDS if kind in kinds):
        traces = _KINDS[kind][0](documents.text)
        if not len(traces):
            continue
        owners = np.searchsorted(documents.bounds, traces, side="right") - 1
        local = traces - documents.bounds[owners]
        numbers, firsts = np.unique(owners, return_index=True)
        for number, places in zip(numbers.tolist(), np.split(local, firsts[1:]), strict=True):
            suspects.setdefault(number, []).append((kind, places.tolist()))
    return suspects


def _found(text: bytes, suspects: Iterable[tuple[str, list[int]]]) -> list[Found]:
    """What stands at the traces of a document; a trace inside what was found is passed over."""
    found: list[Found] = []
    for kind, places in suspects:
        at, after = _KINDS[kind][1], 0
        for place in places:
            one = at(text, place) if place >= after else None
            if one is not None:
                found.append(one)
                after = one.stop
    return found


def _apart(found: list[Found]) -> list[Found]:
    """In the order of the text; of two that overlap, the one of the earlier kind."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: one.start):
        if not kept or one.start >= kept[-1].stop:
            kept.append(one)
        elif KINDS.index(one.kind) < KINDS.index(kept[-1].kind):
            kept[-1] = one
    return kept


def _replaced(text: bytes, found: Iterable[Found]) -> bytes:
    parts: list[bytes] = []
    after = 0
    for one in found:
        parts += [text[after : one.start], one.placeholder]
        after = one.stop
    parts.append(text[after:])
    return b"".join(parts)
