"""What traces say of a machine: curves, transfers, and what each figure rests on."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.trace.columns import Left
    from meshwright.hardware.cluster import Gpu
    from meshwright.hardware.curves import AttentionCurve, MatmulCurve
    from meshwright.hardware.measured import MemoryCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One figure: what it is of, its value in words' units, and what it rests on.

    `points` counts single kernels or collectives; `spread` is the median relative distance of
    shapes from the curve, or half the distance of the 10th from the 90th percentile over the
    median. `confidence` is "high", "medium" or "low".
    """

    what: str
    values: Mapping[str, float]
    points: int
    spread: float
    confidence: str
    sources: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Collectives of one kind, group size, place and size that can be trusted.

    `kind` as the cost model names it; `bytes` the whole tensor; `nodes` that the group touches
    (None unknown); `seconds` the median of the last to arrive.
    """

    kind: str
    size: int
    nodes: int | None
    bytes: float
    seconds: float
    points: int
    spread: float
    confidence: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePlan:
    """What was measured over what the plan's prediction has, where both are known.

    `between` is the ratio of the kernels that are neither products, attention nor the optimizer's,
    `update` that of the optimizer; `host_s` is what the device waits longer for the host in a step
    (on CPUs: what lies between operators). `stack` has the same as values of the software stack.
    """

    between: float | None = None
    update: float | None = None
    host_s: float | None = None
    stack: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What traces measured. Curves go by precision; shares are of the peaks of `gpu`.

    `gpu` is None for a device that no catalogue has. `hidden` is the share of transfers behind
    computation by axis, `beside_plan` what only the plan that ran gives a measure for. `left` says
    which figures were refused, and why.
    """

    gpu: Gpu | None
    gpu_name: str
    gpus_per_node: int
    num_gpus: int
    matmul: Mapping[str, MatmulCurve] = field(default_factory=dict)
    attention: Mapping[str, AttentionCurve] = field(default_factory=dict)
    memory: MemoryCurve | None = None
    transfers: tuple[Transfer, ...] = ()
    hidden: Mapping[str, float] = field(default_factory=dict)
    beside_plan: BesidePlan | None = None
    coefficients: tuple[Coefficient, ...] = ()
    left: tuple[Left, ...] = ()
