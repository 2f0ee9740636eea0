"""Published runs pass `check` in their framework's words; the figures and their page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import published
from meshwright.evidence.runs import packaged_runs

STEP = 300  # every so many runs


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return published.figures(list(packaged_runs().rows[7::STEP]))


def test_runs_that_ran_are_not_refused(found: dict[str, object]) -> None:
    assert found["written"] >= 10
    assert found["alarms"] == {}
    assert found["clean"] == found["written"]


def test_most_are_read_back_with_their_memory(found: dict[str, object]) -> None:
    assert found["same_memory"] >= 0.8 * found["written"]


def test_the_page_tells_the_share_and_every_framework(found: dict[str, object]) -> None:
    page = published.page(found)
    assert f"{found['clean']} of {found['written']} runs" in page
    assert all(f"| {name} " in page for name in found["by_framework"])


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Megatron-Bridge 0.2", "megatron-bridge"),
        ("llm-foundry/Composer (PyTorch FSDP)", published.OWN),
        ("NeMo AutoModel (PyTorch FSDP2 + TE)", "torchtitan"),
        ("MaxText", published.OWN),
    ],
)
def test_a_run_is_written_as_what_it_ran_on(name: str, target: str) -> None:
    assert published.written_as(name) == target
