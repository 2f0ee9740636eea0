"""How much of each input may be unreadable: judged as soon as a file is read to its end."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.words import shown
from meshwright.data.shards.names import REJECTED, printable
from meshwright.data.source.jsonl import is_missing, texts_in
from meshwright.data.source.records import records_of
from meshwright.data.source.rejects import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.stages.layout import Job

_SHOWN = 3  # bad lines in the error
_SHOWN_FIELDS = 8
_LOOKED_AT = 1000  # records, for one that lacks the field of the text


class Judge:
    """Adds up what was read and rejected of each input, unit by unit."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._left: dict[int, set[int]] = {}
        for unit in job.units:
            for span in unit.spans:
                self._left.setdefault(span.input, set()).add(unit.number)
        self._units = {number: sorted(units) for number, units in self._left.items()}
        self._read: dict[int, int] = {}
        self._rejected: dict[int, int] = {}

    def hear(self, number: int) -> None:
        """A scan unit is done; InvalidInput when a file is over the limit now."""
        record = self.job.store.record("scan", number) or {}
        for name, counts in record.get("inputs", {}).items():
            found = int(name)
            self._read[found] = self._read.get(found, 0) + int(counts["read"])
            self._rejected[found] = self._rejected.get(found, 0) + int(counts["rejected"])
            self._left[found].discard(number)
            if not self._left[found]:
                self._judge(found)

    def _judge(self, found: int) -> None:
        rejected = self._rejected[found]
        total = self._read[found] + rejected
        if rejected > self.job.build.limits.bad_fraction * total:
            raise self._too_many(found, rejected, total)

    def _too_many(self, found: int, rejected: int, total: int) -> InvalidInput:
        path, limit = self.job.inputs[found].path, self.job.build.limits.bad_fraction
        message = (
            f"{rejected:,} of {total:,} documents cannot be read ({rejected / total:.1%}); "
            f"the limit is {limit:.1%}"
        )
        needed = min(1.0, float(f"{rejected / total * 1.05:.2g}"))
        hint = f"mend the file, or accept this much: --bad-fraction {needed:g}"
        first = next(self._bad(found), None)
        if first is not None and first[0]["reason"] == "missing":
            hint = f"name the field of the text: --text-field NAME{self._fields(found)}"
        if first is not None and first[0]["reason"] == "encoding":
            hint += "; if it is Latin-1: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
        examples = [
            Finding(
                message=_bad_line(bad),
                severity=Severity.INFO,
                file=path,
                line=bad["line"] + ahead,
            )
            for bad, ahead in islice(self._bad(found), _SHOWN)
        ]
        return InvalidInput([Finding(message=message, file=path, hint=hint), *examples])

    def _fields(self, found: int) -> str:
        """The fields that hold text in the first record without the one asked for."""
        source, limits = self.job.inputs[found], self.job.build.limits
        wanted = self.job.build.sources[source.source].text_field
        try:
            for record in islice(records_of(source, limits), _LOOKED_AT):
                if isinstance(record, dict) and is_missing(record, wanted):
                    there = texts_in(record)
                    listed = ", ".join(map(printable, there[:_SHOWN_FIELDS])) or "none"
                    return f"; those with text are {listed}{', ...' * (len(there) > _SHOWN_FIELDS)}"
        except MeshwrightError:  # a line that cannot be read comes first
            pass
        return ""

    def _bad(self, found: int) -> Iterator[tuple[dict[str, Any], int]]:
        """The bad lines of one input, each with the lines that lie before its unit's stretch."""
        path, ahead = printable(self.job.inputs[found].path), 0
        for number in self._units[found]:
            file = self.job.store.folder("scan", number) / REJECTED
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    record = json.loads(line)
                    if record["file"] == path:
                        yield record, ahead
            counts = (self.job.store.record("scan", number) or {})["lines"]
            spans = self.job.units[number].spans
            ahead += sum(
                count for span, count in zip(spans, counts, strict=True) if span.input == found
            )


def _bad_line(bad: Mapping[str, Any]) -> str:
    """Why a line is bad, and how it begins."""
    reason = REJECTS.get(bad["reason"], bad["reason"])
    return f"{reason}: {shown(bad['excerpt'])}" if bad["excerpt"] else reason
