"""Documents to ids: equal to the reference, special tokens never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens.hostile import samples
from meshwright.data.tokens.tokenizer import Tokenizer, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

END = "<|endoftext|>"


@pytest.fixture
def gpt2_like(byte_level: dict[str, Any], written: Callable[..., Path]) -> Tokenizer:
    return load(TokenizerSource(file=str(written(byte_level))))


def test_hostile_documents_have_the_ids_of_the_reference(gpt2_like: Tokenizer) -> None:
    texts = samples(3000, tokens=(END,), seed=3)
    ids, bounds = gpt2_like.encode(documents_of(texts))
    assert gpt2_like.engine == "gigatoken"
    assert ids.dtype == np.uint32
    assert bounds[0] == 0
    assert bounds[-1] == len(ids)
    for place, wanted in enumerate(gpt2_like.reference(texts)):
        assert ids[bounds[place] : bounds[place + 1]].tolist() == wanted


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(max_size=200))
def test_any_text_has_the_ids_of_the_reference_and_comes_back(
    gpt2_like: Tokenizer, text: str
) -> None:
    ids, _ = gpt2_like.encode(documents_of([text]))
    assert ids.tolist() == gpt2_like.reference([text])[0]
    assert gpt2_like.decode(ids) == text


def test_what_spells_a_special_token_stays_text(gpt2_like: Tokenizer) -> None:
    text = f"one{END}two {END}\n{END}"
    ids, _ = gpt2_like.encode(documents_of([text]))
    assert gpt2_like.eod_id not in ids
    assert gpt2_like.decode(ids) == text
    assert gpt2_like.decode([*ids, gpt2_like.eod_id]) == text + END


def test_empty_documents_and_batches_have_no_ids(gpt2_like: Tokenizer) -> None:
    ids, bounds = gpt2_like.encode(documents_of(["", "a", ""]))
    assert np.diff(bounds).tolist() == [0, 1, 0]
    ids, bounds = gpt2_like.encode(documents_of([]))
    assert len(ids) == 0
    assert bounds.tolist() == [0]


@pytest.mark.parametrize(("size", "dtype"), [(65_499, np.uint16), (65_500, np.int32)])
def test_the_dtype_is_that_of_megatron(
    byte_level: dict[str, Any], written: Callable[..., Path], size: int, dtype: type
) -> None:
    vocabulary = {**byte_level["model"]["vocab"], "far": size - 1}
    tokenizer = load(TokenizerSource(file=str(written(byte_level, model={"vocab": vocabulary}))))
    assert tokenizer.vocab_size == size
    assert tokenizer.dtype == dtype


def test_truncation_padding_and_templates_of_the_file_are_not_applied(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, first],
        "pair": [first, second],
        "special_tokens": {END: {"id": END, "ids": [0], "tokens": [END]}},
    }
    path = written(byte_level, truncation=cut, post_processor=template)
    tokenizer = load(TokenizerSource(file=str(path)))
    text = "The quick brown fox jumps over the lazy dog"
    ids, _ = tokenizer.encode(documents_of([text]))
    assert len(ids) > 2
    assert tokenizer.eod_id not in ids
    assert ids.tolist() == tokenizer.reference([text])[0]


def test_dropout_is_switched_off(byte_level: dict[str, Any], written: Callable[..., Path]) -> None:
    tokenizer = load(TokenizerSource(file=str(written(byte_level, model={"dropout": 0.9}))))
    text = "The quick brown fox jumps over the lazy dog " * 20
    assert tokenizer.reference([text]) == tokenizer.reference([text])


def test_a_copy_is_the_same_tokenizer(
    byte_level: dict[str, Any], written: Callable[..., Path], tmp_path: Path
) -> None:
    source = TokenizerSource(file=str(written(byte_level, added_tokens=[])), eod="7")
    tokenizer = load(source)
    tokenizer.save(tmp_path / "copy")
    again = load(TokenizerSource(file=str(tmp_path / "copy")))
    assert again.digest == tokenizer.digest
    assert again.eod_id == tokenizer.eod_id == 7
    assert (tmp_path / "copy" / "tokenizer_config.json").is_file()


def test_the_digest_is_of_the_vocabulary_not_of_the_spelling(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    def digest(**parts: Any) -> str:
        return load(TokenizerSource(file=str(written(byte_level, **parts)), eod="0")).digest

    model = byte_level["model"]
    plain = digest()
    assert digest(model={"merges": [" ".join(pair) for pair in model["merges"]]}) == plain
    assert digest(post_processor=None, decoder=None) == plain
    assert digest(model={"merges": model["merges"][:-1]}) != plain
    assert digest(model={"ignore_merges": True}) != plain
    assert digest(normalizer={"type": "NFC"}) != plain
    assert digest(added_tokens=[]) != plain


def test_special_pieces_of_a_unigram_model_stay_text(
    unigram: dict[str, Any], written: Callable[..., Path]
) -> None:
    tokenizer = load(TokenizerSource(file=str(written(unigram))))
    assert tokenizer.engine == "tokenizers"
    assert any("Unigram" in remark for remark in tokenizer.remarks)
    ids, _ = tokenizer.encode(documents_of(["the </s> dog</s>"]))
    assert tokenizer.eod_id == 2
    assert tokenizer.eod_id not in ids
    plain, _ = tokenizer.encode(documents_of(["the dog"]))
    assert plain.tolist() == tokenizer.vocabulary.reference.inner.encode("the dog").tolist()  # type: ignore[attr-defined]


def test_the_reference_can_be_asked_for(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    tokenizer = load(TokenizerSource(file=str(written(byte_level))), library="reference")
    assert tokenizer.engine == "tokenizers"
    ids, _ = tokenizer.encode(documents_of(["The fox"]))
    assert ids.tolist() == tokenizer.reference(["The fox"])[0]


def test_without_an_end_of_text_the_candidates_are_listed(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    token = {**byte_level["added_tokens"][0], "content": "<fim>", "id": 900}
    path = written(byte_level, added_tokens=[token])
    with pytest.raises(InvalidInput, match="names no end of text") as caught:
        load(TokenizerSource(file=str(path)))
    assert '"<fim>"' in caught.value.hint
    assert load(TokenizerSource(file=str(path), eod="<fim>")).eod_id == 900
