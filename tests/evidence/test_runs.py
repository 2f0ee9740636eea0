from __future__ import annotations

import gzip
import lzma

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.evidence.row import MEASURED, SETTINGS
from meshwright.evidence.runs import packaged_runs, read_runs, runs_of_text

HEADER = "id,source,seq_len,gpu,num_gpus,global_batch,tp,step_time_s,mem_alloc_gib"
TEXT = f"{HEADER}\na-1,a,2048,H100,8,64,2,1.5,\na-2,a,2048,H100,8,64,x,fast,20.5\n"


def test_cells_become_settings_and_measurements() -> None:
    first = runs_of_text(TEXT).rows[0]
    assert first.row.integer("tp") == 2
    assert first.measured.step_time_s == 1.5
    assert first.measured.allocated_gib is None
    assert first.line == 2


def test_bad_cells_are_placed_and_the_row_kept() -> None:
    runs = runs_of_text(TEXT, name="runs.csv")
    assert len(runs) == 2
    assert [(f.line, f.column, f.key) for f in runs.findings] == [
        (3, 7, "tp"),
        (3, 8, "step_time_s"),
    ]
    assert "'fast'" in runs.findings[1].message
    assert runs.rows[1].measured.step_time_s is None


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_reads_plain_gzip_and_xz(tmp_path, pack) -> None:
    path = tmp_path / "runs"
    path.write_bytes(pack(TEXT.encode()))
    assert [run.id for run in read_runs(path)] == ["a-1", "a-2"]


def test_missing_columns_are_named() -> None:
    with pytest.raises(InvalidInput, match="no column gpu, global_batch"):
        runs_of_text("id,source,seq_len,num_gpus\n1,a,2,3\n")


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00bad", lzma.compress(TEXT.encode())[:-9], b""])
def test_an_unreadable_file_is_a_finding(tmp_path, raw: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(raw)
    with pytest.raises(InvalidInput) as caught:
        read_runs(path)
    assert caught.value.findings[0].file.endswith("runs.csv")


def test_a_missing_file_is_a_finding(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_runs(tmp_path / "none.csv")


def test_a_step_time_comes_from_the_rate_where_none_is_reported() -> None:
    header = HEADER.replace("step_time_s", "tokens_per_s_gpu")
    run = runs_of_text(f"{header}\na-1,a,2048,H100,8,64,2,4096,\n").rows[0]
    assert run.step_time_s == pytest.approx(64 * 2048 / (4096 * 8))


def test_no_measured_column_is_a_setting() -> None:
    assert not set(MEASURED) & set(SETTINGS)
    assert not {"id", "source", "source_ref"} & set(SETTINGS)


def test_the_packaged_runs_are_whole() -> None:
    runs = packaged_runs()
    assert len(runs) == 4215
    assert not runs.findings
    assert len({run.id for run in runs}) == 4215
    assert all(set(run.row.settings) == set(SETTINGS) for run in runs)
