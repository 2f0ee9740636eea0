"""A small corpus and a small vocabulary, made anew for each run of the tests."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

_SYLLABLES = ("ka", "lo", "mi", "ren", "sto", "tu", "ver", "an", "el", "or", "is", "pha")


def _word(chance: random.Random) -> str:
    return "".join(chance.choice(_SYLLABLES) for _ in range(chance.randint(1, 4)))


def _text(chance: random.Random, words: list[str]) -> str:
    sentences = [
        " ".join(chance.choices(words, k=chance.randint(4, 15))).capitalize() + "."
        for _ in range(chance.randint(1, 30))
    ]
    return "\n".join(sentences)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """600 documents of made-up words; every tenth an exact, every fifteenth a near duplicate."""
    chance = random.Random(7)
    words = [_word(chance) for _ in range(2000)]
    made: list[str] = []
    for number in range(600):
        if number % 10 == 9:
            made.append(made[chance.randrange(number)])
        elif number % 15 == 14:
            made.append(made[chance.randrange(number)] + " Ende.")
        else:
            made.append(_text(chance, words))
    return made


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A folder of three jsonl files with the documents of `texts`."""
    folder = tmp_path_factory.mktemp("corpus")
    for part in range(3):
        records = [
            {"text": text, "id": f"{part}-{number}"}
            for number, text in enumerate(texts[part * 200 : part * 200 + 200])
        ]
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (folder / f"part-{part}.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A byte-level BPE of 400 entries with an end of text, as tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    tokenizer.save(str(path))
    return path
