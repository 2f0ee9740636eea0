"""config.toml: every mistake at once with its place, units, paths, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.reading import Override, parse_build, read_build, write_build
from meshwright.data.settings import (
    C4,
    Build,
    Decontaminate,
    Dedup,
    FineWeb,
    GopherQuality,
    GopherRepetition,
    Language,
    Limits,
    Mix,
    Output,
    Pack,
    Pii,
    Source,
    TokenizerSource,
)

SMALLEST = '[input]\nfiles = ["raw/*.jsonl"]\n[output]\nfolder = "shards"\n'


def refusal(text: str, **given) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        parse_build(text, **given)
    return [f"{found.location} {found.message} | {found.hint}" for found in refused.value.findings]


def test_smallest_file() -> None:
    assert parse_build(SMALLEST) == Build(
        sources=(Source(files=("raw/*.jsonl",)),), output=Output(folder="shards")
    )


def test_every_mistake_at_once_with_its_place() -> None:
    text = """\
seed = "one"
[input]
files = ["a.jsonl"]
formt = "jsonl"
[limits]
document_bytes = "64M"
bad_fraction = true
[pakc]
seq_len = 1
[output]
folder = "shards"
"""
    assert refusal(text) == [
        "config.toml:1:1 seed = 'one': is not a whole number | write it as 8",
        "config.toml:4:1 input.formt = 'jsonl': is no key of this table | did you mean format?",
        "config.toml:6:1 limits.document_bytes = '64M': has no unit after 'M' | "
        "write a size such as 80GiB (2^30) or 80GB (10^9)",
        "config.toml:7:1 limits.bad_fraction = true: is not a number | write it as 1.5",
        "config.toml:8:1 pakc = {'seq_len': 1}: is no key of this table | did you mean pack?",
    ]


def test_values_that_do_not_go_together_are_told_where_each_is_right() -> None:
    text = """\
input.files = ["a"]
output.folder = "b"
[gopher_quality]
min_words = 10
max_words = 5
[dedup]
bands = 100
rows = 6
"""
    low, hashes = refusal(text)
    assert low.startswith("config.toml:4:1")
    assert "makes 600 hashes a document; at most 512" in hashes


def test_weights_that_leave_nothing_for_another_source() -> None:
    text = """\
[[source]]
name = "web"
files = ["a.jsonl"]
weight = 2
[[source]]
name = "code"
files = ["b.jsonl"]
[tokenizer]
file = "t.json"
[output]
folder = "out"
"""
    (only,) = refusal(text)
    assert only.startswith("config.toml:4:1")
    assert "add up to 2, which leaves nothing for code | give every source a weight" in only
    for fine in ("weight = 0.5\n", ""):
        parse_build(text.replace("weight = 2\n", fine))
    parse_build(text.replace('["b.jsonl"]', '["b.jsonl"]\nweight = 3'))


def test_every_value_out_of_range_at_once() -> None:
    text = """\
