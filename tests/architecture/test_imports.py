"""Start-up: what a command must not import, and what it may cost."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = ("numpy", "rich", "yaml", "msgspec", "torch", "scipy", "pandas")


def imported_by(code):
    script = f"import sys\nsys.stdout = sys.stderr\n{code}\n"
    script += "print('\\n'.join(sys.modules), file=sys.__stdout__)"
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


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_start_up_is_quick(argument):
    assert cpu_seconds([argument]) < 0.5  # 0.05 where nothing else runs


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_start_up_loads_few_modules(argument):
    """Some 90, which no noise changes; a single heavy package adds more than a hundred."""
    run = f"from meshwright.cli.main import run\nrun([{argument!r}])"
    assert len(imported_by(run) - imported_by("")) < 150
