"""What is known of a step, as it stands in metrics.jsonl."""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One step; `step` counts from 1, samples are those of all ranks, last excluded.

    `tokens` are positions of the batch, `labels` those of them that count for the loss. `step_s` is
    from the end of the step before to the end of this one, evaluation and saving left out: those
    are `evaluate_s` and `save_s`. `data_wait_s` and `memory_bytes` are the largest of all ranks, of
    the step before this one. `loss` is None where it was no number.
    """

    step: int
    loss: float | None
    learning_rate: float
    grad_norm: float | None
    updated: bool
    first_sample: int
    last_sample: int
    tokens: int
    labels: int
    step_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float | None
    memory_bytes: float
    data_wait_s: float
    time_s: float  # by the clock
    attempt: int = 0
    evaluation_loss: float | None = None
    evaluate_s: float | None = None
    save_s: float | None = None
