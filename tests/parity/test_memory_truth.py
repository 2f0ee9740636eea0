"""Memory and traffic in closed form against the engine on fake tensors, for a few plans."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.parity
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def truth() -> Any:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("memory_truth")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.filterwarnings("ignore")
def test_quick_plans_are_within_the_limits(truth: Any) -> None:
    rows = [truth.compare(case) for case in truth.quick_cases()]
    assert len(rows) == 5
    assert truth.within_limits(rows)
    assert all(row["measured"]["peak"] > 2**30 for row in rows)
