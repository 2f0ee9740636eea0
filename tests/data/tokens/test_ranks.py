"""Rank files: ids of tiktoken, whichever expression splits the text."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens import patterns
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.tokenizer import Tokenizer, load
from meshwright.data.tokens.trial import first_difference

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tiktoken")


@pytest.fixture
def rank_file(ranks: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "some.tiktoken"
    path.write_bytes(ranks)
    return path


def equal(tokenizer: Tokenizer, *, seed: int = 41) -> bool:
    texts = samples(2000, tokens=tuple(tokenizer.vocabulary.special)[:20], seed=seed)
    reference = tokenizer.vocabulary.reference
    return first_difference(tokenizer.encoder, reference, texts=texts) is None


@pytest.mark.parametrize("name", sorted(patterns.ENCODINGS))
def test_each_known_pattern_is_encoded_by_gigatoken_as_by_tiktoken(
    name: str, rank_file: Path
) -> None:
    tokenizer = load(TokenizerSource(file=str(rank_file), pattern=name, eod="0"))
    assert tokenizer.engine == "gigatoken"
    assert tokenizer.remarks == ()
    assert equal(tokenizer)


def test_an_expression_of_the_user_is_encoded_by_tiktoken(rank_file: Path) -> None:
    source = TokenizerSource(file=str(rank_file), pattern=r"\w+|\W", eod="899")
    tokenizer = load(source)
    assert tokenizer.engine == "tiktoken"
    assert "does not have this pattern" in tokenizer.remarks[0]
    assert equal(tokenizer)


def test_ranks_with_gaps_and_tokens_that_nothing_makes_up(rank_file: Path, ranks: bytes) -> None:
    far = [b" zqzqzq", b"xkcdxkcd", "\u00e9\u00e9\u00e9\u00e9".encode()]
    lines = b"".join(b"%s %d\n" % (base64.b64encode(t), 950 + 3 * i) for i, t in enumerate(far))
    rank_file.write_bytes(ranks + lines)
    tokenizer = load(TokenizerSource(file=str(rank_file), pattern="o200k_base", eod="949"))
    assert tokenizer.engine == "gigatoken"
    assert equal(tokenizer)
    ids, _ = tokenizer.encode(documents_of(["a zqzqzq xkcdxkcd"]))
    assert 950 in ids


def test_special_tokens_follow_the_ranks_and_stay_text(rank_file: Path) -> None:
    tokenizer = load(TokenizerSource(file=str(rank_file), pattern="llama3"))
    special = tokenizer.vocabulary.special
    first = special["<|begin_of_text|>"]
    assert tokenizer.eod_id == special["<|end_of_text|>"] == first + 1
    assert tokenizer.pad_id == special["<|finetune_right_pad_id|>"]
    assert len(special) == 256
    text = "a<|end_of_text|>b"
    ids, _ = tokenizer.encode(documents_of([text]))
    assert tokenizer.eod_id not in ids
    assert tokenizer.decode([*ids, tokenizer.eod_id]) == text + "<|end_of_text|>"


def test_the_name_of_the_file_tells_its_pattern(rank_file: Path) -> None:
    with pytest.raises(InvalidInput, match="does not say how text is split") as caught:
        load(TokenizerSource(file=str(rank_file)))
    assert '"o200k_base"' in caught.value.hint
    named = rank_file.rename(rank_file.with_name("qwen.tiktoken"))
    assert load(TokenizerSource(file=str(named))).vocabulary.special["<|im_end|>"] > 0
    with pytest.raises(InvalidInput, match="no pattern is called"):
        load(TokenizerSource(file=str(named), pattern="cl1000k"))


def test_a_copy_remembers_pattern_and_end(rank_file: Path, tmp_path: Path) -> None:
    tokenizer = load(TokenizerSource(file=str(rank_file), pattern="kimi"))
    tokenizer.save(tmp_path / "copy")
    again = load(TokenizerSource(file=str(tmp_path / "copy")))
    assert (again.digest, again.eod_id) == (tokenizer.digest, tokenizer.eod_id)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (b"AA== x\n", "is not `base64 rank`"),
        (b"A= 77\n", "is not `base64 rank`"),
        (b"/////w== 3\n", "one rank to several"),
        (b"/////w== 9999999999\n", "out of range"),
    ],
)
def test_damaged_rank_files(rank_file: Path, ranks: bytes, damage: bytes, word: str) -> None:
    rank_file.write_bytes(ranks + damage)
    with pytest.raises(InvalidInput, match=word):
        load(TokenizerSource(file=str(rank_file), pattern="gpt2"))


def test_half_a_rank_file_lacks_bytes(rank_file: Path, ranks: bytes) -> None:
    rank_file.write_bytes(ranks[:1000])
    with pytest.raises(InvalidInput, match=r"256 single bytes|is not `base64 rank`"):
        load(TokenizerSource(file=str(rank_file), pattern="gpt2"))


def test_tekken_ids_stand_behind_its_special_tokens(ranks: bytes, tmp_path: Path) -> None:
    entries = [
        {"rank": number, "token_bytes": line.split()[0].decode(), "token_str": None}
        for number, line in enumerate(ranks.splitlines())
    ]
    config = {
        "pattern": patterns.TEKKEN,
        "default_vocab_size": len(entries) - 20 + 30,
        "default_num_special_tokens": 30,
    }
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": entries}))
    tokenizer = load(TokenizerSource(file=str(path)))
    assert tokenizer.eod_id == 2
    assert tokenizer.engine == "gigatoken"
    assert tokenizer.vocab_size == len(entries) + 10
    assert equal(tokenizer)
    ids, _ = tokenizer.encode(documents_of(["text </s>"]))
    assert ids.min() >= 30
    assert tokenizer.decode([*ids, 2]) == "text </s></s>"
    huge = {**config, "default_vocab_size": 2**40}
    path.write_text(json.dumps({"config": huge, "vocab": entries}))
    with pytest.raises(InvalidInput, match="lacks some of the ranks"):
        load(TokenizerSource(file=str(path)))
    path.write_text(json.dumps({"config": config, "vocab": entries[:-100]}))
    with pytest.raises(InvalidInput, match="lacks some of the ranks"):
        load(TokenizerSource(file=str(path)))


def test_a_run_that_the_expression_gives_up_on_is_encoded(rank_file: Path) -> None:
    source = TokenizerSource(file=str(rank_file), pattern="qwen")
    slow = load(source, library="reference")
    text = "a" + " " * 1_200_000 + "b"
    ids, _ = slow.encode(documents_of([text]))
    assert slow.decode(ids) == text
