"""What can be said of memory where nothing says how many GPUs there are.

More GPUs hold more replicas, which share the sharded states; what does not fit on any number of
them is certain, and of the rest it can be said from which number on it fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.rules.costed import fit_of, larger
from meshwright.rules.rule import as_numpy, check, find_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.finding import Finding
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Rule

ON_THE_DEVICE = ("MOD217", "CMP121")
SHORT = frozenset(  # rules that a longer sequence or a larger batch would only break the more
    {*ON_THE_DEVICE, "CMP209", "CMP212", "CMP240", "CMP241", "CMP242", "CMP243", "CMP244"}
    | {"CMP245", "CMP246", "CMP319"}
)
_MOST_TIMES = 1024  # replicas of the smallest mesh, where no batch bounds them
FAILURES = (MeshwrightError, ArithmeticError, ValueError, IndexError)


def lacks_count_alone(drafted: Drafted) -> bool:
    """Whether model and device are known, and only their number is not."""
    missing = set(drafted.missing)
    return "num_gpus" in missing and not missing & {"model", "gpu"}


def found_on_any_count(reading: Reading, drafted: Drafted) -> list[tuple[Rule, Finding]]:
    """What runs out of memory on however many GPUs the batch can be spread over."""
    if not lacks_count_alone(drafted):
        return []
    rules = {code: rule for code in ON_THE_DEVICE if (rule := find_rule(code)) is not None}
    try:
        found = check(as_numpy(_largest(reading, drafted)), list(rules.values()))
    except FAILURES:
        return []
    return [(rules[f.code], f) for f in found]


def fits_from(reading: Reading, drafted: Drafted) -> int | None:
    """The smallest number of GPUs on which the job fits, by doubling; None where none is found."""
    if not lacks_count_alone(drafted):
        return None
    try:
        jobs = (larger(drafted.other, factor) for factor in _factors(reading, drafted))
        return next((j.cluster.num_gpus for j in jobs if fit_of(j) == "yes"), None)
    except FAILURES:
        return None


def _largest(reading: Reading, drafted: Drafted) -> Job:
    return larger(drafted.other, list(_factors(reading, drafted))[-1])


def _factors(reading: Reading, drafted: Drafted) -> Iterator[int]:
    """Times the smallest mesh, as far as every replica has a micro-batch."""
    plan, batch = drafted.other.plan, reading.value("global_batch_size")
    most = _MOST_TIMES
    if isinstance(batch, int) and batch > 0:
        most = max(batch // max(int(plan.micro_batch_size) * int(plan.dp), 1), 1)
    factor = 1
    while factor <= min(most, _MOST_TIMES):
        yield factor
        factor *= 2
