"""Which assumption, if wrong, changes the winner.

Each fitted parameter of the hardware and of the software stack is moved by its plausible factor,
the best plans of the search are costed again, and a new winner is reported with what staying with
the old one would cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.layers import layer_times
from meshwright.cost.step import combine
from meshwright.plan.stages import representative_stages, stage_layers
from meshwright.search.result import Swing

if TYPE_CHECKING:
    from meshwright.cost.calibration import Calibration
    from meshwright.plan.job import Job
    from meshwright.search.kept import Kept
    from meshwright.search.space import Options

WORTH_SAYING = 0.01  # regret below which a change of winner is noise
HARDWARE = {"matmul": 0.8, "memory": 0.8, "scale_up": 0.6, "scale_out": 0.5}
STACK = {"host_layer_s": 2.0, "overlap_dp": 0.3, "overlap_tp": 0.0, "ep_rate": 0.5, "p2p_rate": 0.5}
WORDS = {
    "matmul": "matrix products reach their measured rate",
    "memory": "memory-bound kernels reach their rate",
    "scale_up": "links inside the scale-up domain reach their rate",
    "scale_out": "the network between nodes reaches its rate",
    "host_layer_s": "the host launches a layer in its usual time",
    "overlap_dp": "gradient reduction hides behind the backward pass",
    "overlap_tp": "tensor-parallel communication hides behind products",
    "ep_rate": "all-to-all reaches its rate",
    "p2p_rate": "pipeline hand-overs reach their rate",
}


def swings(job: Job, best: Kept, settings: Options, calibration: Calibration) -> tuple[Swing, ...]:
    """Assumptions that change the winner when off by their factor, largest regret first."""
    columns = {name: np.asarray(values) for name, values in best.fields.items()}
    several = job.with_plan(settings.base.replace(**columns))
    ranks = representative_stages(several.plan, job.model)
    stages = [stage_layers(several, rank) for _, rank in ranks]
    found = []
    for name, factor, changed in _variants(job, calibration):
        layers = layer_times(several, changed)
        time = combine(several, layers, changed, peak_bytes=best.peak_bytes, stages=stages)
        step = np.broadcast_to(time.step_s, len(best))
        winner = int(np.argmin(step))
        regret = float(step[0] / step[winner] - 1.0)
        if regret > WORTH_SAYING:
            plan = settings.base.replace(**{n: c[winner].item() for n, c in columns.items()})
            found.append(Swing(assumption=WORDS[name], factor=factor, winner=plan, regret=regret))
    return tuple(sorted(found, key=lambda s: -s.regret))


def _variants(job: Job, calibration: Calibration) -> list[tuple[str, float, Calibration]]:
    """The calibration with one parameter moved, for each parameter in the tables above."""
    generation = job.cluster.gpu.generation
    hardware = calibration.hardware_fit(generation)
    stack = calibration.stack(job.stack)
    variants: list[tuple[str, float, Calibration]] = []

    def moved(entry: Any, name: str, factor: float) -> Any:
        return replace(entry, **{name: getattr(entry, name) * factor})

    for name, factor in HARDWARE.items():
        entries = {**calibration.hardware, generation: moved(hardware, name, factor)}
        variants.append((name, factor, replace(calibration, hardware=entries)))
    for name, factor in STACK.items():
        stacks = {**calibration.stacks, job.stack: moved(stack, name, factor)}
        variants.append((name, factor, replace(calibration, stacks=stacks)))
    return variants
