"""gigatoken as an encoder, with its cache kept from growing."""

from __future__ import annotations

import base64
import re
import tempfile
from functools import partial
from mmap import PAGESIZE
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.tokens.admission import byte_letters
from meshwright.data.tokens.patterns import IN_JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from meshwright.data.tokens.vocabulary import Encoder, Ids, Reference

LOOKED_BYTES = 8 << 20  # text between two looks at the memory in use
GROWTH_BYTES = 160 << 20  # of it, at which the cache is dropped
UNSEEN_BYTES = 64 << 20  # text after which it is dropped where memory cannot be seen
_TAIL_BYTES = 1 << 16
_LARGEST_TABLE = 1 << 22
_LAST_BLANKS = re.compile(r"[\r\n]\s*[^\S\r\n]\Z")


class Gigatoken:
    """Encodes on the calling thread. gigatoken 0.10 remembers every word that it meets, without
    bound: 0.1 bytes for each byte of natural text, 7 for each of random letters. So it is made
    anew when memory has grown, which changes no id."""

    name = "gigatoken"

    def __init__(self, make: Callable[[], Any], *, shift: int = 0) -> None:
        self._make = make
        self._shift = np.uint32(shift)  # of ids in files whose ranks begin behind special tokens
        self._renew()

    def encode(self, text: bytes) -> Ids:
        """The ids of one document."""
        self._unseen_bytes += len(text)
        if self._unseen_bytes > LOOKED_BYTES:
            self._look()
        ids: Ids = self._backend.encode(text)
        return ids + self._shift if self._shift else ids

    def _renew(self) -> None:
        self._backend = self._make()
        self._first_bytes = _resident_bytes()
        self._unseen_bytes = self._all_bytes = 0

    def _look(self) -> None:
        """Drops the cache when memory has grown since it was empty."""
        self._all_bytes += self._unseen_bytes
        self._unseen_bytes = 0
        now = _resident_bytes()
        grown = now - self._first_bytes > GROWTH_BYTES if now else self._all_bytes > UNSEEN_BYTES
        if grown:
            self._renew()


class Guarded:
    """Another encoder, but documents in which `near` finds what it may get wrong go to the
    reference."""

    def __init__(
        self, inner: Encoder, reference: Reference, near: Callable[[bytes, Ids], bool]
    ) -> None:
        self._inner, self._reference, self._near = inner, reference, near

    @property
    def name(self) -> str:
        """That of the encoder which does most of it."""
        return self._inner.name

    def encode(self, text: bytes) -> Ids:
        """The ids of one document."""
        ids = self._inner.encode(text)
        return self._reference.encode(text.decode()) if self._near(text, ids) else ids


def holding(tokens: Collection[int]) -> Callable[[bytes, Ids], bool]:
    """Whether some of these ids were given: what surrounds added tokens is where libraries
    differ."""
    first, sought = min(tokens), np.array([*tokens], dtype=np.int64)
    span = max(tokens) - first + 1
    if span > _LARGEST_TABLE:
        return partial(_holds, sought)
    marked = np.zeros(span + 1, dtype=np.bool_)
    marked[sought - first] = True
    return partial(_holds_marked, marked, np.uint32(first))


def _holds(sought: NDArray[np.int64], text: bytes, ids: Ids) -> bool:
    del text
    return bool(np.isin(ids, sought).any())


def _holds_marked(marked: NDArray[np.bool_], first: np.uint32, text: bytes, ids: Ids) -> bool:
    """By a table of the ids from `first` on; smaller ones wrap round to its end."""
    del text
    return bool(marked[np.minimum(ids - first, np.uint32(len(marked) - 1))].any())


def ends_in_blanks(text: bytes, ids: Ids) -> bool:
    """Whether a line end and other blanks end the text: GPT-4's expression is known in two
    versions that differ there."""
    del ids
    return (
        text[-1:] not in b"\r\n"
        and _LAST_BLANKS.search(text[-_TAIL_BYTES:].decode(errors="ignore")) is not None
    )


def of_json(content: bytes) -> Gigatoken:
    """An encoder of the contents of a tokenizer.json."""
    library = need("gigatoken.gigatoken_rs", "fast tokenization")
    return Gigatoken(lambda: library.load_hf_json(content))


def of_ranks(ranks: Mapping[bytes, int], scheme: str, *, shift: int = 0) -> Gigatoken:
    """An encoder of ranks without gaps, each of which two of lower rank make up; text is split as
    `scheme` says. gigatoken reads such files only from a disk."""
    library = need("gigatoken.gigatoken_rs", "fast tokenization")
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    content = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ordered)

    def make() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ranks"
            path.write_bytes(content)
            return library.BPETokenizer.from_tiktoken(str(path), scheme)

    return Gigatoken(make, shift=shift)


def of_any_ranks(ranks: Mapping[bytes, int], scheme: str, *, shift: int = 0) -> Gigatoken:
    """An encoder of ranks with gaps, or with tokens that no two others make up: the tokenizer.json
    whose merges are all pairs that make up a token, and which takes whole words first."""
    import orjson

    letters = byte_letters()
    names = {token: "".join([letters[byte] for byte in token]) for token in ranks}
    model = {
        "type": "BPE",
        "vocab": {names[token]: rank for token, rank in ranks.items()},
        "merges": _all_pairs(ranks, names),
        "ignore_merges": True,
    }
    content = orjson.dumps({"model": model, "added_tokens": [], "pre_tokenizer": splitting(scheme)})
    library = need("gigatoken.gigatoken_rs", "fast tokenization")
    return Gigatoken(lambda: library.load_hf_json(content), shift=shift)


def splitting(scheme: str) -> dict[str, Any]:
    """The pre-tokenizer that gigatoken reads as `scheme`."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": scheme == "gpt2"}
    if scheme == "gpt2":
        return byte_level
    pattern = {"Regex": IN_JSON[scheme]}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}


def _all_pairs(ranks: Mapping[bytes, int], names: Mapping[bytes, str]) -> list[tuple[str, str]]:
    """Every pair of tokens that are a token together, by the rank of that token."""
    pairs = []
    for token in sorted(ranks, key=ranks.__getitem__):
        for cut in range(1, len(token)):
            first, second = names.get(token[:cut]), names.get(token[cut:])
            if first is not None and second is not None:
                pairs.append((first, second))
    return pairs


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell it so."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0
