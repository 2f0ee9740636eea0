"""A tokenizer: documents to ids, as the library that defines the vocabulary would give them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.shards.indexed import dtype_for
from meshwright.data.tokens import copy, ends, files, trial
from meshwright.data.tokens.barred import barred
from meshwright.data.tokens.hostile import FIXED
from meshwright.data.tokens.quiet import first_line, is_of_library, silenced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Offsets
    from meshwright.data.settings import TokenizerSource
    from meshwright.data.tokens.files import Found
    from meshwright.data.tokens.vocabulary import Encoder, Ids, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A vocabulary with the encoder that was chosen for it.

    Ids are those of ordinary text: what spells a special token stays text, and nothing is put
    before or behind a document. `remarks` tell what a user should know of the choice.
    """

    vocabulary: Vocabulary
    encoder: Encoder
    eod_id: int
    pad_id: int
    remarks: tuple[str, ...] = ()

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, added tokens included."""
        return max(self.vocabulary.size, self.eod_id + 1, self.pad_id + 1)

    @property
    def digest(self) -> str:
        """Hash of all that decides about ids: vocabulary, merges, added tokens, splitting."""
        return self.vocabulary.digest

    @property
    def dtype(self) -> np.dtype[Any]:
        """What Megatron would store the ids as."""
        return dtype_for(self.vocab_size)

    @property
    def engine(self) -> str:
        """The library that encodes."""
        return self.encoder.name

    def encode(self, documents: Documents) -> tuple[Ids, Offsets]:
        """Ids of all documents end to end, and where each document's begin: document i has
        ids[bounds[i]:bounds[i + 1]]."""
        parts = [self._ids(documents.encoded(i)) for i in range(len(documents))]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        ids = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint32)
        return ids, bounds_of(lengths)

    def _ids(self, text: bytes) -> Ids:
        """The ids of one document; where the encoder fails on it, the reference's."""
        try:
            return self.encoder.encode(text)
        except BaseException as error:
            if not is_of_library(error):
                raise
        try:
            return self.vocabulary.reference.encode(text.decode())
        except BaseException as error:
            if not is_of_library(error):
                raise
            raise _cannot(self.vocabulary.reference.name, error) from None

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids, special tokens spelled out."""
        return self.vocabulary.reference.decode([int(id) for id in ids])

    def reference(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids that the defining library gives, one list for each text."""
        return [self.vocabulary.reference.encode(text).tolist() for text in texts]

    def save(self, folder: Path) -> None:
        """Copies the files into `folder` (made where missing), so that `load` of it gives the
        same tokenizer, and Hugging Face's and Megatron's readers find what they look for."""
        copy.save(self.vocabulary, folder, eod_id=self.eod_id)


def load(settings: TokenizerSource, *, library: str = "auto") -> Tokenizer:
    """The tokenizer of a file or folder. `library="reference"` never takes gigatoken.

    Raises InvalidInput for a file that is no tokenizer, and where no token ends a text.
    """
    path = Path(settings.file).expanduser()
    settings = copy.recalled(settings, path)
    found = files.recognize(path, kind=settings.kind)
    vocabulary = _reader(found)(found, settings)
    _prove(found, vocabulary)
    vocabulary, left = _without_special(vocabulary)
    eod, remarks = ends.end_of(vocabulary, given=settings.eod, file=str(found.path))
    encoder, more = trial.choose(vocabulary, library=library)
    return Tokenizer(
        vocabulary=vocabulary,
        encoder=encoder,
        eod_id=eod,
        pad_id=ends.pad_of(vocabulary, eod=eod),
        remarks=(*remarks, *left, *more),
    )


def _prove(found: Found, vocabulary: Vocabulary) -> None:
    """InvalidInput for a vocabulary with which its own library cannot encode text."""
    try:
        with silenced():
            for text in FIXED:
                vocabulary.reference.encode(text)
    except BaseException as error:
        if not is_of_library(error):
            raise
        what = _cannot(vocabulary.reference.name, error).message
        raise files.refused(found.path, what, hint="fetch the file again") from None


def _cannot(library: str, error: BaseException) -> MeshwrightError:
    message = f"{library} cannot encode a text with this vocabulary: {first_line(error)}"
    return MeshwrightError(message, hint="report it to the library, with the text")


def _without_special(vocabulary: Vocabulary) -> tuple[Vocabulary, tuple[str, ...]]:
    """The vocabulary with a reference that finds no special token in text, and a remark where it
    still does."""
    reference, left = barred(vocabulary.reference, vocabulary.special)
    remark = f"text that spells {', '.join(left[:5])} becomes that special token"
    return replace(vocabulary, reference=reference), (remark,) if left else ()


def _reader(found: Found) -> Callable[[Found, TokenizerSource], Vocabulary]:
    """The function that reads this kind of file; its library is imported only here."""
    if found.kind in ("json", "merges"):
        from meshwright.data.tokens import huggingface

        return huggingface.read if found.kind == "json" else huggingface.read_merges
    if found.kind in ("tiktoken", "tekken"):
        from meshwright.data.tokens import ranks

        return ranks.read if found.kind == "tiktoken" else ranks.read_tekken
    from meshwright.data.tokens import pieces

    return pieces.read
