"""What a build changed in texts, in a line each: bytes that were not UTF-8, personal data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.check.visible import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.shards.manifest import Manifest

_FILES = 3  # that are named
_KINDS: Mapping[str, tuple[str, str]] = {
    "email": ("e-mail address", "e-mail addresses"),
    "ip": ("IP address", "IP addresses"),
    "phone": ("phone number", "phone numbers"),
    "iban": ("IBAN", "IBANs"),
}


def repair_lines(manifest: Manifest) -> Iterator[str]:
    """Nothing where all text was UTF-8 and no personal data was looked for."""
    files = [found for found in manifest.inputs if found.repaired]
    if files:
        total = sum(found.repaired for found in files)
        named = ", ".join(f"{harmless(one.path)} ({one.repaired:,})" for one in files[:_FILES])
        more = f" and {len(files) - _FILES:,} more files" if len(files) > _FILES else ""
        yield (
            f"{counted(total, ('document was', 'documents were'))} not UTF-8, what could not be "
            f"read became U+FFFD: {named}{more}"
        )
        yield "  if a file is Latin-1 or Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
    if manifest.masked:
        found = manifest.masked.items()
        parts = [counted(n, _KINDS.get(kind, (harmless(kind),) * 2)) for kind, n in found]
        yield f"masked: {', '.join(parts)}"


def counted(number: int, word: tuple[str, str]) -> str:
    """A number with the word for one or for several."""
    return f"{number:,} {word[number != 1]}"
