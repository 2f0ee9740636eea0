"""Reading of test files whole, as their documents with true lines and what was set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from meshwright.data.settings import Limits, Source
from meshwright.data.source.division import lines_before, plan_units
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.reading import read_unit
from meshwright.data.source.unit import Input

LIMITS = Limits()


class Read(NamedTuple):
    """What reading gave: (input, line, text), names, (input, line, reason) and excerpts."""

    documents: list[tuple[int, int, str]]
    ids: list[str]
    rejected: list[tuple[int, int, str]]
    excerpts: list[bytes]
    units: int

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.documents]


def _read_inputs(
    inputs: tuple[Input, ...],
    sources: Sequence[Source],
    *,
    limits: Limits = LIMITS,
    unit_bytes: int = 16 << 20,
) -> Read:
    units = plan_units(inputs, unit_bytes=unit_bytes)
    counts, batches, bad = [], [], []
    for unit in units:
        count: list[int] = []
        rejected: list = []
        batches.append(
            list(
                read_unit(
                    unit,
                    inputs,
                    sources=sources,
                    limits=limits,
                    reject=rejected.append,
                    count=count.append,
                )
            )
        )
        bad.append(rejected)
        counts.append(count)
    read = Read([], [], [], [], len(units))
    for before, documents, rejected in zip(lines_before(units, counts), batches, bad, strict=True):
        for batch in documents:
            rows = zip(batch.input.tolist(), batch.line.tolist(), batch.strings(), strict=True)
            read.documents.extend((i, line + before[i], text) for i, line, text in rows)
            read.ids.extend(batch.ids)
        read.rejected.extend((r.input, r.line + before[r.input], r.reason) for r in rejected)
        read.excerpts.extend(r.excerpt for r in rejected)
    return read


@pytest.fixture(scope="session")
def read_inputs() -> Callable[..., Read]:
    """Reads inputs that are listed already."""
    return _read_inputs


@pytest.fixture
def read(tmp_path) -> Callable[..., Read]:
    """Writes one file and reads it."""

    def reading(
        name: str,
        content: bytes,
        *,
        limits: Limits = LIMITS,
        unit_bytes: int = 16 << 20,
        **settings: str,
    ) -> Read:
        path = tmp_path / name
        path.write_bytes(content)
        sources = (Source(files=(str(path),), **settings),)
        return _read_inputs(list_inputs(sources), sources, limits=limits, unit_bytes=unit_bytes)

    return reading
