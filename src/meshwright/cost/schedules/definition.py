"""What a pipeline schedule is: the nouns that every file of this folder fills in.

A schedule is a list of operations per pipeline rank, and beside it two closed forms: the seconds it
takes beyond `num_microbatches` times the slowest rank's work, and the micro-batches whose
activations a rank holds at once. The closed forms broadcast over columns of plans.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.plan.plan import Schedule

Column = Any  # a number, or a NumPy column of numbers


class Kind(IntEnum):
    """What an operation computes."""

    FORWARD = 0
    BACKWARD = 1  # the input gradient alone
    WEIGHT = 2  # the weight gradient alone
    FULL_BACKWARD = 3  # both at once; the input gradient leaves when both are done


class Operation(NamedTuple):
    """One pass of one micro-batch through one chunk of layers of a rank.

    `joined` marks an operation that runs mutually overlapped with the next one of its rank: both
    wait for both inputs, and both results leave at the end of the pair (DualPipe's F&B).
    """

    kind: Kind
    microbatch: int
    chunk: int
    joined: bool = False


class Placement(IntEnum):
    """Which stage of the model a rank's chunk holds."""

    LOOPED = 0  # chunk c of rank r is stage c*pp + r
    V = 1  # two chunks: stage r, then 2*pp - 1 - r
    BOTH_WAYS = 2  # two copies of the model in opposite directions: stage r, and pp - 1 - r


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Pipeline ranks, chunks per rank and micro-batches: integers or columns."""

    pp: Column
    vpp: Column
    num_microbatches: Column


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per micro-batch over all chunks of a rank: the slowest rank's, and summed over ranks.

    `backward_s` is the input gradient, `weight_s` the weight gradient; a schedule that does not
    split them adds them up. `ranks_after` counts the ranks behind the slowest one.
    """

    forward_s: Column
    backward_s: Column
    weight_s: Column
    total_forward_s: Column
    total_backward_s: Column
    total_weight_s: Column
    ranks_after: Column = 0

    @property
    def slowest_s(self) -> Column:
        """Seconds of one micro-batch on the slowest rank."""
        return self.forward_s + self.backward_s + self.weight_s

    @property
    def others_s(self) -> Column:
        """Seconds of one micro-batch on all ranks but the slowest."""
        total = self.total_forward_s + self.total_backward_s + self.total_weight_s
        return total - self.slowest_s

    @property
    def others_forward_s(self) -> Column:
        """Forward seconds of one micro-batch on all ranks but the slowest."""
        return self.total_forward_s - self.forward_s

    @property
    def others_input_s(self) -> Column:
        """Forward and input-gradient seconds on all ranks but the slowest."""
        return self.others_forward_s + self.total_backward_s - self.backward_s

    @property
    def others_weight_s(self) -> Column:
        """Weight-gradient seconds of one micro-batch on all ranks but the slowest."""
        return self.total_weight_s - self.weight_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One schedule.

    `operations(pp, vpp, num_microbatches)` lists the operations of each rank in order.
    `ramp_s(shape, times)` is the time beyond num_microbatches * times.slowest_s, with free
    transfers.
    `transfers(shape, overlapped)` is how many point-to-point times lie on the critical path.
    `saved(shape, stage)` is the peak of activations held by pipeline rank `stage`, in micro-batches
    (1 = what one micro-batch leaves on the rank in all its chunks together).
    `exact(shape)` is True where the time is exact for even stages and free transfers.
    `chunks` fixes the number of chunks per rank; 0 leaves it to the plan's vpp.
    """

    name: str
    schedule: Schedule
    interleaved: bool = False
    paper: str
    bubble: str
    memory: str
    constraints: str
    exactness: str
    operations: Callable[[int, int, int], list[list[Operation]]]
    ramp_s: Callable[[Shape, Times], Column]
    transfers: Callable[[Shape, Column], Column]
    saved: Callable[[Shape, Column], Column]
    exact: Callable[[Shape], Column]
    chunks: int = 0
    splits_backward: bool = False
    placement: Placement = Placement.LOOPED
    param_copies: int = 1


def minimum(a: Column, b: Column) -> Column:
    """Elementwise minimum, as float."""
    return np.minimum(a, b) * 1.0
