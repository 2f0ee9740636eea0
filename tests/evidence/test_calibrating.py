from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from meshwright.base.errors import InvalidInput
from meshwright.cost.calibration import Calibration, HardwareFit, Stack, calibration_from_table
from meshwright.evidence.calibrating import (
    Measured,
    calibration_toml,
    parameters_for,
    read_calibration,
    scatter,
    with_default,
    with_entries,
)


def calibration() -> Calibration:
    stacks = {
        "default": Stack(matmul=0.8),
        "nanotron": Stack(matmul=0.7, p2p_stall_s=0.5, reduce_every_microbatch=True),
        "internevo": Stack(matmul=0.95, step_s=0.123456789),
        "heir": Stack(matmul=0.95, step_s=0.123456789, overlap_tp=0.5, kin="internevo"),
    }
    return Calibration(
        hardware={"default": HardwareFit(), "ampere": HardwareFit(matmul=0.85)}, stacks=stacks
    )


@pytest.fixture(scope="module")
def measured(reference) -> Measured:
    runs = [run for run in reference if run.source in ("internevo-a100", "paper-zero-bubble")]
    return Measured(runs, calibration())


def test_what_is_written_is_read_back(tmp_path) -> None:
    path = tmp_path / "calibration.toml"
    path.write_text(calibration_toml(calibration(), {"internevo": "somewhere (3)"}))
    found = read_calibration(path)
    for name, stack in calibration().stacks.items():
        for field in ("matmul", "overlap_tp", "p2p_stall_s", "reduce_every_microbatch"):
            assert getattr(found.stacks[name], field) == getattr(stack, field)
    assert found.stacks["internevo"].step_s == 0.1235
    assert found.stacks["internevo"].fitted_on == "somewhere (3)"
    assert found.hardware["ampere"].matmul == 0.85


def test_only_what_differs_is_written() -> None:
    table = tomllib.loads(calibration_toml(calibration(), {}))
    assert table["stack"]["heir"] == {"overlap_tp": 0.5, "kin": "internevo"}
    assert calibration_from_table(table).stacks["heir"].step_s == 0.1235


@pytest.mark.parametrize("text", ["not toml", "[stack]\nx = 3\n", "hardware = 3\n"])
def test_a_file_that_is_no_calibration_is_a_finding(tmp_path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="not a calibration file"):
        read_calibration(path)


def test_rows_of_an_entry_are_those_it_touches(measured) -> None:
    touched = measured.touched_by(("stack", "internevo", "matmul"))
    assert {measured.runs[i].source for i in touched} == {"internevo-a100"}
    assert touched.size == measured.counts("stack")["internevo"] == 54
    assert measured.touched_by(("hardware", "ampere", "matmul")).size == len(measured.runs)


def test_a_subset_is_predicted_as_in_the_whole(measured) -> None:
    rows = np.arange(len(measured.runs))
    whole = measured({}, rows)
    some = measured.touched_by(("stack", "internevo", "matmul"))
    assert measured({}, some) == pytest.approx(whole[some])
    assert (whole > 0).all()


def test_a_slower_matmul_slows_its_stack_alone(measured) -> None:
    rows = np.arange(len(measured.runs))
    own = with_entries(measured.calibration, measured)
    slow = replace(own, stacks=own.stacks | {"internevo": Stack(matmul=0.5)})
    before, after = measured.under(own, rows), measured.under(slow, rows)
    touched = measured.touched_by(("stack", "internevo", "matmul"))
    assert (after[touched] > before[touched]).all()
    others = np.setdiff1d(rows, touched)
    assert after[others] == pytest.approx(before[others])


def test_parameters_are_those_that_rows_inform(measured) -> None:
    found = parameters_for(measured)
    assert {(p.table, p.entry) for p in found} == {
        ("hardware", "ampere"),
        ("stack", "internevo"),
        ("stack", "zero-bubble-fork"),
    }
    assert not [p for p in found if "stall" in p.name]


def test_unseen_stacks_inherit_and_lose_their_stalls(measured) -> None:
    found = with_default(with_entries(calibration(), measured), measured.jobs)
    assert found.stacks["heir"].matmul == 0.95
    nanotron = found.stacks["nanotron"]
    assert nanotron.matmul == found.stacks["default"].matmul
    assert nanotron.p2p_stall_s == 0.0
    assert nanotron.reduce_every_microbatch is True


def test_scatter_holds_ninety_percent() -> None:
    off = np.abs(np.random.default_rng(0).normal(0, 0.1, 20_000))
    assert scatter(off) == pytest.approx(0.1, rel=0.03)
    assert scatter(np.zeros(2)) > 0.1
