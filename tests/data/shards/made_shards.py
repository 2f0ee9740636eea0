"""Folders of shards, small enough to damage every byte of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from meshwright.data.settings import Build, Output, Pack, Source, TokenizerSource
from meshwright.data.shards.manifest import Vocabulary

EOD, PAD, VOCAB = 0, 1, 300


def vocabulary(dtype: str = "<u2") -> Vocabulary:
    return Vocabulary(digest="none", vocab_size=VOCAB, eod_id=EOD, pad_id=PAD, dtype=dtype)


def documents(count: int, *, longest: int = 40, seed: int = 0) -> list[np.ndarray]:
    """Token arrays, each with its end of text."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, longest, count)
    return [np.append(rng.integers(2, VOCAB, int(size)), EOD) for size in sizes]


WORDS = (
    "shard row token piece split merge byte pair rank order seed stream block frame".split()  # noqa: SIM905
)


def texts(count: int, *, seed: int = 0) -> list[str]:
    """Short texts, every ninth an exact copy of an earlier one."""
    rng = np.random.default_rng(seed)
    made = [" ".join(rng.choice(WORDS, int(rng.integers(3, 60)))) for _ in range(count)]
    return [made[n - 5] if n % 9 == 8 else text for n, text in enumerate(made)]


def write_corpus(path: Path, found: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": f"doc-{n}", "text": text}) for n, text in enumerate(found)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_tokenizer(folder: Path) -> Path:
    """A byte-level BPE tokenizer that has learned the words above."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def settings(root: Path, files: list[Path], **changes: object) -> Build:
    """A build of small rows and shards, with its text saved."""
    return Build(
        sources=(Source(files=tuple(map(str, files)), id_field="id"),),
        output=Output(folder=str(root / "out"), shard_tokens=2000, text=True),
        tokenizer=TokenizerSource(file=str(write_tokenizer(root / "tokenizer"))),
        pack=Pack(seq_len=64, strategy="best-fit"),
        validation=0.1,
        **changes,  # type: ignore[arg-type]
    )
