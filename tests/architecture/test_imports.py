"""Start-up: what a command must not import, and what it may cost."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = ("numpy", "rich", "yaml", "msgspec", "torch", "scipy", "pandas")


def imported_by(code):
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_meshwright_imports_nothing_else():
    assert imported_by("import meshwright").isdisjoint({*HEAVY, "click"})


def test_the_command_line_starts_without_heavy_packages():
    assert imported_by("import meshwright.cli.main").isdisjoint(HEAVY)


def test_the_cost_model_never_imports_torch():
    modules = imported_by(
        "import meshwright.cost.predict, meshwright.search, meshwright.report.result"
    )
    assert modules.isdisjoint({"torch", "transformers", "scipy", "pandas"})


def cpu_seconds(arguments, *, runs=3):
    """Least CPU time of a few runs: what it costs when nothing else disturbs the machine."""
    least = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "meshwright", *arguments], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, spent)
    return least


@pytest.mark.parametrize(("arguments", "limit_s"), [(["--version"], 0.1), (["--help"], 0.12)])
def test_start_up_is_quick(arguments, limit_s):
    assert cpu_seconds(arguments) < limit_s
