"""The console blocks of the documentation are what the commands print today.

`make docs` writes them again after a change that is meant.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import transcripts

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_console_blocks_are_true(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "31")
    text = path.read_text(encoding="utf-8")
    assert transcripts.rerun(text) == text


def test_the_readme_runs_real_commands():
    commands = transcripts.commands(PAGES[0].read_text(encoding="utf-8"))
    assert commands[0].startswith("meshwright plan llama-3.1-70b --gpu H100:8 --nodes 8")
    assert len(commands) >= 2


def test_a_block_is_rerun_command_by_command():
    page = "a\n```console\n$ meshwright --version\nold\n$ meshwright \\\n    --version\n```\nb\n"
    fresh = transcripts.rerun(page)
    version = re.findall(r"^meshwright \d.*$", fresh, re.MULTILINE)
    assert len(version) == 2
    assert "old" not in fresh
    assert fresh.startswith("a\n```console\n$ meshwright --version\n")
    assert fresh.endswith("```\nb\n")
    assert transcripts.rerun(fresh) == fresh


def test_only_meshwright_is_run():
    with pytest.raises(ValueError, match="rm"):
        transcripts.rerun("```console\n$ rm x\n```\n")


def test_links_in_the_documentation_lead_somewhere():
    pages = [*PAGES, *(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 10
    assert [f"{p.name}: {link}" for p, link in links if not (p.parent / link).exists()] == []


def test_the_python_example_of_the_readme_runs():
    text = PAGES[0].read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names = {}
    exec(example, names)
    assert names["result"].best.plan.tp >= 1


def test_files_that_a_page_shows_are_there_for_its_commands():
    shown = "<!-- file: odd.toml -->\n```toml\n[plan]\ntp = 4.5\n```\n"
    page = f"{shown}```console\n$ meshwright predict odd.toml\n```\n"
    fresh = transcripts.rerun(page)
    assert "odd.toml:2:1" in fresh
    assert fresh.startswith(shown)
    assert transcripts.rerun(fresh) == fresh
