"""The benchmark of near duplicates plants what it says, and our stages find it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import near_dedup


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of random words."""
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(5)
    with (folder / "part-000.jsonl").open("w", encoding="utf-8") as out:
        for _ in range(500):
            words = [f"word{draw.randrange(3000)}" for _ in range(draw.randrange(60, 500))]
            out.write(json.dumps({"text": " ".join(words)}) + "\n")
    return folder


def test_planted_pairs_are_spread_over_the_similarities(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "planted.jsonl"
    pairs = near_dedup.plant(corpus, path, mb=5)
    texts = path.read_text(encoding="utf-8").splitlines()
    assert len(texts) == 2 * 500 + len(pairs)
    assert all(pair.first < pair.second for pair in pairs)
    shares = [sum(low <= p.similarity < low + 0.05 for p in pairs) for low in (0.8, 0.85, 0.9)]
    assert min(shares) > 40
    assert 0.3 < sum(pair.is_short for pair in pairs) / len(pairs) < 0.8


@pytest.fixture(scope="module")
def found(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ours alone: the peers need not be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_dedup, "PEERS", ())
        scratch = tmp_path_factory.mktemp("scratch")
        return near_dedup.measure(corpus, scratch, mb=5, python=sys.executable)


def test_our_stages_find_what_was_planted(found: dict[str, Any]) -> None:
    ours = found["programs"]["ours"]
    assert found["pairs"] > 250
    assert ours["recall"] >= 0.99
    assert ours["recall_short"] >= 0.99
    assert ours["precision"] == 1.0
    assert ours["recall_below_0.8"] == 0.0


def test_missed_targets_are_told(found: dict[str, Any]) -> None:
    ours = found["programs"]["ours"]
    rows = {
        "ours": ours | {"recall": 0.98},
        "rensa": {"ratio": 1.5},
        "datatrove": {"error": "datatrove is not installed"},
    }
    assert near_dedup.failures(found | {"programs": rows}) == ["recall: 0.9800", "rensa: 1.5x"]
