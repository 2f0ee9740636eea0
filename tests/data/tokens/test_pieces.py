"""sentencepiece models: ids of sentencepiece."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.tokenizer import load
from meshwright.data.tokens.trial import first_difference

if TYPE_CHECKING:
    from pathlib import Path

sentencepiece = pytest.importorskip("sentencepiece")

PROSE = "The quick brown fox jumps over the lazy dog; it's what foxes do, isn't it? 3.14 Straße"


def model(**options: Any) -> bytes:
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([PROSE, PROSE[::-1], PROSE.upper(), "a b c d e f g " * 3] * 10),
        model_writer=made,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return made.getvalue()


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "gigatoken",
        {
            "model_type": "bpe",
            "vocab_size": 400,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
        },
    ),
    "user defined": (
        "gigatoken",
        {
            "model_type": "bpe",
            "vocab_size": 400,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "user_defined_symbols": ["<tool>", "[/REF]"],
        },
    ),
    "no bytes": ("sentencepiece", {"model_type": "bpe", "vocab_size": 140}),
    "unigram": ("sentencepiece", {"model_type": "unigram", "vocab_size": 120}),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_those_of_sentencepiece(form: str, tmp_path: Path) -> None:
    engine, options = FORMS[form]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(**options))
    tokenizer = load(TokenizerSource(file=str(tmp_path)))
    assert tokenizer.engine == engine
    texts = samples(1500, tokens=("<tool>", "[/REF]", "<s>", "</s>", "<unk>"), seed=53)
    reference = tokenizer.vocabulary.reference
    assert first_difference(tokenizer.encoder, reference, texts=texts) is None
    ids, _ = tokenizer.encode(documents_of(["the fox </s> jumps"]))
    assert tokenizer.eod_id == 2
    assert tokenizer.eod_id not in ids
    assert tokenizer.decode([*ids, 2]).endswith("jumps</s>")


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    content = model(model_type="bpe", vocab_size=140)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidInput, match="sentencepiece cannot load it"):
        load(TokenizerSource(file=str(path)))


def test_a_copy_is_the_same_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "spm.model"
    path.write_bytes(model(model_type="bpe", vocab_size=140))
    tokenizer = load(TokenizerSource(file=str(path)))
    tokenizer.save(tmp_path / "copy")
    assert load(TokenizerSource(file=str(tmp_path / "copy"))).digest == tokenizer.digest
