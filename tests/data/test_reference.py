"""docs/reference/data.md leaves nothing out: keys, reasons, files, columns, fields."""

from __future__ import annotations

import re
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

from comments import comments_of
from data_reference import data_page
from meshwright.cli.data.build import build as command
from meshwright.cli.data.options import OPTIONS, flags
from meshwright.cli.main import run
from meshwright.data import mix, settings
from meshwright.data.reasons import KEPT, KEYS, REASONS
from meshwright.data.settings import Build
from meshwright.data.shards import manifest, names, tables
from meshwright.data.source.rejects import REJECTS
from meshwright.data.stages import layout

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def nouns(module: ModuleType) -> list[tuple[ModuleType, str]]:
    """The dataclasses of a module, not those it imports."""
    found = [n for n, noun in vars(module).items() if hasattr(noun, "__dataclass_fields__")]
    return [(module, n) for n in found if vars(module)[n].__module__ == module.__name__]


TABLES = [
    *nouns(settings),
    *nouns(manifest),
    (mix, "Blend"),
    (mix, "BlendSource"),
    (tables, "COLUMNS"),
    (tables, "TEXT_COLUMNS"),
    (layout, "ROW"),
    (layout, "PIECE"),
]


@pytest.fixture(scope="module")
def page() -> str:
    return data_page()


def section(page: str, head: str) -> str:
    """What stands below a heading, up to the next one of its rank."""
    mark = re.match("#+", head)
    assert mark
    _, _, rest = page.partition(f"\n{head}\n")
    return re.split(rf"^#{{1,{len(mark[0])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def keys_of(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)


def own_fields(module: ModuleType, noun: str) -> list[str]:
    """The names in a dataclass, a dictionary of columns or a record type."""
    found = getattr(module, noun)
    if hasattr(found, "__dataclass_fields__"):
        return [field.name for field in fields(found)]
    return list(getattr(found, "names", None) or found)


@pytest.mark.parametrize(
    ("module", "noun"), TABLES, ids=lambda part: getattr(part, "__name__", part)
)
def test_everything_has_a_comment(module: ModuleType, noun: str) -> None:
    comments = comments_of(module, noun)
    if noun == "Build":  # its tables speak for themselves
        comments |= {table: "a table" for table in comments if table not in ("seed", "validation")}
    assert [name for name in own_fields(module, noun) if not comments.get(name)] == []


def test_every_key_of_a_config_stands_below_its_table(page: str) -> None:
    assert keys_of(section(page, "### At the top")) == ["seed", "validation"]
    source = section(page, "### [input], or several [[source]]")
    assert keys_of(source) == own_fields(settings, "Source")
    for field in fields(Build):
        if field.name in ("sources", "seed", "validation"):
            continue
        noun = str(field.type).removesuffix(" | None")
        assert keys_of(section(page, f"### [{field.name}]")) == own_fields(settings, noun)


def test_every_flag_stands_in_the_page_and_in_the_help(page: str) -> None:
    spelled = {option for parameter in command.params for option in parameter.opts}
    for key, flag in flags().items():
        assert f"`{flag}`" in page, key
        assert flag.split()[0] in {*spelled, "FILES"}


def test_no_flag_that_is_a_setting_is_left_out() -> None:
    before = len(command.params) - len(OPTIONS)
    assert before > 0
    asked = {flag.split()[0] for flag in flags().values()} - {"FILES"}
    settings_flags = {"--" + name.replace("_", "-") for name in _option_names()}
    assert asked == settings_flags


def _option_names() -> list[str]:
    """The names of the options that OPTIONS gives to a command."""

    def bare() -> None:
        """Nothing."""

    for option in OPTIONS:
        option(bare)
    return [parameter.name for parameter in bare.__click_params__]  # type: ignore[attr-defined]


def test_every_reason(page: str) -> None:
    assert keys_of(section(page, "## Reasons")) == [*list(REASONS)[1:], *REJECTS]


def test_what_decides_a_reason_are_keys() -> None:
    assert KEYS.keys() == REASONS.keys() - {KEPT}
    known = {f"source.{name}" for name in own_fields(settings, "Source")}
    for field in fields(Build):
        noun = str(field.type).removesuffix(" | None")
        if hasattr(settings, noun):
            known |= {f"{field.name}.{name}" for name in own_fields(settings, noun)}
    assert {key for decided in KEYS.values() for key in decided} <= known


def test_every_rule_of_a_filter_decides_something() -> None:
    """But for those of C4 that remove lines."""
    lines = {"terminal_punctuation", "min_words_per_line", "max_word_length"}
    lines |= {"javascript_lines", "policy_lines"}
    wanted = {
        f"{table}.{name}"
        for table, noun in (
            ("gopher_quality", "GopherQuality"),
            ("gopher_repetition", "GopherRepetition"),
            ("c4", "C4"),
            ("fineweb", "FineWeb"),
        )
        for name in own_fields(settings, noun)
        if name not in lines
    }
    assert wanted <= {key for decided in KEYS.values() for key in decided}


def test_columns_and_fields(page: str) -> None:
    for head, module, noun in (
        ("### documents.parquet", tables, "COLUMNS"),
        ("### text-00000.parquet", tables, "TEXT_COLUMNS"),
        ("### train-00000.rows.npy", layout, "ROW"),
        ("### train-00000.pieces.npy", layout, "PIECE"),
    ):
        assert keys_of(section(page, head)) == own_fields(module, noun)
    found = keys_of(section(page, "### manifest.json"))
    assert found[: len(fields(manifest.Manifest))] == own_fields(manifest, "Manifest")
    for name, kind in manifest.Manifest.__annotations__.items():
        noun = re.search(r"[A-Z]\w+", str(kind).replace("Any", ""))
        if noun:
            below = [f.rpartition(".")[2] for f in found if re.match(rf"{name}\b.*\.", f)]
            assert below == own_fields(manifest, noun[0]), name


def test_a_real_folder_holds_what_the_page_says(tmp_path: Path) -> None:
    words = ["--id-field", "id", "--seq-len", "512", "--save-text", "--validation", "0.2"]
    words += ["--tokenizer", str(EXAMPLES / "tokenizer.json"), "--bad-fraction", "0.05"]
    words += ["--workers", "1", "--keep-work", "-q", "-o", str(tmp_path / "shards")]
    assert run(["data", "build", str(EXAMPLES / "raw.jsonl"), *words]) == 0
    there = [f"{p.name}/" if p.is_dir() else p.name for p in (tmp_path / "shards").iterdir()]
    assert [n for n in there if not any(fnmatch(n, known) for known in names.CONTENTS)] == []
    assert [k for k in names.CONTENTS if not any(fnmatch(n, k) for n in there)] == []


def test_explain_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "gopher_quality.words"]) == 0
    assert "gopher_quality.max_words: default 100000" in capsys.readouterr().out
    assert run(["explain", "too_long"]) == 0
    assert "rejected.jsonl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("gopher_quality.wrods", "gopher_quality.words"), ("near_duplicates", "near_duplicate")],
)
def test_a_mistyped_reason(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", typed]) == 2
    assert f"did you mean {meant}" in capsys.readouterr().err


@pytest.mark.parametrize("reason", [*list(REASONS)[1:], *REJECTS])
def test_every_reason_can_be_explained(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", reason, "--json"]) == 0
    assert (REASONS | REJECTS)[reason] in capsys.readouterr().out
