"""Plans on forked ranks beside one process: everything."""

import pytest
from training_cases import Case, everything
from training_judge import assert_exact

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.parity, pytest.mark.nightly]


@pytest.mark.parametrize("case", everything(), ids=lambda case: case.name)
def test_a_plan_computes_what_one_process_does(case: Case) -> None:
    assert_exact(case)
