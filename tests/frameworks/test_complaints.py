"""Every code of what is wrong with a file has a title, and somebody who tells it."""

from __future__ import annotations

import re
from pathlib import Path

from meshwright.frameworks import complaints

SOURCES = Path(complaints.__file__).parents[1]


def test_every_code_has_a_title_and_somebody_who_tells_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    titled = re.compile(r'^    "(CFG\d{3})": "', re.MULTILINE)
    told = {code for t in texts for code in re.findall(r'"(CFG\d{3})"', titled.sub("", t))}
    assert told == set(complaints.CODES)
