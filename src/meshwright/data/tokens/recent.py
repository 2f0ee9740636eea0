"""Characters that are newer than some library's Unicode.

Two libraries agree about the classes of characters only if their tables are of one version of
Unicode. gigatoken 0.10 takes Unicode 17 for DeepSeek's expression and for NFC, tokenizers 0.23
Unicode 16: they split 4,788 characters otherwise. A document that holds a character assigned since
Unicode 14, or none at all, is one that such a vocabulary leaves to its reference.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.data.tokens.vocabulary import Ids

# Assigned after Unicode 14.0 and up to 18.0 (DerivedAge.txt of the Unicode Character Database).
_SINCE_14 = (
    "558 58b-58c 5c8-5c9 88f 897 b53-b54 c5c cdc cf3 ece 1acf-1af0 1b4e-1b4f 1b7f 1c89-1c8a 208f "
    "209d-209f 20c1-20c4 2427-2429 2b96 2e60-2e63 2ffc-2fff 31e4-31e5 31ef a7cb-a7cf a7d2 a7d4 "
    "a7da-a7dd a7e2 a7f1 ab6c-ab6d fbc3-fbd2 fd90-fd91 fdc8-fdce 105c0-105f3 107bb-107bf "
    "10940-10959 10d40-10d65 10d69-10d85 10d8e-10d8f 10ec2-10ec7 10ec9-10eee 10ef0-10eff "
    "1123f-11241 11380-11389 1138b 1138e 11390-113b5 113b7-113c0 113c2 113c5 113c7-113ca "
    "113cc-113d5 113d7-113d8 113e1-113e2 116d0-116e3 11b00-11b0a 11b60-11b67 11bc0-11be1 "
    "11bf0-11bf9 11db0-11ddb 11de0-11de9 11df0-11df1 11f00-11f10 11f12-11f3a 11f3e-11f5a 1246f "
    "12475-1247f 12550-12686 1342f 13439-13455 13460-143fa 16100-16139 16d40-16d79 16ea0-16eb8 "
    "16ebb-16ed3 16ff2-16ff6 187f8-187ff 18cd6-18cda 18cff 18d09-18d20 18d80-18df2 18e00-19191 "
    "191a0-191d2 1b123-1b128 1b132 1b155 1b168 1cc00-1ccfc 1cd00-1ceb3 1ceba-1ced0 1ced2-1ced4 "
    "1cedd-1cefd 1d127-1d128 1d1eb-1d1ff 1d250-1d281 1d2c0-1d2d3 1d6a6 1db00-1db1c 1df1f-1df81 "
    "1df90-1df96 1dfcd-1dfff 1e030-1e06d 1e08f 1e4d0-1e4f9 1e5d0-1e5fa 1e5ff 1e6c0-1e6de "
    "1e6e0-1e6f5 1e6fe-1e6ff 1f1ae 1f6d8-1f6d9 1f6dc 1f774-1f77f 1f7d9-1f7db 1f7f1-1f7ff "
    "1f8b2-1f8bb 1f8c0-1f8c1 1f8d0-1f8d8 1fa54-1fa57 1fa75-1fa77 1fa87-1fa8f 1faad-1faaf "
    "1fabb-1fabf 1fac6 1fac8 1facc-1facf 1fada-1fadd 1fadf 1fae8-1faeb 1faef 1faf7-1fafa "
    "1fbcb-1fbef 1fbfa 2b739-2b73f 2b81e 2cea2-2cead 2ebf0-2ee5d 31350-33479 3d000-3fc3f "
)
_CODES = 0x110000
_FIRST_LEAD = 0xC2  # bytes from here on begin a character of several
_PROBED = 24  # characters of a long range that are tried
_PROBES = 16  # in a text


def ranges() -> Iterator[range]:
    """The characters assigned after Unicode 14, as ranges."""
    for part in _SINCE_14.split():
        first, _, last = part.partition("-")
        yield range(int(first, 16), int(last or first, 16) + 1)


def probes() -> Iterator[str]:
    """Texts in which such characters stand beside letters, digits, signs, blanks and themselves
    (which normalization may compose)."""
    chosen = [code for span in ranges() for code in span[:: 1 + len(span) // _PROBED]]
    forms = [f" {chr(code)}a{chr(code) * 2}1!{chr(code)}" for code in chosen]
    for start in range(0, len(forms), _PROBES):
        yield "\n".join(forms[start : start + _PROBES])


def unsettled(text: bytes, ids: Ids) -> bool:
    """Whether a text holds a character that some library may not know."""
    del ids
    if text.isascii():
        return False
    found = np.frombuffer(text, dtype=np.uint8)
    leads = np.flatnonzero(found >= _FIRST_LEAD)
    keys = (found[leads].astype(np.int32) << 6) | (found[leads + 1] & 0x3F)
    codes, starts = _tables()
    if not starts[keys].any():
        return False
    return bool(codes[np.frombuffer(text.decode().encode("utf-32-le"), dtype="<u4")].any())


@lru_cache(maxsize=1)
def _tables() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which characters are unsettled, and which first two bytes some of them begin with."""
    codes = np.zeros(_CODES, dtype=np.bool_)
    for code in range(0x40000):
        codes[code] = unicodedata.category(chr(code)) == "Cn"
    codes[0xE0000:0xE1000] = True
    for span in ranges():
        codes[span.start : span.stop] = True
    codes[0xD800:0xE000] = False
    starts = np.zeros(256 << 6, dtype=np.bool_)
    for code in np.flatnonzero(codes).tolist():
        first, second = chr(code).encode()[:2] if code > 0x7F else (0, 0)
        starts[(first << 6) | (second & 0x3F)] = True
    return codes, starts