validation = 1.0
[[source]]
name = "web"
files = []
[[source]]
name = "web"
files = ["b.jsonl"]
weight = -1
[language]
keep = ["en", "gerrman"]
[pii]
kinds = ["email", "fone"]
[gopher_quality]
min_words = 10
max_words = 5
max_bullet_lines = 1.5
[dedup]
bands = 100
rows = 6
threshold = 0
[pack]
seq_len = 1
strategy = "bestfit"
[output]
folder = ""
"""
    found = refusal(text)
    places = [line.split()[0].removeprefix("config.toml:") for line in found]
    assert places == [
        "1:1", "4:1", "6:1", "8:1", "10:15", "12:19", "16:1", "20:1", "22:1", "23:1", "25:1",
    ]  # fmt: skip
    assert "pii.kinds.1 = 'fone': is none of the choices | did you mean phone?" in found[5]
    assert found[9].endswith("did you mean best-fit?")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("limits.document_bytes", '"1MiB"', 1 << 20),
        ("dedup.memory_bytes", '"2GiB"', 2 << 30),
        ("output.shard_tokens", '"256M"', 256_000_000),
        ("pack.seq_len", '"8Ki"', 8192),
        ("pack.seq_len", '"4k"', 4096),
        ("pack.seq_len", '"4K"', 4096),
        ("pack.seq_len", '"4,096"', 4096),
        ("pack.seq_len", '"1m"', 1 << 20),
        ("mix.tokens", '"1.5T"', 1.5e12),
        ("pack.seq_len", "4096", 4096),
    ],
)
def test_sizes_and_counts_as_text(key: str, text: str, value: float) -> None:
    table, _, name = key.partition(".")
    lines = SMALLEST if table == "output" else f"{SMALLEST}[{table}]\n"
    found = getattr(getattr(parse_build(f"{lines}{name} = {text}\n"), table), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('"5%"', "write 0.05, without quotes"),
        ('"0.1"', "write 0.1, without quotes"),
        ('"a few"', "write a number, as 0.05"),
        ('"1e999"', "write a number, as 0.05"),
        ("true", "write it as 1.5"),
    ],
)
def test_a_share_in_words(text: str, hint: str) -> None:
    (found,) = refusal(f"validation = {text}\n{SMALLEST}")
    assert found.endswith(f"| {hint}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("output.shard_tokens = 256e6", "write it as 256000000"),
        ("pack.seq_len = 4096.0", "write it as 4096"),
        ('gopher_quality.min_words = "50"', "write it as 50"),
        ("validation = 5", "write it as 0.05"),
        ("validation = 1.5", "write it as 0.001"),
        ("validation = 1.0", "write it as 0.001"),
        ("validation = -1", "write it as 0.001"),
    ],
)
def test_the_number_that_was_meant_is_suggested(line: str, hint: str) -> None:
    (found,) = refusal(f'input.files = ["a"]\noutput.folder = "b"\n{line}\n')
    assert found.endswith(f"| {hint}")


def test_half_a_token_is_none() -> None:
    assert "is not a whole number" in refusal(f'{SMALLEST}shard_tokens = "0.5"\n')[0]


def test_paths_are_relative_to_the_file_and_one_text_is_a_list(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[input]\nfiles = "raw/*.jsonl"\n[tokenizer]\nfile = "/abs/t.json"\n'
        '[decontaminate]\nfiles = ["s3://bucket/x", "../eval.jsonl"]\n[output]\nfolder = "out/"\n'
    )
    build = read_build(config)
    assert build.sources[0].files == (f"{tmp_path}/raw/*.jsonl",)
    assert build.tokenizer is not None
    assert build.tokenizer.file == "/abs/t.json"
    assert build.decontaminate is not None
    assert build.decontaminate.files == ("s3://bucket/x", f"{tmp_path.parent}/eval.jsonl")
    assert build.output.folder == f"{tmp_path}/out/"


def test_an_empty_table_takes_a_step_with_its_defaults() -> None:
    build = parse_build(f"{SMALLEST}[gopher_quality]\n[pii]\n")
    assert build.gopher_quality == GopherQuality()
    assert build.pii == Pii()
    assert build.c4 is None


def test_flags_win_and_are_named_when_wrong(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"{SMALLEST}[pack]\nseq_len = 512\n[c4]\nmin_sentences = 2\n")
    flags = (
        Override("input.files", ["x.jsonl"], "FILES"),
        Override("pack.seq_len", 1024, "--seq-len"),
        Override("c4", {}, "--filters"),
        Override("fineweb", {}, "--filters"),
    )
    build = read_build(config, overrides=flags)
    assert build.sources[0].files == ("x.jsonl",)
    assert build.pack.seq_len == 1024
    assert build.c4 == C4(min_sentences=2)
    assert build.fineweb == FineWeb()
    wrong = (Override("pack.strategy", "bestfit", "--pack"),)
    with pytest.raises(InvalidInput) as refused:
        read_build(config, overrides=wrong)
    (finding,) = refused.value.findings
    assert finding.message == "--pack 'bestfit': is none of the choices"
    assert finding.location == ""


def test_a_flag_for_the_input_goes_to_every_source(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[[source]]\nname = "a"\nfiles = "a.jsonl"\n[[source]]\nname = "b"\nfiles = "b.jsonl"\n'
        '[output]\nfolder = "o"\n'
    )
    build = read_build(config, overrides=[Override("input.text_field", "body", "--text-field")])
    assert [source.text_field for source in build.sources] == ["body", "body"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "input is missing"),
        ("[input]\nfiles = 3\n", "is not a list"),
        ('[input]\nfiles = ["a"]\n[[source]]\nfiles = ["b"]\n', "stands beside [[source]]"),
        ("[[source]]\n", "source.0.files is missing"),
        ("source = 3\n", "input is missing"),
        ("pack = 3\n", "is not a table"),
        ("[input\n", "not valid TOML"),
    ],
)
def test_other_shapes_are_findings(text: str, said: str) -> None:
    assert any(said in line for line in refusal(text))


shares = st.floats(0, 1)
BUILDS = st.builds(
    Build,
    sources=st.lists(
        st.sampled_from(["raw/*.jsonl", "/abs/x.gz", "s3://bucket/c", "../up/", "-"]),
        min_size=1,
        max_size=3,
    ).map(
        lambda names: tuple(
            Source(files=(name, "b"), name=f"s{place}", weight=place + 0.5)
            for place, name in enumerate(names)
        )
    ),
    output=st.builds(Output, folder=st.just("out"), text=st.booleans()),
    tokenizer=st.none() | st.builds(TokenizerSource, file=st.just("t.json"), eod=st.text()),
    limits=st.builds(Limits, bad_fraction=shares),
    language=st.none() | st.builds(Language, keep=st.just(("en", "de")), min_score=shares),
    gopher_quality=st.none() | st.builds(GopherQuality, max_bullet_lines=shares),
    gopher_repetition=st.none() | st.builds(GopherRepetition, top_2_gram=shares),
    c4=st.none() | st.builds(C4, lorem_ipsum=st.booleans()),
    pii=st.none() | st.just(Pii(kinds=("ip",))),
    dedup=st.builds(Dedup, near=st.booleans(), bands=st.integers(15, 80)),
    decontaminate=st.none() | st.just(Decontaminate(files=("e.jsonl",), fields=("q", "a"))),
    pack=st.builds(Pack, seq_len=st.integers(2, 10**6), strategy=st.just("best-fit")),
    mix=st.builds(Mix, tokens=st.none() | st.floats(1, 1e15)),
    seed=st.integers(0, 2**63 - 1),
    validation=st.floats(0, 0.99),
)


@given(BUILDS)
def test_what_is_written_reads_back(build: Build) -> None:
    assert parse_build(write_build(build)) == build


def test_a_file_for_another_folder_names_the_same_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    build = Build(sources=(Source(files=("raw/a.jsonl",)),), output=Output(folder="shards"))
    config = tmp_path / "conf" / "config.toml"
    config.write_text(write_build(build, folder="conf"))
    assert read_build("conf/config.toml") == build
