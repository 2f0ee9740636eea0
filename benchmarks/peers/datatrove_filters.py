"""datatrove's filters over documents, each by itself.

    python datatrove_filters.py INPUT.jsonl OUTPUT.json

Writes, for each filter with datatrove's defaults, its reason to drop each document ("" = kept) and
the CPU seconds it took; imports and a first document are taken off. Needs datatrove and spacy.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)

FILTERS = {
    "gopher_quality": GopherQualityFilter,
    "gopher_repetition": GopherRepetitionFilter,
    "c4": C4QualityFilter,
    "fineweb": FineWebQualityFilter,
}


def reason(judge: Any, text: str) -> str:
    """Why the filter drops a text; what it raises when it cannot judge one."""
    try:
        verdict = judge.filter(Document(text=text, id=""))
    except (ZeroDivisionError, ValueError) as error:
        return type(error).__name__
    return "" if verdict is True else "dropped" if verdict is False else verdict[1]


def main() -> None:
    source, output = map(Path, sys.argv[1:])
    texts = [json.loads(line)["text"] for line in source.open(encoding="utf-8")]
    found = {}
    for name, kind in FILTERS.items():
        judge = kind()
        reason(judge, "Something to load the splitter of words.\n" * 20)
        start = time.process_time()
        reasons = [reason(judge, text) for text in texts]
        found[name] = {"reasons": reasons, "cpu_s": time.process_time() - start}
    output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
