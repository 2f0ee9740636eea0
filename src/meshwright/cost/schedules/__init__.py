"""Pipeline schedules: operation lists per rank, closed forms for columns of plans.

Each schedule is one file of this folder that exports a `DEFINITION`; they are found by listing the
folder. `meshwright.cost.timeline` simulates the operation lists exactly.
"""

from __future__ import annotations

from meshwright.cost.schedules.catalogue import definition_of, definitions, describe
from meshwright.cost.schedules.closed_form import (
    bubble_share,
    chunk_of,
    chunks_per_rank,
    exact,
    num_stages,
    param_copies,
    pipeline_s,
    saved_microbatches,
)
from meshwright.cost.schedules.definition import Definition, Kind, Operation, Placement
from meshwright.cost.schedules.lists import operations

__all__ = [
    "Definition",
    "Kind",
    "Operation",
    "Placement",
    "bubble_share",
    "chunk_of",
    "chunks_per_rank",
    "definition_of",
    "definitions",
    "describe",
    "exact",
    "num_stages",
    "operations",
    "param_copies",
    "pipeline_s",
    "saved_microbatches",
]
