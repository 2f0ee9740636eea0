"""Rank files: tiktoken's (each line a token in base64 and its rank), Mistral's tekken.json."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.tokens import fast
from meshwright.data.tokens.ends import stated
from meshwright.data.tokens.files import beside, read_bytes, read_json, refused
from meshwright.data.tokens.huggingface import pieces_of
from meshwright.data.tokens.patterns import (
    ENCODINGS,
    PUBLISHED,
    SCHEMES,
    Encoding,
    encoding_of,
)
from meshwright.data.tokens.quiet import first_line, is_of_library, silenced
from meshwright.data.tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshwright.data.settings import TokenizerSource
    from meshwright.data.tokens.files import Found
    from meshwright.data.tokens.vocabulary import Ids

MOST_IDS = 1 << 22
_BYTES = 256
_HALVED_CHARACTERS = 10_000
_TEKKEN_SPECIAL = ("<unk>", "<s>", "</s>")  # of files before version 7, which list none


class Tiktoken:
    """tiktoken's ordinary encoding; `shift` is added to every rank. A text that its expression
    gives up on (a run of a million blanks) is encoded in halves."""

    name = "tiktoken"

    def __init__(
        self, ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int], *, shift: int
    ) -> None:
        inner = {token: id for token, id in special.items() if id >= shift}
        library = need("tiktoken", "a rank file", extra="data")
        self._library = library.Encoding(
            "given",
            pat_str=pattern,
            mergeable_ranks=dict(ranks),
            special_tokens={token: id - shift for token, id in inner.items()},
        )
        self._before = {id: token for token, id in special.items() if id < shift}
        self._shift = shift

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        try:
            ids: Ids = self._library.encode_to_numpy(text, disallowed_special=())
        except ValueError:
            if len(text) < _HALVED_CHARACTERS:
                raise
            halves = (text[: len(text) // 2], text[len(text) // 2 :])
            return np.concatenate([self.encode(half) for half in halves])
        return ids + np.uint32(self._shift) if self._shift else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        parts = [
            self._before.get(id, "").encode()
            if id < self._shift
            else self._library.decode_single_token_bytes(id - self._shift)
            for id in map(int, ids)
        ]
        return b"".join(parts).decode(errors="replace")


def read(found: Found, settings: TokenizerSource) -> Vocabulary:
    """The vocabulary of a rank file. InvalidInput where it is broken or its pattern unknown."""
    content = read_bytes(found.path)
    ranks = _parsed(found.path, content)
    encoding = _encoding(found.path, content, settings.pattern)
    first = 1 + max(ranks.values())
    special = {token: first + place for place, token in enumerate(encoding.behind)}
    special |= encoding.special
    config = beside(found.folder, "tokenizer_config.json")
    special |= _decoder_of(config)
    return _vocabulary(
        found, ranks, pattern=encoding.pattern, special=special, shift=0,
        eod=stated(config, "eos_token") or encoding.eod, kept={"pattern": settings.pattern},
    )  # fmt: skip


def read_tekken(found: Found, settings: TokenizerSource) -> Vocabulary:
    """The vocabulary of a tekken.json: ids are ranks behind a block of special tokens."""
    del settings
    file = read_json(found.path)
    try:
        shift = int(file["config"]["default_num_special_tokens"])
        count = int(file["config"]["default_vocab_size"]) - shift
        pattern = str(file["config"]["pattern"])
        listed = file.get("special_tokens") or [
            {"rank": rank, "token_str": token} for rank, token in enumerate(_TEKKEN_SPECIAL)
        ]
        special = {str(token["token_str"]): int(token["rank"]) for token in listed}
        entries = [entry for entry in file["vocab"] if int(entry["rank"]) < count]
        ranks = {base64.b64decode(e["token_bytes"], validate=True): int(e["rank"]) for e in entries}
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise refused(found.path, "is no whole tekken.json", reason=repr(error)[:200]) from None
    if not 0 <= shift < MOST_IDS or len(ranks) != count or {*ranks.values()} != {*range(count)}:
        raise refused(found.path, "lacks some of the ranks that its config states")
    _check(found.path, ranks)
    return _vocabulary(
        found, ranks, pattern=pattern, special=special, shift=shift, eod="</s>", kept={}
    )


def _vocabulary(
    found: Found, ranks: Mapping[bytes, int], *, pattern: str, special: Mapping[str, int],
    shift: int, eod: str, kept: Mapping[str, str],
) -> Vocabulary:  # fmt: skip
    try:
        with silenced():
            reference = Tiktoken(ranks, pattern, special, shift=shift)
    except BaseException as error:
        if not is_of_library(error):
            raise
        raise refused(found.path, f"tiktoken cannot load it: {first_line(error)}") from None
    scheme = SCHEMES.get(pattern, "")
    config = beside(found.folder, "tokenizer_config.json")
    configs = {"tokenizer_config.json": found.folder / "tokenizer_config.json"} if config else {}
    return Vocabulary(
        kind="tiktoken",
        files={found.path.name: found.path, **configs},
        facts=kept,
        size=1 + max(shift + max(ranks.values()), *special.values(), 0),
        special=special,
        extra={},
        stated_eod=eod,
        digest=_digest(ranks, pattern, special, shift=shift),
        reference=reference,
        pieces=pieces_of(reference, [shift + rank for rank in sorted(ranks.values())]),
        fast=(
            lambda: fast.of_ranks(ranks, scheme, shift=shift),
            lambda: fast.of_any_ranks(ranks, scheme, shift=shift),
        )
        if scheme
        else (),
        refusal="" if scheme else "it does not have this pattern",
    )


def _parsed(path: Path, content: bytes) -> dict[bytes, int]:
    """Ranks by token."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise refused(
                path, f"line {number} is not `base64 rank`", hint="fetch it again"
            ) from None
    if len(set(ranks.values())) != len(ranks):
        raise refused(path, "gives one rank to several tokens")
    _check(path, ranks)
    return ranks


