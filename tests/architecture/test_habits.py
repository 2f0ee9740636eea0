"""The house rules that a machine can hold: sizes, words, names, tests that mirror sources."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = sorted(p for folder in ("benchmarks", "scripts") for p in (ROOT / folder).rglob("*.py"))
LONGEST_FUNCTION, LONGEST_FILE = 60, 500

# Words that no file of the project may hold; written in pieces so that this file may.
MACHINE = re.compile("|".join(["/" + "work/", "/" + "tmp/[a-z]", "/" + "root/"]))


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS], ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_and_files_are_short(path):
    long = [
        f"{f.name}: {f.end_lineno - f.lineno + 1} lines"
        for f in functions(path)
        if f.end_lineno - f.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_say_what_they_mean(path):
    names = {n.name for n in functions(path)} - {"get_command"}  # click's own
    assert [n for n in sorted(names) if n.startswith(("get_", "do_"))] == []
    classes = re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert [c for c in classes if c.endswith(("Manager", "Helper", "Utils"))] == []
    assert path.stem not in {"utils", "helpers", "common", "misc"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_suppression_names_its_rule(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"type: ignore(?!\[)", text) == []
    assert re.findall(r"noqa(?!: [A-Z]+\d+)", text) == []


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_file_names_a_path_of_one_machine():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in MACHINE.finditer(text)]
    assert found == []


def test_every_package_has_tests_of_its_name():
    packages = {
        p.parent.relative_to(ROOT / "src/meshwright").parts[0]
        for p in SOURCES
        if p.parent != ROOT / "src/meshwright"
    }
    tested = {p.name for p in (ROOT / "tests").iterdir() if any(p.rglob("test_*.py"))}
    assert packages - tested == set()
