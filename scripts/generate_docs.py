"""Writes docs/reference from the code, and reruns the console blocks of README.md and docs/guides.

    python scripts/generate_docs.py           writes what is stale
    python scripts/generate_docs.py --check   lists what is stale and exits with 1

Accuracy figures (docs/accuracy.md) are written by `meshwright validate --write-docs`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.report.diagnosis.schema import schema
from meshwright.report.machine import indented
from reference import pages
from transcripts import rerun

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def wanted() -> Iterator[tuple[Path, str]]:
    """Every generated file with the text that it should have."""
    for name, text in pages().items():
        yield REFERENCE / f"{name}.md", text
    yield REFERENCE / "diagnose-schema.json", indented(schema())
    for path in (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))):
        yield path, rerun(path.read_text(encoding="utf-8"))


def leftover() -> list[Path]:
    """Pages of frameworks that are no more."""
    kept = {REFERENCE / f"{name}.md" for name in pages()}
    return [path for path in (REFERENCE / "frameworks").glob("*.md") if path not in kept]


def main(arguments: list[str]) -> int:
    """Writes or checks; 1 when a check finds something stale."""
    stale: list[tuple[Path, str | None]] = [(p, text) for p, text in wanted() if _read(p) != text]
    stale += [(path, None) for path in leftover()]
    for path, text in stale:
        print(f"stale: {path.relative_to(ROOT)}")
        if "--check" not in arguments:
            _write(path, text)
    if stale and "--check" in arguments:
        print("run `make docs`")
        return 1
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, text: str | None) -> None:
    """Writes a page, or removes one that is to have no text."""
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
