"""Memory and traffic of one rank of a deep model and many micro-batches, from small readings.

Layers beyond the first few repeat, and so do micro-batches beyond those that are in flight at once:
two depths and two numbers of micro-batches say how much each more takes. `check` reads a third
depth and says how far the extension is from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.plan.degrees import degrees_of
from meshwright.train.measure.depths import along, depths_of, groups_of, shortened
from meshwright.train.measure.rank import Reading, read_rank
from meshwright.train.measure.traffic import Flow
from meshwright.train.parallel.pipeline import places_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.plan.plan import Plan
    from meshwright.train.assemble import Blueprint
    from meshwright.train.measure.depths import Depths
    from meshwright.train.stage import Place

ALONE = (3, 4)  # micro-batches without a pipeline: a first, one that is neither, a last
Numbers = dict[tuple[Any, ...], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rank of a plan with the stages that it holds and the layers of each to be read."""

    blueprint: Blueprint
    rank: int
    microbatches: int
    places: tuple[Place, ...]
    depths: tuple[Depths, ...]


def case_of(blueprint: Blueprint, *, rank: int, microbatches: int, extend: bool = True) -> Case:
    """Global rank `rank` under `microbatches` a step; its own depths where nothing is extended."""
    plan, layers = blueprint.plan, blueprint.model.layers
    places = places_of(blueprint.model, plan, pp_rank=pipeline_rank(plan, rank))
    wanted = [layers[place.first_layer : place.last_layer] for place in places]
    depths = tuple(depths_of(blocks, extend=extend) for blocks in wanted)
    return Case(
        blueprint=blueprint,
        rank=rank,
        microbatches=microbatches,
        places=places,
        depths=depths,
    )


def pipeline_rank(plan: Plan, rank: int) -> int:
    """The pipeline rank of a global one; pp is the slowest axis."""
    degrees = degrees_of(plan)
    return rank // (degrees.world_size // degrees.pp)


def measured(case: Case, *, extend: bool = True) -> Reading:
    """The reading of the case at full depth and with all micro-batches."""
    few = fewer_microbatches(case.blueprint.plan, case.microbatches) if extend else None
    if few is None:
        return reading_of(_deep(case, case.microbatches))
    low, high = few
    factor = (case.microbatches - low) / (high - low)
    return reading_of(along(_deep(case, low), [(_deep(case, high), factor)]))


def error_of_extension(case: Case) -> float:
    """Largest relative error of peak and categories, extended against read, one step deeper.

    Bytes and calls of traffic must be equal. Zero where nothing is extended.
    """
    groups = groups_of(case.depths)
    if not groups:
        return 0.0
    deeper = [d.high + (d.high - d.low) if d.high > d.low else d.low for d in case.depths]
    few = fewer_microbatches(case.blueprint.plan, case.microbatches)
    count = few[0] if few else case.microbatches
    low = _read(case, [d.low for d in case.depths], count)
    high = _read(case, [d.high for d in case.depths], count)
    found, truth = along(low, [(high, 2.0)]), _read(case, deeper, count)
    compared = {k: v for k, v in truth.items() if k[0] in ("held", "calls", "bytes") and v}
    errors = [abs(found.get(key, 0.0) / value - 1) for key, value in compared.items()]
    peak = reading_of(truth).peak_bytes
    return max(*errors, abs(reading_of(found).peak_bytes / peak - 1))


def fewer_microbatches(plan: Plan, microbatches: int) -> tuple[int, int] | None:
    """Two numbers of micro-batches that stand for `microbatches`; None where that is few enough.

    With a pipeline of pp ranks at most 2 * pp are in flight (but for GPipe, where all are and the
    line begins at once).
    """
    pp = int(plan.pp)
    low, high = ALONE if pp == 1 else (2 * pp, 3 * pp)
    return (low, high) if microbatches > high else None


def _deep(case: Case, microbatches: int) -> Numbers:
    """The numbers at full depth."""
    lowest = [depth.low for depth in case.depths]
    low = _read(case, lowest, microbatches)
    others = []
    for depth, members in groups_of(case.depths):
        layers = [depth.high if i in members else n for i, n in enumerate(lowest)]
        others.append((_read(case, layers, microbatches), depth.factor))
    return along(low, others)


def _read(case: Case, layers: Sequence[int], microbatches: int) -> Numbers:
    """The numbers where the stages have so many layers."""
    places = [shortened(p, n) for p, n in zip(case.places, layers, strict=True)]
    reading = read_rank(case.blueprint, rank=case.rank, microbatches=microbatches, places=places)
    return numbers_of(reading)


def numbers_of(reading: Reading) -> Numbers:
    """A reading as one mapping of numbers."""
    parts = {("part", s, c): v for s, own in reading.parts.items() for c, v in own.items()}
    return {
        ("cpu",): reading.cpu_s,
        **{("held", category): value for category, value in reading.held.items()},
        **{("peak", stretch): value for stretch, value in reading.peaks.items()},
        **parts,
        **{("calls", lane): flow.calls for lane, flow in reading.flows.items()},
        **{("bytes", lane): flow.bytes for lane, flow in reading.flows.items()},
    }


def reading_of(numbers: Numbers) -> Reading:
    """The reading that the numbers came from."""

    def kind(name: str) -> dict[Any, float]:
        return {key[1]: value for key, value in numbers.items() if key[0] == name}

    parts: dict[Any, dict[Any, float]] = {}
    for key, value in numbers.items():
        if key[0] == "part":
            parts.setdefault(key[1], {})[key[2]] = value
    calls, sizes = kind("calls"), kind("bytes")
    return Reading(
        held=kind("held"),
        peaks=kind("peak"),
        parts=parts,
        flows={lane: Flow(calls=calls[lane], bytes=sizes[lane]) for lane in calls},
        cpu_s=numbers[("cpu",)],
    )
