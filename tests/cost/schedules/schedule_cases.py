"""Shared by the tests of schedules: every schedule, even stages, simulation of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from meshwright.cost.schedules import definition_of, operations, pipeline_s
from meshwright.cost.timeline import Durations, Timeline, peak_in_flight, simulate
from meshwright.plan.plan import Schedule


@dataclass(frozen=True)
class Pipeline:
    """One schedule on one pipeline; times are those of a whole rank."""

    schedule: Schedule
    pp: int
    vpp: int
    num_microbatches: int

    @property
    def definition(self):
        return definition_of(self.schedule, vpp=self.vpp)

    @property
    def chunks(self):
        return self.definition.chunks or self.vpp

    @property
    def parts(self):
        """Chunks that one micro-batch passes on a rank (DualPipe: one of the two)."""
        return self.chunks // self.definition.param_copies

    def operations(self):
        return operations(
            self.schedule, pp=self.pp, vpp=self.vpp, num_microbatches=self.num_microbatches
        )

    def seconds(self, forward_s=1.0, backward_s=1.0, weight_s=1.0):
        """Equal chunks, shape [pp, chunks, 3]."""
        chunk = np.array([forward_s, backward_s, weight_s]) / self.parts
        return np.tile(chunk, (self.pp, self.chunks, 1))

    def run(self, seconds, **durations) -> Timeline:
        return simulate(
            self.operations(),
            Durations(seconds=seconds, **durations),
            placement=self.definition.placement,
        )

    def held(self, weight_share=1.0):
        """Peak of held activations by rank, in micro-batches."""
        return peak_in_flight(self.operations(), weight_share=weight_share) / self.parts

    def closed_s(self, seconds, **transfers) -> float:
        """The closed form for `seconds[rank, chunk, kind]`."""
        per_rank = seconds.sum(axis=1) / self.definition.param_copies
        slowest = per_rank[per_rank.sum(axis=1).argmax()]
        names = ("forward_s", "backward_s", "weight_s")
        return float(
            pipeline_s(
                self.schedule,
                pp=self.pp,
                vpp=self.vpp,
                num_microbatches=self.num_microbatches,
                **dict(zip(names, slowest, strict=True)),
                **{f"total_{n}": t for n, t in zip(names, per_rank.sum(axis=0), strict=True)},
                **transfers,
            )
        )


KINDS = [
    (Schedule.GPIPE, 1),
    (Schedule.GPIPE, 3),
    (Schedule.ONE_F_ONE_B, 1),
    (Schedule.ONE_F_ONE_B, 2),
    (Schedule.ONE_F_ONE_B, 5),
    (Schedule.ZB_H1, 1),
    (Schedule.ZB_H2, 1),
    (Schedule.ZB_V, 2),
    (Schedule.V_HALF, 2),
    (Schedule.DUALPIPE, 2),
    (Schedule.DUALPIPE_V, 2),
]


@st.composite
def pipelines(draw, kinds=tuple(KINDS), max_microbatches=40):
    """Any schedule on up to eight ranks with any number of micro-batches."""
    schedule, vpp = draw(st.sampled_from(kinds))
    even_only = schedule == Schedule.DUALPIPE
    pp = draw(st.sampled_from([2, 4, 6, 8] if even_only else [1, 2, 3, 4, 5, 6, 7, 8]))
    return Pipeline(schedule, pp, vpp, draw(st.integers(1, max_microbatches)))


kind_seconds = st.tuples(st.floats(0.3, 3.0), st.floats(0.3, 3.0), st.floats(0.1, 3.0))

# an input gradient takes about as long as the forward pass (twice that with recomputation), a
# weight gradient somewhat less
usual_seconds = st.tuples(st.just(1.0), st.floats(0.8, 2.2), st.floats(0.4, 1.1))
