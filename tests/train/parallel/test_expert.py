from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from expert_cases import FAMILIES, block_of, differences, reference, spread  # noqa: E402
from meshwright.plan.plan import Plan  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.mesh import Mesh  # noqa: E402


def plan(**axes: int) -> Plan:
    return Plan(zero_stage=1, **axes)


ON_TWO = {
    "dp2 ep2": plan(dp=2, ep=2),
    "dp2 etp2": plan(dp=2, etp=2),
    "cp2 ep2": plan(cp=2, ep=2),
    "tp2 ep2": plan(tp=2, ep=2),
    "tp2 etp2": plan(tp=2, etp=2),
    "tp2": plan(tp=2),
}
ON_FOUR = {
    "dp4 ep4": plan(dp=4, ep=4),
    "dp4 ep2 etp2": plan(dp=4, ep=2, etp=2),
    "dp4 ep2, replicated": plan(dp=4, ep=2, dp_replicate=2),
    "dp2 tp2 ep4": plan(dp=2, tp=2, ep=4),
    "dp2 tp2 ep2": plan(dp=2, tp=2, ep=2),
    "dp2 tp2 ep2 etp2": plan(dp=2, tp=2, ep=2, etp=2),
    "dp2 cp2 ep4": plan(dp=2, cp=2, ep=4),
    "cp2 tp2 ep4": plan(cp=2, tp=2, ep=4),
    "tp4 ep2": plan(tp=4, ep=2),
}


def worst(plans: dict[str, Plan], counts: tuple[int, ...]) -> dict[str, float]:
    """On a rank: the worst difference of every case."""
    found = {}
    references = {(f, n): reference(f, n) for f in FAMILIES for n in counts}
    for name, case in plans.items():
        mesh = Mesh(case, device_type="cpu")  # its groups cost more than all that is done with it
        for (family, count), wanted in references.items():
            off = differences(wanted, spread(family, count, mesh))
            where = max(off, key=lambda n: off[n])
            found[f"{family} {name} x{count}: {where}"] = off[where]
    return found


@pytest.mark.parametrize(("size", "plans"), [(2, ON_TWO), (4, ON_FOUR)])
def test_gradients_are_those_of_one_process(size, plans):
    block_of("qwen3_moe")
    for rank in run_ranks(worst, size, plans, (1, 4), timeout_s=300):
        assert {case: off for case, off in rank.items() if not off < 1e-9} == {}
