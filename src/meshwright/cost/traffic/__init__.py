"""Traffic of a plan in closed form: calls and bytes that every rank puts into every collective.

It describes the engine here (train/: FSDP2, DTensor, its own expert and context parallelism, torch
pipelining) exactly, call by call; `meshwright measure` reads the same off a fake process group. The
times of `cost.step` follow Megatron's pattern instead (`cost.volumes`), which most published runs
share.
"""

from __future__ import annotations

from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.pieces import pieces_of, traffic_of
from meshwright.cost.traffic.terms import traffic_terms

__all__ = ["Piece", "pieces_of", "traffic_of", "traffic_terms"]