def _check(path: Path, ranks: Mapping[bytes, int]) -> None:
    if b"" in ranks:
        raise refused(path, "has a token of no bytes")
    missing = sum(bytes([byte]) not in ranks for byte in range(_BYTES))
    if missing:
        what = f"lacks {missing} of the 256 single bytes: it is no whole vocabulary"
        raise refused(path, what, hint="fetch it again")
    if max(ranks.values()) >= MOST_IDS or min(ranks.values()) < 0:
        raise refused(path, "has ranks that are out of range")


def _encoding(path: Path, content: bytes, pattern: str) -> Encoding:
    """How the file's tokens split text: as the settings say, else by its contents or its name."""
    if pattern:
        return encoding_of(pattern) or Encoding(pattern=_expression(path, pattern), special={})
    name = PUBLISHED.get(hashlib.sha256(content).hexdigest()) or path.name.partition(".")[0]
    known = encoding_of(name)
    if known is None:
        hint = "pattern = " + " | ".join(f'"{name}"' for name in ENCODINGS) + " or an expression"
        what = "a rank file does not say how text is split, and this one is not known"
        raise refused(path, what, hint=hint)
    return known


def _expression(path: Path, pattern: str) -> str:
    """The settings' own expression; a plain word is a mistyped name."""
    if pattern.replace("_", "").replace("-", "").isalnum():
        hint = "pattern = " + " | ".join(f'"{name}"' for name in ENCODINGS)
        raise refused(path, f"no pattern is called {pattern!r}", hint=hint)
    return pattern


def _decoder_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Special tokens that a tokenizer_config.json lists by their id."""
    listed = config.get("added_tokens_decoder")
    if not isinstance(listed, dict):
        return {}
    tokens = {key: value for key, value in listed.items() if isinstance(value, dict)}
    return {
        str(token.get("content")): int(key)
        for key, token in tokens.items()
        if key.isdigit() and int(key) < MOST_IDS
    }


def _digest(
    ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int], *, shift: int
) -> str:
    """Hash of all that decides about ids."""
    xxhash = need("xxhash", "hashing a vocabulary")
    state = xxhash.xxh3_128()
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        state.update(b"%d %d " % (rank, len(token)) + token)
    state.update(repr((pattern, sorted(special.items()), shift)).encode())
    return str(state.hexdigest())
