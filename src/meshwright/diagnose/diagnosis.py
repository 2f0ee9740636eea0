"""The answer of `diagnose`: ranks, what lies between them, causes, and what was left out."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.logs.noun import MemorySnapshot, NcclLog
    from meshwright.diagnose.pipeline.noun import Pipeline
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Left
    from meshwright.plan.job import Job

CLASSES = (  # of causes, as in the mission's document; the host stands beside them
    "model structure",
    "data processing",
    "compute resources",
    "communication",
    "host",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One piece of evidence: a sentence with its figures, and where in the traces it shows."""

    text: str
    events: tuple[str, ...] = ()  # names of events
    start_us: float | None = None
    dur_us: float | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """What to change: in words, and as changes of a plan that `plan` and `check` understand.

    `changes` has fields of a plan or keys of plan.toml ("recompute": "selective"); `command` is
    what to type. `gain_s` is what a step would gain, `basis` how that is known ("what-if on
    the critical path", "predicted from the plan", "the share that is lost").
    """

    text: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    gain_s: float | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that costs a run time: rule code, class, what it costs, evidence, lever.

    `lost_us` is time of one step that could be had back at most, `share` its share of the step.
    `rank_specific` are the ranks that cause it, empty for all of them.
    """

    code: str
    title: str
    kind: str  # one of CLASSES
    lost_us: float
    share: float
    message: str
    evidence: tuple[Proof, ...]
    lever: Lever
    ranks: tuple[int, ...] = ()
    confidence: str = "high"  # high, medium, low
    source: str = ""
    guards: tuple[str, ...] = ()  # what lowers the confidence, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One term of a plan's prediction beside what the traces show, in seconds a step."""

    term: str
    predicted_s: float
    measured_s: float | None
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that causes are judged on."""

    ranks: tuple[Rank, ...] = ()
    across: Across | None = None
    pipeline: Pipeline | None = None  # traces of whole operations
    metrics: Mapping[str, Any] | None = None  # of meshwright's own metrics.jsonl
    memory: tuple[MemorySnapshot, ...] = ()
    nccl: tuple[NcclLog, ...] = ()
    job: Job | None = None
    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The whole answer. `summary`: what a step takes, what of it is lost, what to do."""

    summary: tuple[str, ...]
    step_us: float | None
    lost_us: float | None
    principal: str
    second: str | None
    evidence: Evidence
    causes: tuple[Cause, ...]
    guards: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
