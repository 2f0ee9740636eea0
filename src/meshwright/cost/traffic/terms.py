"""Traffic as named terms: traffic.stage<rank>.<axis>.<collective>.<part>, in bytes a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cost.terms import Term
from meshwright.cost.traffic.pieces import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.cost.traffic.flows import Piece
    from meshwright.plan.job import Job

ROOT = "traffic"
COUNTED = (
    "bytes of the full tensor of every call: what an all-gather puts out, what a reduce-scatter, "
    "all-reduce or all-to-all takes in, what is sent or received"
)


def traffic_terms(job: Job) -> dict[str, Term]:
    """The traffic of one plan (scalars), every pipeline stage's first rank; parents are sums.

    `calls` and `call_bytes` stand among the operands of the leaves.
    """
    terms: dict[str, Term] = {}
    for rank in range(int(job.plan.pp)):
        terms |= _stage(f"{ROOT}.stage{rank}", pieces_of(job, rank))
    fullest = max((t.value for n, t in terms.items() if n.count(".") == 1), default=0.0)
    return {ROOT: _sum(fullest, "the stage with the most"), **terms}


def _stage(prefix: str, pieces: Iterable[Piece]) -> dict[str, Term]:
    """One stage's tree, parents before children."""
    leaves: dict[str, Term] = {}
    for piece in pieces:
        name = f"{prefix}.{piece.axis}.{piece.collective}.{piece.part}"
        leaves[name] = _leaf(piece, leaves.get(name))
    totals: dict[str, float] = {}
    for name, leaf in leaves.items():
        parts = name.split(".")
        for depth in range(2, 5):
            parent = ".".join(parts[:depth])
            totals[parent] = totals.get(parent, 0.0) + leaf.value
    parents = {name: _sum(value, "sum of its parts") for name, value in totals.items()}
    return dict(sorted({**parents, **leaves}.items()))


def _leaf(piece: Piece, before: Term | None) -> Term:
    """A piece as a term, added to an equal one of another stage of the rank or kind of layer."""
    calls, value = piece.calls, piece.total_bytes
    if before is not None:
        calls, value = calls + before.operands["calls"], value + before.value
    return Term(
        value=value,
        unit="bytes",
        formula=piece.formula,
        source=piece.source,
        evidence="exact",
        operands={**piece.operands, "calls": calls, "call_bytes": value / calls if calls else 0.0},
    )


def _sum(value: float, formula: str) -> Term:
    return Term(value=value, unit="bytes", formula=formula, source=COUNTED, evidence="exact")
