"""A corpus of real text, collected from what Debian and Python packages ship; no network is used.

    python benchmarks/corpus.py FOLDER [--mb 240] [--part-mb 20] [--root PATH ...]

Documentation, manual pages in every language, and sources of the Python libraries found below the
roots become `part-000.jsonl` and so on (fields text, id) with the first part also as `small.jsonl`.
The order is that of the paths' hashes, so each part is a sample of the whole. Real duplicates (the
same library in several environments, html beside txt) stay: they are what the build must find.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDINGS = frozenset({".txt", ".md", ".rst", ".html", ".htm", ".xml", ".py", ".pyi", ".rs", ".pm"})
ENDINGS |= frozenset({".pod", ".h", ".c", ".hpp", ".js", ".tex", ".texi", ".css", ".json", ".toml"})
SMALLEST_BYTES, LARGEST_BYTES = 200, 500_000
ROOTS = ("/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/share", sys.prefix)
LIBRARIES = ("/usr/lib/python3", sys.base_prefix)


def roots() -> tuple[str, ...]:
    """Where text lies on this machine."""
    found = [*ROOTS, *LIBRARIES, *(os.path.realpath(p) for p in sys.path if p)]
    rust = Path.home() / ".rustup" / "toolchains"
    pythons = Path.home() / ".pyenv" / "versions"
    return tuple(dict.fromkeys([*found, str(rust), str(pythons)]))


def paths(folders: tuple[str, ...]) -> list[str]:
    """Files that look like text, each real file once, in the order of their hashes."""
    found: set[str] = set()
    for folder in folders:
        for base, _, names in os.walk(folder):
            for name in names:
                stem = name.removesuffix(".gz")
                manual = "/man/" in base and name.endswith(".gz")
                if manual or os.path.splitext(stem)[1].lower() in ENDINGS or stem == "changelog":
                    found.add(os.path.realpath(os.path.join(base, name)))
    return sorted(found, key=lambda path: hashlib.blake2b(path.encode(), digest_size=8).digest())


def read(path: str) -> str | None:
    """The text of a file; None when it is none, or of an odd size."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
        if not SMALLEST_BYTES <= len(raw) <= LARGEST_BYTES or b"\0" in raw:
            return None
        return raw.decode()
    except (OSError, EOFError, ValueError):
        return None


def documents(folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Path and text of every document."""
    for path in paths(folders):
        text = read(path)
        if text is not None:
            yield path, text


def collect(folder: Path, *, mb: float, part_mb: float, folders: tuple[str, ...] = ()) -> float:
    """Writes the parts; returns the MB of text in them (less than `mb` when no more is found)."""
    folder.mkdir(parents=True, exist_ok=True)
    total, part, number = 0, 0, 0
    out = (folder / "part-000.jsonl").open("w", encoding="utf-8")
    for path, text in documents(folders or roots()):
        size = len(text.encode())
        if part and part + size > part_mb * 1e6:
            out.close()
            number, part = number + 1, 0
            out = (folder / f"part-{number:03d}.jsonl").open("w", encoding="utf-8")
        out.write(json.dumps({"text": text, "id": Path(path).name}, ensure_ascii=False) + "\n")
        total, part = total + size, part + size
        if total >= mb * 1e6:
            break
    out.close()
    (folder / "small.jsonl").write_bytes((folder / "part-000.jsonl").read_bytes())
    return total / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb", type=float, default=240.0)
    parser.add_argument("--part-mb", type=float, default=20.0)
    parser.add_argument("--root", action="append", default=[])
    chosen = parser.parse_args()
    found = collect(chosen.folder, mb=chosen.mb, part_mb=chosen.part_mb, folders=tuple(chosen.root))
    print(f"{found:.1f} MB in {chosen.folder}")
    return 0 if found >= chosen.mb * 0.99 else 1


if __name__ == "__main__":
    raise SystemExit(main())
