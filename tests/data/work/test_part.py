"""Parts of a build, as they are written and as Slurm gives them."""

from __future__ import annotations

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.data.work.part import Part, Run, parse_part, part_of_array, run_of_parts


def test_every_unit_has_one_part() -> None:
    parts = [parse_part(f"{number}/5") for number in range(5)]
    assert all(sum(part.has(unit) for part in parts) == 1 for unit in range(100))
    assert str(parts[3]) == "3/5"


@pytest.mark.parametrize("text", ["", "3", "5/5", "-1/5", "1/0", "1/2/3", "a/b", "1/99999"])
def test_what_is_no_part(text: str) -> None:
    with pytest.raises(MeshwrightError, match="is no part") as refused:
        parse_part(text)
    assert "0/8" in refused.value.hint


def test_slurm_arrays_of_any_numbering() -> None:
    slurm = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "8"}
    assert part_of_array(slurm) == Part(7, 8)
    one_based = slurm | {"SLURM_ARRAY_TASK_MIN": "1"}
    assert part_of_array(one_based) == Part(6, 8)
    stepped = {
        "SLURM_ARRAY_TASK_ID": "12",
        "SLURM_ARRAY_TASK_MIN": "4",
        "SLURM_ARRAY_TASK_STEP": "4",
        "SLURM_ARRAY_TASK_COUNT": "4",
    }
    assert part_of_array(stepped) == Part(2, 4)
    with pytest.raises(MeshwrightError, match="no task of a Slurm array"):
        part_of_array({})


def test_a_run_is_named_by_the_array_or_by_hand() -> None:
    slurm = {"SLURM_ARRAY_JOB_ID": "4711", "SLURM_JOB_ID": "4713"}
    assert run_of_parts(slurm) == Run("4711", 0)
    assert run_of_parts(slurm | {"SLURM_RESTART_COUNT": "2"}) == Run("4711", 2)
    assert run_of_parts(slurm | {"MESHWRIGHT_RUN": "monday"}) == Run("monday", 0)
    assert run_of_parts({}) == Run()
