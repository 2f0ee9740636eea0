"""Plans on forked ranks beside one process: routed."""

import pytest
from training_cases import Case, routed
from training_judge import assert_exact

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.parity]


@pytest.mark.parametrize("case", routed(), ids=lambda case: case.name)
def test_a_plan_computes_what_one_process_does(case: Case) -> None:
    assert_exact(case)
