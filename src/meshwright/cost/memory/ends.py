"""Embedding, final norm, head, logits and loss: parameters and bytes per micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.model.count import end_parameters

if TYPE_CHECKING:
    from meshwright.cost.memory.shape import Shape
    from meshwright.cost.memory.stack import MemoryStack
    from meshwright.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBytes:
    """What lies outside the blocks of a rank that holds it.

    `embedding` counts the parameters of the first stage's end, `head` those of the last stage's
    (a tied head is 0 here and `tied` there, the copy that a last stage of its own holds), `mtp` of
    one multi-token-prediction module. `whole_gradient` counts by how much the embedding's gradient
    exceeds its rank's share. `embedding_kept` and `head_kept` are bytes kept for the
    backward pass, `loss_peak` those alive at the fullest moment of the loss, `loss_kept` those of
    them that wait for the backward pass, `logit_gradients` what the head's backward pass reads,
    `hand_over` the hidden state between stages, `sequence_buffers` the stack's buffers of a whole
    sequence's hidden state under sequence parallelism.
    """

    embedding: Any
    head: Any
    tied: Any
    mtp: Any
    whole_gradient: Any
    embedding_kept: Any
    head_kept: Any
    loss_peak: Any
    loss_kept: Any
    logit_gradients: Any
    hand_over: Any
    sequence_buffers: Any


def end_bytes(job: Job, shape: Shape, stack: MemoryStack) -> EndBytes:
    """Parameters and bytes of the model's ends under the job's plan."""
    model, plan = job.model, job.plan
    counts = end_parameters(model)
    rows = np.where(plan.vocab_parallel, plan.tp, 1)
    wide = shape.tokens * model.hidden_size / shape.sequence_cut
    whole = counts.embedding * (1 - 1 / rows) if stack.whole_embedding_gradient else 0.0
    mtp_layers = max(sum(run.count for run in model.mtp), 1)
    embedding = counts.embedding / rows + counts.position_embedding + counts.embedding_norm
    masks = wide if stack.dropout else 0.0 * wide
    head_input = shape.element * shape.tokens * model.hidden_size / shape.gathered_cut
    logits = logit_count(job, shape)
    peak, kept = loss_bytes(job, logits, stack)
    return EndBytes(
        embedding=embedding + counts.embedding_projection + counts.extra,
        head=counts.head / rows + counts.final_norm + counts.head_projection + counts.head_bias,
        tied=(counts.embedding if model.tie_word_embeddings else 0) / rows,
        mtp=(counts.mtp_projection + counts.mtp_norms) / mtp_layers + 0.0 * wide,
        whole_gradient=np.where(np.asarray(plan.lora_rank) == 0, whole, 0.0) + 0.0 * wide,
        embedding_kept=masks + (shape.norm * wide if model.embedding_norm else 0.0),
        head_kept=(shape.norm * wide if model.final_norm else 0.0) + head_input,
        loss_peak=peak,
        loss_kept=kept,
        logit_gradients=shape.element * logits / np.maximum(plan.loss_chunks, 1),
        hand_over=shape.element * wide,
        sequence_buffers=np.where(
            shape.sequence_cut > 1,
            stack.sequence_buffers * shape.element * shape.tokens * model.hidden_size,
            0.0,
        ),
    )


def logit_count(job: Job, shape: Shape) -> Any:
    """Logits of one micro-batch on a rank, split over tp where the loss is parallel."""
    return shape.tokens * np.ceil(job.model.vocab_size / _loss_cut(job))


def _loss_cut(job: Job) -> Any:
    """Ranks that share the logits of a token."""
    plan = job.plan
    return np.where(np.asarray(plan.vocab_parallel) & plan.loss_parallel, plan.tp, 1)


def loss_bytes(job: Job, logits: Any, stack: MemoryStack) -> tuple[Any, Any]:
    """(bytes alive at the fullest moment of the loss, bytes that wait for the backward pass).

    Logits / chunks times the stack's bytes per logit. A chunked loss keeps the hidden state
    instead and makes each slice's logits again.
    """
    plan = job.plan
    chunks = np.maximum(plan.loss_chunks, 1)
    unfused = np.where(_loss_cut(job) > 1, stack.parallel_loss_bytes, stack.loss_bytes)
    per_logit = np.where(plan.fused_loss, stack.fused_loss_bytes, unfused)
    waiting = np.where(plan.fused_loss, np.minimum(2.0, per_logit), stack.loss_saved_bytes)
    return per_logit * logits / chunks, np.where(chunks > 1, 0.0, waiting * logits)
