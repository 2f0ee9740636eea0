"""`data stats`, `data verify` and `data show`: what they print of a folder, whole or damaged."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_shards import settings, texts, write_corpus

from meshwright.cli.main import run
from meshwright.data.building import build
from meshwright.data.settings import GopherQuality, Limits
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.stats import lengths_of, stats
from meshwright.report.shards import packing_lines


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    assert run(["data", *map(str, arguments)]) == code
    return capsys.readouterr()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole build; no test changes it."""
    root = tmp_path_factory.mktemp("built")
    corpus = write_corpus(root / "raw" / "a.jsonl", texts(200))
    with corpus.open("a", encoding="utf-8") as file:
        file.write("{not json\n")
    changes: dict[str, Any] = {
        "limits": Limits(bad_fraction=0.5),
        "gopher_quality": GopherQuality(min_words=10, min_stop_words=0),
    }
    build(settings(root, [corpus], **changes), workers=1, engine="inline")
    return root / "out"


@pytest.fixture
def built(out: Path, tmp_path: Path) -> Path:
    """The same build, to damage at will."""
    shutil.copytree(out, tmp_path / "out")
    return tmp_path / "out"


# stats


def test_stats_say_what_there_is(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "stats", out).out
    manifest = read_manifest(out)
    assert f"{out}: " in text
    assert "rows of 64 tokens, packed by best-fit, .bin holds rows" in text
    assert "best-fit (used)" in text
    assert "equal to an earlier document" in text
    assert "too few or too many words" in text
    assert "1 more could not be read: rejected.jsonl" in text
    assert f"{sum(manifest.counts.values()):,} documents read" in text
    assert "most repeated:" in text
    assert "train, tokens a document: mean" in text
    assert "valid, tokens a document: mean" in text
    assert text.splitlines()[-1] == f"next: meshwright data verify {out}"


