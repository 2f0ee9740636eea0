"""sentencepiece models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.tokens import fast
from meshwright.data.tokens.ends import stated
from meshwright.data.tokens.files import beside, read_bytes, refused
from meshwright.data.tokens.huggingface import pieces_of
from meshwright.data.tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from meshwright.data.settings import TokenizerSource
    from meshwright.data.tokens.files import Found
    from meshwright.data.tokens.vocabulary import Encoder, Ids


class SentencePiece:
    """sentencepiece, which never takes text for a control piece."""

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        library = need("sentencepiece", "a sentencepiece model")
        self.library = library.SentencePieceProcessor(model_proto=model)

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        return np.array(self.library.encode(text), dtype=np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control pieces spelled out."""
        parts: list[str] = []
        run: list[int] = []
        for id in map(int, ids):
            if self.library.is_control(id):
                parts += [self.library.decode(run), self.library.id_to_piece(id)]
                run = []
            else:
                run.append(id)
        return "".join([*parts, self.library.decode(run)])


def read(found: Found, settings: TokenizerSource) -> Vocabulary:
    """The vocabulary of a .model file. InvalidInput where sentencepiece cannot load it."""
    del settings
    content = read_bytes(found.path)
    reference = _reference(found.path, content)
    model = reference.library
    size = int(model.vocab_size())
    config = beside(found.folder, "tokenizer_config.json")
    end = str(model.id_to_piece(model.eos_id())) if model.eos_id() >= 0 else ""
    xxhash = need("xxhash", "hashing a vocabulary")
    return Vocabulary(
        kind="sentencepiece",
        files={found.path.name: found.path},
        facts={},
        size=size,
        special={model.id_to_piece(id): id for id in range(size) if model.is_control(id)},
        extra=_given_pieces(model, size),
        stated_eod=stated(config, "eos_token") or end,
        stated_pad=stated(config, "pad_token"),
        digest=str(xxhash.xxh3_128_hexdigest(content)),
        reference=reference,
        pieces=pieces_of(reference, range(size)),
        fast=(lambda: _fast(content),),
    )


def _reference(path: Path, content: bytes) -> SentencePiece:
    try:
        return SentencePiece(content)
    except (RuntimeError, ValueError, OSError) as error:
        what = "sentencepiece cannot load it"
        raise refused(path, what, reason=str(error)[:300], hint="fetch it again") from None


def _given_pieces(model: Any, size: int) -> dict[str, int]:
    """Pieces that a user defined: text becomes them wherever it spells them."""
    kept = (id for id in range(size) if not model.is_control(id) and not model.is_byte(id))
    return {
        str(model.id_to_piece(id)): id
        for id in kept
        if not model.is_unknown(id) and not model.is_unused(id) and model.get_score(id) == 0.0
    }


def _fast(content: bytes) -> Encoder:
    """gigatoken's own reading of the model, without the control pieces."""
    import orjson

    loading = need("gigatoken._load.sentencepiece", "fast tokenization")
    tokenizer = orjson.loads(loading.sentencepiece_to_tokenizer_json(content))
    added = [token for token in tokenizer["added_tokens"] if not token["special"]]
    return fast.of_json(orjson.dumps({**tokenizer, "added_tokens": added}))
