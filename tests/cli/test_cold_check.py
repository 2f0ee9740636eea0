"""What a check of one file imports: no more than its framework and what is asked need."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}
RUN = """
import json, sys
from meshwright.cli.main import run
code = run(sys.argv[1:])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The modules that are there after a check of a DeepSpeed configuration."""
    path: Path = tmp_path_factory.mktemp("cold") / "ds_config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN, "check", str(path)], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code in (0, 1), done.stdout
    return frozenset(modules)


@pytest.mark.parametrize(
    "name",
    [
        *("rich", "scipy", "pandas", "torch", "yaml", "msgspec", "zipfile"),
        "meshwright.search",
        "meshwright.cost.memory.total",
        "meshwright.cost.predict",
        "meshwright.frameworks.deepspeed.writing",
        "meshwright.frameworks.megatron_lm.meaning",
        "meshwright.frameworks.text.shell.script",
        "meshwright.rules.framework.megatron.structure",
        "meshwright.rules.framework.verl",
    ],
)
def test_what_is_not_needed_is_not_imported(imported: frozenset[str], name: str) -> None:
    assert name not in imported


def test_what_is_needed_is(imported: frozenset[str]) -> None:
    assert {
        "meshwright.frameworks.deepspeed.meaning",
        "meshwright.rules.framework.deepspeed.stages",
        "meshwright.rules.model.partitioning.tensor",
    } <= imported
