"""What `meshwright train` is told beside the plan: one frozen noun, and its form as JSON.

The launcher writes it once, and every rank of every attempt reads the same.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from pathlib import Path

SYNTHETIC = "synthetic"
LR_SCHEDULES = ("cosine", "wsd", "linear", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How parameters are updated.

    `schedule` is "cosine" (to `min_lr_ratio` of the peak), "wsd" (steady, then down over the last
    `decay_steps`; MiniCPM, arXiv 2404.06395, section 4), "linear" or "constant", each after
    `warmup_steps`. `clip_norm` 0 leaves gradients alone. `momentum` is that of Muon and SGD.
    """

    learning_rate: float = 3e-4
    min_lr_ratio: float = 0.1
    schedule: str = "cosine"
    warmup_steps: int = 0
    decay_steps: int = 0
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    momentum: float = 0.95
    clip_norm: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Where tokens come from.

    `source` is a folder of shards or a blend.toml of `meshwright data`, the prefix of a Megatron
    .bin/.idx pair, a text or .jsonl file (then `tokenizer` says how it is cut), or "synthetic".
    `evaluation` is a second source, or the validation split of the first.
    """

    source: str = SYNTHETIC
    tokenizer: str | None = None
    document_masks: bool = True
    shuffle: bool = True
    prefetch: int = 2
    evaluation: str | None = None
    evaluate_every: int = 0
    evaluate_steps: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """When checkpoints are written.

    `every_steps` 0 leaves it to Young and Daly, with -1 none is written but the `last`. `mtbf_s` is
    the mean time between failures of the whole job, None for an assumed one.
    """

    every_steps: int = 0
    keep: int = 3
    keep_every: int = 0
    asynchronous: bool = True
    mtbf_s: float | None = None
    last: bool = True  # a checkpoint after the last step


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """What is told of the run, and where; `profile` is the first and last step of a window."""

    every_steps: int = 1  # between progress lines; metrics.jsonl has every step
    in_place: bool = False  # the progress line is rewritten: the reader is a terminal
    tensorboard: bool = False
    wandb_project: str | None = None
    profile: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """When a run is stopped: `hang_s` without a step (0: never), losses that are no numbers.

    `nonfinite` is "stop", or "skip" (the update is left out, at most `nonfinite_limit` in a row).
    """

    hang_s: float = 1800.0
    grace_s: float = 60.0
    nonfinite: str = "skip"
    nonfinite_limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything but the job.

    `device` is torch's device type ("cuda", "cpu"), `backend` that of torch.distributed; None takes
    what the machine has. `weights` is a folder of safetensors to start from, None for random
    values by `seed`. `schedule_table` is a file of pipeline operations that replaces the plan's
    schedule. `dtype` overrides the plan's precision ("float64" for exact comparisons).
    """

    steps: int
    out: str
    seed: int = 0
    resume: bool = False
    device: str | None = None
    backend: str | None = None
    weights: str | None = None
    schedule_table: str | None = None
    dtype: str | None = None
    compile: bool = False
    deterministic: bool = False
    threads: int = 0  # of each rank; 0 = cores over ranks
    recipe: Recipe = field(default_factory=Recipe)
    feed: Feed = field(default_factory=Feed)
    saving: Saving = field(default_factory=Saving)
    telling: Telling = field(default_factory=Telling)
    guard: Guard = field(default_factory=Guard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cost model says of the run, to stand beside what is measured.

    `flops_per_token` are model FLOPs under `convention`; `peak_flops` is the dense peak of one
    device, None where the plan's cluster is not the machine that the run is on (then the predicted
    figures are None too).
    """

    flops_per_token: float
    convention: str
    peak_flops: float | None = None
    step_s: float | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A run as ranks read it: the text of a plan.toml, the keys of config.json, the run.

    `started_s` is when the command began, by the clock of time.time().
    """

    plan_toml: str
    config: dict[str, Any]
    run: Run
    expected: Expected | None = None
    started_s: float = 0.0


def write_spec(spec: Spec, path: Path) -> None:
    """Writes a specification as JSON, whole or not at all."""
    partial = path.with_suffix(".tmp")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(spec), indent=1))
    partial.replace(path)


def read_spec(path: Path) -> Spec:
    """The specification in a file that `write_spec` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Spec)
