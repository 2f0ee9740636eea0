"""gigatoken as an encoder, with its cache kept from growing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.data.tokens.vocabulary import Ids

CACHED_BYTES = 384 << 20  # text after which the cache of words is dropped


class Gigatoken:
    """Encodes on the calling thread. gigatoken 0.10 remembers every word that it meets, without
    bound; so it is made anew now and then, which changes no id."""

    name = "gigatoken"

    def __init__(self, make: Callable[[], Any], *, shift: int = 0) -> None:
        self._make = make
        self._shift = np.uint32(shift)  # of ids in files whose ranks begin behind special tokens
        self._backend = make()
        self._seen_bytes = 0

    def encode(self, text: bytes) -> Ids:
        """The ids of one document."""
        self._seen_bytes += len(text)
        if self._seen_bytes > CACHED_BYTES:
            self._backend, self._seen_bytes = self._make(), len(text)
        ids: Ids = self._backend.encode(text)
        return ids + self._shift if self._shift else ids


def of_json(content: bytes) -> Gigatoken:
    """An encoder of the contents of a tokenizer.json."""
    library = need("gigatoken.gigatoken_rs", "fast tokenization")
    return Gigatoken(lambda: library.load_hf_json(content))


def of_ranks(content: bytes, scheme: str, *, shift: int = 0) -> Gigatoken:
    """An encoder of the contents of a rank file, whose text is split as `scheme` says."""
    library = need("gigatoken.gigatoken_rs", "fast tokenization")

    def make() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ranks"
            path.write_bytes(content)
            return library.BPETokenizer.from_tiktoken(str(path), scheme)

    return Gigatoken(make, shift=shift)