def test_stats_as_json(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(printed(capsys, "stats", out, "--json").out)
    manifest = read_manifest(out)
    train = next(split for split in record["splits"] if split["split"] == "train")
    assert train["tokens"] == sum(shard.tokens for shard in manifest.of_split("train"))
    assert train["rows"] * 64 == train["tokens"] + train["padding"]
    assert train["fill"] == pytest.approx(train["tokens"] / train["rows"] / 64)
    assert sum(train["lengths"]["histogram"].values()) == train["documents"]
    assert record["counts"]["kept"] == manifest.counts[""]
    assert record["rejected"] == 1
    assert record["strategies"]["concatenate"]["cut"] > record["strategies"]["best-fit"]["cut"]


def test_stats_agree_with_the_manifest(out: Path) -> None:
    found = stats(out)
    best_fit = found.manifest.strategies["best-fit"]
    assert sum(split.rows for split in found.splits) == best_fit.rows
    assert sum(split.padding for split in found.splits) == best_fit.padding
    assert sum(split.cut for split in found.splits) == best_fit.cut
    assert all(split.imbalance >= 1 for split in found.splits)


def test_lengths() -> None:
    found = lengths_of({1: 2, 2: 1, 3: 1, 4: 5, 1000: 1})
    assert found is not None
    assert found.mean == pytest.approx(102.7)
    assert found.percentiles == {1: 1, 10: 1, 25: 2, 50: 4, 75: 4, 90: 4, 99: 1000}
    assert found.histogram == {1: 2, 2: 1, 4: 6, 1024: 1}
    assert found.longest == 1000
    assert lengths_of({}) is None


def test_the_packing_in_lines(out: Path) -> None:
    used, *others = packing_lines(read_manifest(out))
    assert used.startswith("  best-fit pads ")
    assert others[0].startswith("  concatenate would pad ")
    assert others[1].startswith("  padded would pad ")


def test_stats_of_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = printed(capsys, "stats", tmp_path, code=2).err
    assert "manifest.json cannot be read: No such file" in error
    assert "meshwright data build makes such a folder" in error


def test_stats_of_text_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", texts(20))
    build(replace(settings(tmp_path, [corpus]), tokenizer=None), workers=1, engine="inline")
    text = printed(capsys, "stats", tmp_path / "out").out
    assert "cleaned text of 18 documents" in text


# verify


def test_verify_says_that_all_is_well(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "verify", out).out
    assert text.startswith(f"{out} is whole: ")
    assert "documents encoded again" in text
    record = json.loads(printed(capsys, "verify", out, "--json", "--sample", "0").out)
    assert record["whole"]
    assert record["findings"] == []
    assert record["encoded_again"] == 0


def test_verify_names_what_is_damaged(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = built / "train-00000.bin"
    path.write_bytes(path.read_bytes()[:-3])
    text = printed(capsys, "verify", built, code=1).out
    assert "error: train-00000.bin ends at byte" in text
    assert str(path) in text
    assert "help: " in text
    assert f"1 finding in {built}" in text
    record = json.loads(printed(capsys, "verify", built, "--json", code=1).out)
    assert [finding["file"] for finding in record["findings"]] == [str(path)]


def test_foreign_files_alone_do_not_fail(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / "notes.txt").write_text("x")
    assert "warning: notes.txt is not in the manifest" in printed(capsys, "verify", built).out


def test_no_command_stumbles_over_a_damaged_folder(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(3)
    files = sorted(p for p in built.rglob("*") if p.is_file() and p.name != ".build.json")
    commands = (["stats"], ["verify"], ["show", "--row", "2"], ["show", "--read", "a.jsonl:3"])
    for _ in range(60):
        path = rng.choice(files)
        whole = path.read_bytes()
        start, length = rng.randrange(len(whole)), rng.choice([1, 1, 30, 10**6])
        damage = [whole[:start], whole[:start] + whole[start + length :]]
        damage.append(whole[:start] + rng.randbytes(length % 5000) + whole[start + length :])
        path.write_bytes(rng.choice(damage))
        for command in commands:
            code = run(["data", command[0], str(built), *command[1:]])
            captured = capsys.readouterr()
            assert code in (0, 1, 2)
            assert "internal error" not in captured.err, (path, command, captured.err)
            if command == ["verify"] and path.read_bytes() != whole:
                assert code == 1
        path.write_bytes(whole)


# show


def test_show_a_row(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", out, "--row", "5", "--characters", "0").out
    record = json.loads(printed(capsys, "show", out, "--row", "5", "--json").out)
    assert text.startswith("row 5 of ")
    corpus = texts(200)
    for part in record["parts"]:
        origin = part["origin"]
        document = corpus[origin["line"] - 1]
        assert f"{origin['input']}:{origin['line']} (doc-{origin['line'] - 1})" in text
        whole = document + "<|endoftext|>"
        assert part["text"] in whole
        if part["offset"] == 0:
            assert whole.startswith(part["text"])
    assert sum(len(part["ids"]) for part in record["parts"]) + record["padding"] == 64


def test_show_ids(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(printed(capsys, "show", out, "--json").out)
    text = printed(capsys, "show", out, "--ids").out
    assert " ".join(map(str, record["parts"][0]["ids"])) in text


def test_show_a_document(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "valid"):
        arguments = ("show", out, "--document", "4", "--split", split, "--json")
        record = json.loads(printed(capsys, *arguments).out)
        parts = record["parts"]
        document = texts(200)[parts[0]["origin"]["line"] - 1]
        assert "".join(part["text"] for part in parts) == document + "<|endoftext|>"
        rows = (json.loads(printed(capsys, "show", out, "--row", part["row"], "--split", split,
                                   "--json").out) for part in parts)  # fmt: skip
        for part, row in zip(parts, rows, strict=True):
            assert part in row["parts"]


def test_long_pieces_are_shortened(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", out, "--row", "3", "--characters", "12").out
    assert "characters ...]" in text


def test_show_what_became_of_a_document(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = printed(capsys, "show", out, "--read", "a.jsonl:1").out
    number = kept.rsplit(maxsplit=1)[1]
    split = kept.split("--split ")[1].split()[0]
    arguments = ("show", out, "--document", number, "--split", split, "--json")
    record = json.loads(printed(capsys, *arguments).out)
    assert record["parts"][0]["origin"]["line"] == 1
    dropped = printed(capsys, "show", out, "--read", "a.jsonl:9").out
    assert "dropped: exact_duplicate" in dropped
    assert "a.jsonl:4, similarity 1.00" in dropped
    assert f"kept: next: meshwright data show {out} --split {split} --document" in kept


def test_show_that_a_line_was_set_aside(
    out: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    place = f"a.jsonl:{record['line']}"
    told = printed(capsys, "show", out, "--read", place).out
    assert "{not json" in told
    assert "set aside: not valid JSON (rejected.jsonl)" in told
    found = json.loads(printed(capsys, "show", out, "--read", place, "--json").out)
    assert found["set_aside"] is True
    assert (found["line"], found["reason"]) == (record["line"], "json")
    (built / "rejected.jsonl").write_text("[]\n")
    assert "rejected.jsonl" in printed(capsys, "show", built, "--read", place, code=2).err


def test_show_what_became_of_a_document_where_there_are_no_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names as short as a user's
    Path("a.jsonl").write_text('{"text":"one"}\n{"text":"one"}\n')
    printed(capsys, "build", "a.jsonl", "-o", "out", "--quiet")
    kept = printed(capsys, "show", "out", "--read", "a.jsonl:1").out
    assert "kept: its text is in text-*.parquet" in kept
    dropped = printed(capsys, "show", "out", "--read", "a.jsonl:2").out
    assert "dropped: exact_duplicate" in dropped
    assert "a.jsonl:1, similarity 1.00" in dropped
    told = printed(capsys, "stats", "out").out
    assert "a.jsonl:2 one..." in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--row", "100000"), "type --row 0 to"),
        (("--row", "-1"), "type --row 0 to"),
        (("--document", "100000"), "type --document 0 to"),
        (("--row", "1", "--document", "1"), "exclude each other"),
        (("--read", "a.jsonl:99999"), "no document was read"),
        (("--read", "a.jsonl"), "is not FILE:LINE"),
        (("--read", "jsonl:1"), "no document was read"),
        (("--read", ":1"), "is not FILE:LINE"),
    ],
)
def test_what_there_is_not(
    out: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    error = printed(capsys, "show", out, *arguments, code=2).err
    assert says in error
    assert "hint: " in error


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "a.jsonl", ["red \u202e text " * 9, "more \u009b31m " * 9])
    build_settings = replace(settings(tmp_path, [corpus]), validation=0.0)
    build(build_settings, workers=1, engine="inline")
    for arguments in (("stats",), ("show", "--row", "0"), ("show", "--row", "1")):
        text = printed(capsys, arguments[0], tmp_path / "out", *arguments[1:]).out
        assert "\u202e" not in text
        assert "\u009b" not in text


@pytest.mark.parametrize("command", ["stats", "verify", "show"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, command, "--help").out
    assert f"meshwright data {command} shards/" in text
    assert "Examples:" in text
