"""Writes src/meshwright/data/words/characters.txt, the classes and case folds of characters.

Needs `pip install unicodedata2 regex`. The table is kept in the repository so that a build gives
the same words under every Python, whatever version of Unicode that has.

    python scripts/characters.py > src/meshwright/data/words/characters.txt
"""

from __future__ import annotations

import sys
from itertools import groupby

import regex
import unicodedata2

_UNSPACED = (
    "Han Hiragana Katakana Bopomofo Thai Lao Khmer Myanmar Tai_Le New_Tai_Lue Tai_Tham Tai_Viet"
)
_OF_UNSPACED = regex.compile("|".join(rf"\p{{sc={script}}}" for script in _UNSPACED.split()))
_WITH_UNSPACED = regex.compile("|".join(rf"\p{{scx={script}}}" for script in _UNSPACED.split()))
_CJK = 0x3000  # from here on, signs that scripts share belong to the unspaced ones
_TERMINAL = regex.compile(r"\p{Sentence_Terminal}")
_JOINERS = {0xAD, 0x200C, 0x200D}  # soft hyphen, zero width (non-)joiner: inside of words
_BULLETS = {0x2022, 0x2023, 0x2043, 0x2219, 0x25E6, 0x25AA, 0x25CF, 0x25CB}
_CLOSING = set(map(ord, "“」』"))  # beside those of category Pf
_BY_CATEGORY = {"L": "letter", "M": "mark", "N": "number", "Z": "space", "P": "punct"}


def kind(code: int) -> str:
    """The class of one character beyond ASCII."""
    character, category = chr(code), unicodedata2.category(chr(code))
    if code in _JOINERS:
        return "mark"
    if code == 0x85:
        return "space"
    if code == 0x2026:
        return "ellipsis"
    if code in _BULLETS:
        return "bullet"
    if _TERMINAL.match(character):
        return "terminal"
    if category == "Pf" or code in _CLOSING:
        return "quote"
    unspaced = _WITH_UNSPACED if code >= _CJK else _OF_UNSPACED
    if category[0] in "LMN" and category != "Nd" and unspaced.match(character):
        return "unspaced_mark" if category[0] == "M" else "unspaced"
    if category[0] == "S":
        return "symbol"
    return _BY_CATEGORY.get(category[0], "other")


def folded(code: int) -> int:
    """Its simple case fold."""
    for form in (chr(code).casefold(), chr(code).lower()):
        if len(form) == 1:
            return ord(form)
    return code


def main() -> None:
    version = unicodedata2.unidata_version
    sys.stdout.write(f"# Unicode {version}, by scripts/characters.py: first code, class\n")
    codes = range(0x80, sys.maxunicode + 1)
    for name, run in groupby(codes, kind):
        sys.stdout.write(f"{next(run):x} {name}\n")
    sys.stdout.write("# case folds: first code, last code, step, what is added\n")
    folds = [(code, folded(code) - code) for code in codes if folded(code) != code]
    while folds:
        first, added = folds[0]
        step = 2 if (first + 1, added) not in folds[:2] else 1
        taken = 1
        while taken < len(folds) and folds[taken] == (first + taken * step, added):
            taken += 1
        last = first + (taken - 1) * step
        sys.stdout.write(f"{first:x} {last:x} {step} {added}\n")
        folds = folds[taken:]


if __name__ == "__main__":
    main()
