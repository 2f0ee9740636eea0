"""Runs one case as `meshwright verify` does, and says what differs."""

from __future__ import annotations

import pytest
from training_cases import Case

TOLERANCE = 1e-9


def assert_exact(case: Case) -> None:
    """Loss, every gradient, the clipped norm and four AdamW steps equal those of one process."""
    from meshwright.base.errors import MeshwrightError
    from meshwright.train.model.tiny import tiny_config
    from meshwright.train.verify import judge

    trial = case.trial
    kv_heads = 4 if trial.heads_multiple > 2 else 2
    config = tiny_config(case.family, layers=trial.layers, kv_heads=kv_heads)
    try:
        verdict = judge(trial, config)
    except MeshwrightError as error:
        pytest.fail(str(error))
    assert not verdict.error, verdict.error
    assert not verdict.missing
    assert verdict.gradient <= TOLERANCE, verdict.differing[:5]
    assert verdict.parameter <= TOLERANCE, verdict.differing[:5]
    assert max(verdict.loss, verdict.norm) <= TOLERANCE
