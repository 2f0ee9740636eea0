"""Parameters that one pipeline rank holds, by how the mesh cuts them.

The dense part (attention, MLPs, norms, embedding, head) is split over tp and replicated over
dp*cp; routed experts are split over etp and ep and replicated over expert data parallelism.
Numbers of parameters, columns over the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.model.architecture import block_matmuls
from meshwright.model.count import block_parameters, end_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.model.architecture import Block
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters on a rank before any data-parallel sharding."""

    dense: Any
    expert: Any

    @property
    def total(self) -> Any:
        """Dense and expert parameters."""
        return self.dense + self.expert


def rank_parameters(job: Job, stage: StageLayers) -> RankParameters:
    """All parameters of the rank."""
    plan, model = job.plan, job.model
    dense: Any = 0.0
    expert: Any = 0.0
    for block, count in zip(model.kinds, stage.counts, strict=True):
        p = block_parameters(block, model.hidden_size)
        dense = dense + count * (p.sharded / plan.tp + p.replicated)
        expert = expert + count * (p.experts_sharded / plan.etp + p.experts_replicated) / plan.ep
    ends = end_parameters(model)
    rows = np.where(plan.vocab_parallel, plan.tp, 1)
    spread = np.where(plan.vocab_over_pipeline, plan.pp, 1)
    head = ends.head or (ends.embedding if model.tie_word_embeddings else 0)
    tied_here = stage.embedding & stage.head if model.tie_word_embeddings else False
    on_first = np.where(plan.vocab_over_pipeline, True, stage.embedding)
    on_last = np.where(plan.vocab_over_pipeline, True, stage.head) & ~np.asarray(tied_here)
    dense = dense + (on_first * ends.embedding + on_last * head) / (rows * spread)
    dense = dense + stage.embedding * ends.position_embedding + stage.head * ends.mtp_projection
    return RankParameters(dense=dense, expert=expert)


def most_parameters(ranks: Sequence[RankParameters]) -> RankParameters:
    """The most that any of some ranks holds: it ends the step's reduction and optimizer last."""
    dense, expert = ranks[0].dense, ranks[0].expert
    for rank in ranks[1:]:
        dense, expert = np.maximum(dense, rank.dense), np.maximum(expert, rank.expert)
    return RankParameters(dense=dense, expert=expert)


def trained_share(job: Job) -> Any:
    """Share of the parameters that receive gradients: 1, or LoRA's adapters over the base."""
    plan = job.plan
    blocks = job.model.layers
    base = sum(_matrix_parameters(b, job.model.hidden_size) for b in set(blocks))
    adapters = sum(_adapter_width(b, job.model.hidden_size) for b in set(blocks))
    return np.where(plan.lora_rank > 0, plan.lora_rank * adapters / max(base, 1), 1.0)


def _matrix_parameters(block: Block, hidden_size: int) -> int:
    """Weights of the block's matrices."""
    return sum(m.in_features * m.out_features * m.copies for m in block_matmuls(block, hidden_size))


def _adapter_width(block: Block, hidden_size: int) -> int:
    """Adapter parameters per unit of rank on every linear layer outside the experts."""
    matmuls = block_matmuls(block, hidden_size)
    return sum(
        m.in_features + m.out_features for m in matmuls if m.group not in {"expert", "router"}
    )
