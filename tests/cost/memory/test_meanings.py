"""Every memory term has a formula and a source; what it is made of adds up."""

from __future__ import annotations

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.cost.memory import MEMORY, meaning_of, memory, operands_of, unit_of
from meshwright.cost.memory.stack import packaged_stacks, stacks_from_table
from meshwright.plan.plan import Plan, Recompute, RecomputeModule

from .jobs import job, llama, routed


@pytest.mark.parametrize("stack", sorted(packaged_stacks()))
@pytest.mark.parametrize(
    "plan",
    [
        Plan(pp=2, dp=2),
        Plan(flash_attention=False, recompute=int(Recompute.FULL)),
        Plan(
            recompute=int(Recompute.SELECTIVE),
            recompute_modules=int(RecomputeModule.ALTERNATE_MATMULS),
        ),
    ],
)
def test_every_term_is_explained(stack: str, plan: Plan) -> None:
    for model in (llama(4, qk_norm="head"), routed(4)):
        for name in memory(job(model, plan, stack=stack)).terms:
            meaning = meaning_of(name)
            assert meaning is not None, name
            assert meaning.formula
            assert meaning.source


def test_operators_add_up_to_the_blocks_activations() -> None:
    terms = memory(job(routed(4), Plan(tp=2, dp=4))).terms
    prefix = "memory.stage0.activations."
    parts = {n.removeprefix(prefix): float(v) for n, v in terms.items() if n.startswith(prefix)}
    operators = sum(v for n, v in parts.items() if n not in {"in_flight", "gathered_more"})
    tokens, hidden = 2048, 1024
    head = tokens * hidden / 2 * (2 + 2)  # final norm's input and the head's, split over tp
    assert operators + head == pytest.approx(float(terms["memory.stage0.activations"]))


def test_operands_reproduce_the_states() -> None:
    one = job(llama(4), Plan(tp=2, dp=4, zero_stage=1))
    terms, values = memory(one).terms, operands_of(one, 0)
    weights = values["parameters"] * values["param_bytes"]
    optimizer = values["trained_parameters"] * values["optimizer_bytes"] / values["shards"]
    assert weights == pytest.approx(float(terms["memory.stage0.weights"]))
    assert optimizer == pytest.approx(float(terms["memory.stage0.optimizer"]))


def test_units() -> None:
    assert unit_of("memory.stage0.weights") == "bytes"
    assert unit_of("memory.stage0.activations.in_flight") == "micro-batches"
    assert meaning_of("memory.stage0.nonsense") is None
    assert all(m.evidence in {"exact", "assumed"} for m in MEMORY.values())


def test_unknown_parameter_of_a_stack_is_refused() -> None:
    with pytest.raises(MeshwrightError, match="gated_copys"):
        stacks_from_table({"stack": {"x": {"gated_copys": 3.0}}})
