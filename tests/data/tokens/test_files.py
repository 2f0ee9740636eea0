"""Files that are no tokenizer: what they are, and what to give."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens.files import recognize
from meshwright.data.tokens.tokenizer import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRONG = {
    "lfs": (b"version https://git-lfs/spec/v1\noid sha256:00\nsize 1\n", "git-lfs pointer"),
    "safetensors": (b"\x10\x00\x00\x00\x00\x00\x00\x00{}              ", "safetensors"),
    "gguf": (b"GGUF\x03\x00\x00\x00", "GGUF"),
    "zip": (b"PK\x03\x04rest", "zip archive"),
    "pickle": (b"\x80\x02}q\x00.", "pickle"),
    "gzip": (b"\x1f\x8b\x08\x00", "gzip"),
    "page": (b"<!DOCTYPE html><title>404</title>", "web page"),
    "empty": (b" \n", "empty"),
    "noise": (bytes(range(160, 250)), "no tokenizer that is known"),
    "config": (b'{"model_type": "llama", "hidden_size": 4096}', "config.json"),
    "tokenizer config": (b'{"tokenizer_class": "LlamaTokenizer"}', "tokenizer_config.json"),
    "index": (b'{"metadata": {}, "weight_map": {}}', "index of a model's weights"),
    "list": (b"[1, 2]", "JSON list"),
    "cut": (b'{"version": "1.0", "model": {"type": "BPE"', "in the middle of its JSON"),
    "broken": (b'{"version": 1.0, "model" "vocab"}', "not JSON"),
    "not UTF-8": (b'{"version": "\xff\xfe"}', "UTF-8"),
    "half": (b'{"a": 0, "b": 1}', "half of a vocabulary"),
    "no model": (b'{"version": "1.0"}', "no `model.vocab`"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_told_for_what_it_is(kind: str, tmp_path: Path) -> None:
    content, word = WRONG[kind]
    path = tmp_path / ("vocab.json" if kind == "half" else "given.json")
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=word) as caught:
        load(TokenizerSource(file=str(path)))
    assert caught.value.hint
    assert caught.value.findings[0].file == str(path)


def test_a_config_beside_a_tokenizer_points_at_it(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    path = written(byte_level)
    config = path.with_name("tokenizer_config.json")
    config.write_text('{"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}')
    with pytest.raises(InvalidInput) as caught:
        load(TokenizerSource(file=str(config)))
    assert caught.value.hint == f"give {path}"


def test_absent_files_are_not_fetched(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing is downloaded"):
        load(TokenizerSource(file="some-org/some-model"))
    with pytest.raises(InvalidInput, match="no tokenizer") as caught:
        load(TokenizerSource(file=str(tmp_path)))
    assert "nothing" in caught.value.findings[0].reason


def test_unknown_and_unfitting_kinds(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    path = written(byte_level)
    with pytest.raises(MeshwrightError, match="no kind of tokenizer"):
        recognize(path, kind="yaml")
    with pytest.raises(InvalidInput, match="is no tiktoken file"):
        recognize(path, kind="tiktoken")
    assert recognize(path, kind="json").kind == "json"
    assert recognize(path.parent).path == path


def test_a_vocabulary_and_its_merges_are_the_same_tokenizer(
    byte_level: dict[str, Any], written: Callable[..., Path], tmp_path: Path
) -> None:
    whole = load(TokenizerSource(file=str(written(byte_level))))
    folder = tmp_path / "pair"
    folder.mkdir()
    model = byte_level["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    for given in (folder, folder / "vocab.json", folder / "merges.txt"):
        pair = load(TokenizerSource(file=str(given)))
        assert (pair.digest, pair.eod_id, pair.engine) == (whole.digest, 0, "gigatoken")
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\na b c\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"line {len(model['merges']) + 2} is not two tokens"):
        load(TokenizerSource(file=str(folder)))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "OddTokenizer"}')
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="splits text is not known"):
        load(TokenizerSource(file=str(folder)))
    assert load(TokenizerSource(file=str(folder), pattern="gpt2")).digest == whole.digest


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_load_or_are_refused_with_a_finding(
    seed: int, byte_level: dict[str, Any], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    content = bytearray(json.dumps(byte_level, ensure_ascii=False).encode())
    for _ in range(chance.randint(1, 6)):
        content[chance.randrange(len(content))] = chance.choice(b'{}[]",:0a \xff\n')
    if seed % 3 == 0:
        del content[chance.randrange(len(content)) :]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    error = None
    try:
        assert load(TokenizerSource(file=str(path), eod="0")).vocab_size > 256
    except InvalidInput as caught:
        error = caught
    assert error is None or (error.findings[0].message and error.hint)


ODD = (None, True, 0, -1, 2**40, "", "a b c", [], {}, [None], {"type": "NFC"}, "Unigram", [["a"]])


def mutated(tokenizer: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The same with a value somewhere in it replaced or taken out."""
    made = json.loads(json.dumps(tokenizer))
    node: Any = made
    while True:
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        inner = node[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            node = inner
        elif chance.random() < 0.3:
            del node[key]
            return dict(made)
        else:
            node[key] = chance.choice(ODD)
            return dict(made)


@pytest.mark.parametrize("form", ["byte_level", "llama_like", "unigram"])
def test_odd_values_load_or_are_refused_with_a_finding(
    form: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer, refusals = request.getfixturevalue(form), 0
    path = tmp_path / "tokenizer.json"
    for seed in range(40):
        path.write_text(json.dumps(mutated(tokenizer, random.Random(seed))))
        try:
            loaded = load(TokenizerSource(file=str(path), eod="0"))
        except InvalidInput as caught:
            refusals += bool(caught.findings[0].message and caught.hint)
        else:
            ids, bounds = loaded.encode(documents_of(["the fox", ""]))
            assert bounds.tolist() == [0, len(ids), len(ids)]
            refusals += 1
    assert refusals == 40


def test_a_list_for_a_normalizer_is_not_left_to_gigatoken(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    from meshwright.data.tokens import admission

    assert "not known" in admission.refusal({**byte_level, "normalizer": [1]})
