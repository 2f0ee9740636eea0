"""A sample of the input: stretches spread evenly over all of it, none of them twice.

What belongs together (files of a source, of one format and compression) is sampled by itself, so
that a small source is not missed. Of plain files and parquet any stretch can be read; of compressed
ones only what lies near their beginning, as all before it must be decompressed. Text files that
are a document each are taken whole, one in so many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.source.division import is_whole
from meshwright.data.source.opening import expanded, reading
from meshwright.data.source.unit import UNIT_BYTES, Span, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.data.source.unit import Input
    from meshwright.data.stages.layout import Job

SHARE = 0.01
LEAST_BYTES, MOST_BYTES = 8 << 20, 256 << 20  # of the sample
PIECE_BYTES = 256 << 10  # of a stretch, at least
_PIECES = 128  # stretches, about, at most
_LEAST_OF_KIND = 2 << 20  # bytes
_REACH_BYTES = 32 << 20  # what may be passed over to come to a stretch
_FEW = 4  # stretches of what must be passed over
_FILES = 32  # whole ones, at least
_LOOKS = 32  # compressed files whose content is measured
_LOOK_BYTES = 4 << 20  # of it, as stored


class Kind(NamedTuple):
    """What is sampled together."""

    source: int
    format: str
    compression: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What one of the sample stands for."""

    documents: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Units that hold the sample, and how it is scaled to the whole."""

    units: tuple[Unit, ...]
    scales: Mapping[Kind, Scale]
    is_all: bool  # of the input


class _Stretch(NamedTuple):
    """What can be sampled: an input, or a row group of one."""

    input: int
    bytes: float  # of content
    size: int  # in what spans or their parts count: bytes, rows
    group: int = 0


def kind_of(found: Input) -> Kind:
    """What an input is sampled with."""
    return Kind(found.source, found.format, found.compression, is_whole(found))


def sample_of(job: Job) -> Sample:
    """The sample of a job's input, the same each time: all of it where that is not much.

    InvalidInput where a file cannot be opened or is damaged at its beginning.
    """
    stretches = list(_stretches(job.inputs))
    total = sum(stretch.bytes for stretch in stretches)
    kinds: dict[Kind, list[_Stretch]] = {}
    for stretch in stretches:
        kinds.setdefault(kind_of(job.inputs[stretch.input]), []).append(stretch)
    if total <= LEAST_BYTES:
        return Sample(
            units=job.units,
            scales={kind: Scale(documents=1, bytes=1) for kind in kinds},
            is_all=True,
        )
    share = min(max(LEAST_BYTES, SHARE * total), MOST_BYTES) / total
    spans: list[tuple[Span, float]] = []
    scales = {}
    for kind, some in kinds.items():
        taken = list(_files(some, share) if kind.is_whole else _pieces(job.inputs, some, share))
        own = sum(stretch.bytes for stretch in some) / max(1.0, sum(size for _, size in taken))
        count = len(some) / max(1, len(taken)) if kind.is_whole else own
        scales[kind] = Scale(documents=count, bytes=own)
        spans += taken
    spans.sort(key=lambda pair: (pair[0].input, pair[0].start, pair[0].part or (0, 0)))
    return Sample(units=tuple(_units(spans, job.inputs)), scales=scales, is_all=False)


def first_piece(job: Job, most_bytes: int) -> Unit | None:
    """A unit of no more than about `most_bytes` from where the input begins; None without input."""
    for stretch in _stretches(job.inputs[:1]):
        amount = min(1.0, most_bytes / max(1.0, stretch.bytes)) * stretch.size
        span = _span(job.inputs, stretch, start=0, stop=max(1, int(amount)))
        return Unit(number=0, spans=(span,), bytes=most_bytes)
    return None


def _stretches(inputs: Sequence[Input]) -> Iterator[_Stretch]:
    """All that there is to sample, in its order."""
    ratios = _expansions(inputs)
    for number, found in enumerate(inputs):
        if not found.bytes:
            continue
        if found.format == "parquet":
            yield from _row_groups(number, found)
        else:
            content = found.bytes * ratios.get((found.compression, number), 0.0)
            content = content or found.bytes * ratios.get((found.compression, -1), 1.0)
            yield _Stretch(number, content, max(1, int(content)))


def _row_groups(number: int, found: Input) -> Iterator[_Stretch]:
    from meshwright.data.source.footer import groups_of

    with reading(found.path) as file:
        for place, group in enumerate(groups_of(file, found.path)):
            if group.rows:
                yield _Stretch(number, max(1, group.bytes), group.rows, place)


def _expansions(inputs: Sequence[Input]) -> dict[tuple[str, int], float]:
    """Content over stored bytes of some compressed inputs by number; their means under -1."""
    found: dict[tuple[str, int], float] = {}
    for compression in sorted({one.compression for one in inputs if one.compression}):
        mine = [n for n, one in enumerate(inputs) if one.compression == compression and one.bytes]
        step = max(1, -(-len(mine) // _LOOKS))
        content = stored = 0.0
        for number in mine[::step]:
            ratio = _expansion(inputs[number])
            found[compression, number] = ratio
            content += ratio * inputs[number].bytes
            stored += inputs[number].bytes
        found[compression, -1] = content / max(1.0, stored)
    return found


def _expansion(found: Input) -> float:
    """Content over stored bytes, from the first `_LOOK_BYTES`."""
    with reading(found.path, found.stamp) as file:
        at = total = 0  # stored bytes whose content is known, and that content
        for chunk in expanded(file, found.path, found.compression):
            if file.tell() != at:
                if at >= _LOOK_BYTES:
                    return total / at
                at = file.tell()
            total += len(chunk)
    return total / max(1, found.bytes)


def _files(some: Sequence[_Stretch], share: float) -> Iterator[tuple[Span, float]]:
    """Files that are a document each, evenly."""
    count = min(len(some), max(_FILES, round(len(some) * share)))
    for place in range(count):
        stretch = some[int((place + 0.5) / count * len(some))]
        yield Span(stretch.input, 0, 1), stretch.bytes


def _pieces(
    inputs: Sequence[Input], some: Sequence[_Stretch], share: float
) -> Iterator[tuple[Span, float]]:
    """Stretches of files that can be cut, evenly over all that these hold; with their bytes."""
    ends = np.cumsum([stretch.bytes for stretch in some])
    total = float(ends[-1])
    wanted = min(total, max(share * total, _LEAST_OF_KIND))
    piece = max(PIECE_BYTES, wanted / _PIECES)
    count = max(1, round(wanted / piece))
    piece = min(piece, total / count)
    taken = np.zeros(len(some))
    pieces = np.zeros(len(some), dtype=np.int64)
    for place in range(count):
        at = (place + 0.5) / count * total - piece / 2
        first, last = np.searchsorted(ends, [at, at + piece])
        for number in range(int(first), min(int(last), len(some) - 1) + 1):
            start = float(ends[number]) - some[number].bytes
            taken[number] += max(0.0, min(at + piece, float(ends[number])) - max(at, start))
            pieces[number] += 1
    for number in np.flatnonzero(taken).tolist():
        yield from _spread(
            inputs, some[number], taken=float(taken[number]), count=int(pieces[number])
        )


def _spread(
    inputs: Sequence[Input], stretch: _Stretch, *, taken: float, count: int
) -> Iterator[tuple[Span, float]]:
    """`taken` bytes of something in so many pieces, as far apart as can be reached."""
    amount, reach = taken / stretch.bytes * stretch.size, float(stretch.size)
    found = inputs[stretch.input]
    if found.compression or found.format == "parquet":
        count = min(count, _FEW)
        per_byte = stretch.size / stretch.bytes
        reach = min(reach, max(4 * amount, _REACH_BYTES * per_byte))
    if amount >= 0.99 * stretch.size:
        count, amount, reach = 1, float(stretch.size), float(stretch.size)
    count = max(1, min(count, int(amount)))
    stride, length = reach / count, max(1, round(amount / count))
    for place in range(count):
        start = max(0, int(place * stride + (stride - length) / 2))
        span = _span(inputs, stretch, start=start, stop=min(start + length, stretch.size))
        yield span, length / stretch.size * stretch.bytes


def _span(inputs: Sequence[Input], stretch: _Stretch, *, start: int, stop: int) -> Span:
    """That part of something."""
    found, whole = inputs[stretch.input], stop - start >= stretch.size
    part = None if whole else (start, stop)
    if found.format == "parquet":
        return Span(stretch.input, stretch.group, stretch.group + 1, part)
    if is_whole(found):
        return Span(stretch.input, 0, 1)
    if found.compression:
        return Span(stretch.input, 0, 1, part)
    return Span(stretch.input, start, stop)


def _units(spans: Sequence[tuple[Span, float]], inputs: Sequence[Input]) -> Iterator[Unit]:
    """Units of one source each. Spans of one input may share one, as no line is named after."""
    held: list[Span] = []
    size = number = 0
    for span, own in spans:
        if held and (
            size + own > UNIT_BYTES or inputs[held[-1].input].source != inputs[span.input].source
        ):
            yield Unit(number=number, spans=tuple(held), bytes=int(size))
            held, size, number = [], 0, number + 1
        held.append(span)
        size += int(own)
    if held:
        yield Unit(number=number, spans=tuple(held), bytes=int(size))
