"""Text on which tokenizers go wrong: what a second implementation is tried with.

Generated from a seed, the same on every machine: all planes of Unicode, joiners, combining and
bidirectional marks, controls, line ends, blanks of every kind, long runs, digits, contractions in
odd capitals, mixed scripts, and the tokens of the vocabulary itself, special ones included.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BLANKS = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u2028"
_BLANKS += "\u2029\u202f\u205f\u2060\u3000\ufeff"
_MARKS = "\u0300\u0301\u0327\u034f\u0483\u0591\u064b\u0670\u093c\u094d\u0e31\u1ab0\u20d0\u20e3"
_MARKS += "\u3099\ufe0f\ufe0e\u200c\u200d\U000e0101\U0001f3fb\U0001f3ff"
_BIDI = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c"
_ODD = "\x00\x01\x1b\x7f\x80\x9f\xad\u0378\u1fff\ue000\uf8ff\ufdd0\ufffc\ufffd\ufffe\uffff"
_ODD += "\U0001fffe\U000e0001\U000f0000\U0010ffff\u2581\u0120\u010a\u0100\u0143\u01c5\u02b0"
_DIGITS = "0123456789\u0660\u0669\u06f3\u0966\u0e53\u2155\u2167\u2460\u3007\uff15\U0001d7ce\u00b2"
_CASED = "sSstTdDmMlLrReEvV\u017f\u212a\u0130\u0131\u01c5\u1e9e\ufb01\u03c2\u03a3"
_SCRIPTS = (
    (0x41, 0x7A),
    (0xC0, 0x24F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0xEFF),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x2BFF),
    (0x3000, 0x30FF),
    (0x3400, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFFFF),
    (0x10000, 0x1FFFF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2FFFF),
    (0xE0000, 0xE01FF),
)
FIXED = (
    "",
    " ",
    "\n",
    "\r\n\r\n  \r\n",
    "\x00",
    "a\x00b",
    "\ufeffBOM first",
    "don't DON'T Don\u2019T we'Ll I'M 'S 'x ''' '\u017f",
    "x  y   z    \n   w\t\t\tv \n \n\n end   ",
    "trailing \n ",
    "trailing\n\n",
    "trailing \t \r\n \t",
    "1 12 123 1234 12345 1234567890123456789012345678901234567890",
    "3.14,15-9/26:53 1e-10 0x1F \u0661\u0662\u0663\u0664 \u2460\u2461 \u00bd\u00b2",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627\u202c world",
    "e\u0301 \u00e9 a\u0308\u0323 \u1ea1\u0308 \u212b \u00c5 A\u030a \uac00 \u1100\u1161 \ufb01",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587\uff0cA\uff11\uff12 \u9fa6",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    'if (x>=0){return&y[i++];}//*** \\\\ "q" `b` #!/bin/sh\n\tpass\r\n',
    "https://example.org/a_b-c?d=%20&e#f user@example.org",
    "camelCaseHTTPServer SCREAMING_SNAKE iPhone McDonald \u01c5\u01c5a \u00c9COLE \u1e9e",
    "\u2581 \u2581\u2581a <0x0A> <0xFF> <unk> <s> </s> [UNK] [SEP] ##ing @@ </w>",
    "\u0120hello \u010a \u0100\u0101 \u00e2\u0122\u013b",
    "a" * 300,
    " " * 300,
    "\n" * 200,
    "=" * 150 + "-" * 77 + "\n" + "." * 99,
    "\U0010ffff\U000f0000\ue000\ufdd0\uffff\ufffe",
)


def samples(count: int, *, tokens: Sequence[str] = (), seed: int = 0) -> tuple[str, ...]:
    """`count` texts; where `tokens` are given, each of them stands in some, as far as they fit.

    The first are `FIXED`. Half of the rest are short, and a few have long runs.
    """
    chance = random.Random(seed)
    made = list(FIXED[:count])
    made += _around(tokens, chance, most=max(0, (count - len(made)) // 2))
    makers: tuple[Callable[[random.Random], str], ...] = (
        _any_plane, _one_script, _mixed, _blanks, _digits, _contractions, _run, _marked, _lines,
    )  # fmt: skip
    while len(made) < count:
        made.append(makers[len(made) % len(makers)](chance))
    return tuple(made)


def _around(tokens: Sequence[str], chance: random.Random, *, most: int) -> list[str]:
    """Tokens alone, glued together, between words and behind blanks."""
    made = []
    for place, token in enumerate(tokens[:most]):
        other = tokens[chance.randrange(len(tokens))]
        forms = (
            f"a{token}b {token} c\n{token}\n  {token}  d",
            f"{token}{token}{other}",
            f"{token[:-1]} {token[1:]} {token.upper()}{token.lower()} \u00e9{token}\u00e9",
            token,
        )
        made.append(forms[place % len(forms)])
    return made


def _pick(alphabet: str, chance: random.Random, *, most: int) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(1, most)))


def _scalar(chance: random.Random, low: int, high: int) -> str:
    """A character of the range that UTF-8 can hold."""
    code = chance.randint(low, high)
    return chr(code if not 0xD800 <= code <= 0xDFFF else code - 0x1000)


def _any_plane(chance: random.Random) -> str:
    return "".join(_scalar(chance, 0, 0x10FFFF) for _ in range(chance.randint(1, 24)))


def _word(chance: random.Random) -> str:
    low, high = chance.choice(_SCRIPTS)
    return "".join(_scalar(chance, low, high) for _ in range(chance.randint(1, 12)))


def _one_script(chance: random.Random) -> str:
    low, high = chance.choice(_SCRIPTS)
    length = chance.randint(1, 40)
    letters = (_scalar(chance, low, high) if chance.random() < 0.85 else " " for _ in range(length))
    return "".join(letters)


def _mixed(chance: random.Random) -> str:
    joins = (" ", "", "'", "-", "\u200d", "\n", "  ", _BLANKS[chance.randrange(len(_BLANKS))])
    return "".join(_word(chance) + chance.choice(joins) for _ in range(chance.randint(2, 8)))


def _joined(chance: random.Random, most: int, part: Callable[[], str]) -> str:
    return "".join(part() for _ in range(chance.randint(1, most)))


def _blanks(chance: random.Random) -> str:
    others = ("", "a", "1", "!", "\u4e2d", "\u0301")
    return _joined(chance, 8, lambda: _pick(_BLANKS, chance, most=6) + chance.choice(others))


def _digits(chance: random.Random) -> str:
    others = ("", " ", ".", ",", "a", "\n", "'s")
    return _joined(chance, 6, lambda: _pick(_DIGITS, chance, most=9) + chance.choice(others))


def _contractions(chance: random.Random) -> str:
    quotes = ("'", "\u2019", " '", "''")
    ends = ("", " ", "\n")

    def part() -> str:
        suffix = _pick(_CASED, chance, most=3)
        return _word(chance)[:4] + chance.choice(quotes) + suffix + chance.choice(ends)

    return _joined(chance, 6, part)


def _run(chance: random.Random) -> str:
    pool = _BLANKS + _ODD + _MARKS + "a0=-_.#\u4e2d\U0001f600"
    length = chance.choice((3, 17, 64, 65, 255, 400))
    return chance.choice(("", "x", " ")) + chance.choice(pool) * length + chance.choice(("", "y"))


def _marked(chance: random.Random) -> str:
    pool = _MARKS + _BIDI + _ODD

    def part() -> str:
        base = chance.choice((_word(chance)[:2], "a", " ", "\U0001f44d"))
        return base + _pick(pool, chance, most=4)

    return _joined(chance, 10, part)


def _lines(chance: random.Random) -> str:
    ends = ("\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\t\n\t", "\u2028", "\x85")
    return "".join(_word(chance)[:5] + chance.choice(ends) for _ in range(chance.randint(1, 8)))
