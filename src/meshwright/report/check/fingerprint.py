"""What makes a finding the same one after lines were added above it."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from meshwright.report.check.path import relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.base.finding import Finding
    from meshwright.report.check.texts import Texts


def fingerprints(findings: Iterable[Finding], texts: Texts) -> Iterator[tuple[Finding, str]]:
    """Each finding with a hash of its file, code and line of text, and of how many came before."""
    seen: Counter[str] = Counter()
    for finding in findings:
        line = texts.line(finding.file, finding.line) or finding.message
        name = relative(finding.file) if finding.file else ""
        key = "\0".join((name, finding.code, finding.key, " ".join(line.split())))
        seen[key] += 1
        yield finding, sha256(f"{key}\0{seen[key]}".encode(errors="replace")).hexdigest()[:32]
