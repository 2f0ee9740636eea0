"""A build from end to end: the same bytes whoever does the work and however often it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Severity
from meshwright.data import building as module
from meshwright.data.building import build
from meshwright.data.settings import (
    Build,
    Dedup,
    Limits,
    Output,
    Pack,
    Source,
    TokenizerSource,
)
from meshwright.data.work.lock import locked

RUN = ".build.json"  # what a run took: the one file that differs


def settings(corpus: Path, tokenizer: Path, folder: Path, **changes: object) -> Build:
    base = Build(
        sources=(Source(files=(f"{corpus}/*.jsonl",), id_field="id"),),
        tokenizer=TokenizerSource(file=str(tokenizer)),
        dedup=Dedup(near=True),
        pack=Pack(seq_len=256, strategy="best-fit"),
        output=Output(folder=str(folder), shard_tokens=20_000),
        validation=0.1,
        seed=3,
    )
    return replace(base, **changes)


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of 48 KiB, so that a small corpus has a dozen."""
    monkeypatch.setattr(module, "UNIT_BYTES", 48 << 10)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != RUN]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def reference(corpus: Path, tokenizer_file: Path, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("reference") / "shards"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "UNIT_BYTES", 48 << 10)
        build(settings(corpus, tokenizer_file, folder), engine="inline")
    return contents(folder)


def test_reference_holds_every_document_once(reference, texts, tmp_path: Path) -> None:
    table = tmp_path / "documents.parquet"
    table.write_bytes(reference["documents.parquet"])
    rows = pyarrow.parquet.read_table(table).to_pylist()
    assert [row["id"] for row in rows] == [f"{n // 200}-{n % 200}" for n in range(600)]
    assert [row["line"] for row in rows] == [n % 200 + 1 for n in range(600)]
    gone = {row["reason"] for row in rows}
    assert gone == {"", "exact_duplicate", "near_duplicate"}
    kept = {texts[n] for n, row in enumerate(rows) if row["reason"] == ""}
    assert len(kept) == sum(row["reason"] == "" for row in rows)
    manifest = json.loads(reference["manifest.json"])
    assert manifest["counts"][""] == len(kept)
    assert sum(manifest["counts"].values()) == 600


@pytest.mark.parametrize("workers", [2, 5])
def test_any_number_of_workers_makes_the_same_bytes(
    corpus, tokenizer_file, tmp_path: Path, reference, workers: int
) -> None:
    folder = tmp_path / "shards"
    build(settings(corpus, tokenizer_file, folder), workers=workers)
    assert contents(folder) == reference


def test_size_of_batches_does_not_matter(corpus, tokenizer_file, tmp_path: Path, reference) -> None:
    folder = tmp_path / "shards"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshwright.data.source.opening.CHUNK_BYTES", 3000)
        patch.setattr("meshwright.data.source.rows.BATCH_BYTES", 3000)
        build(settings(corpus, tokenizer_file, folder), engine="inline")
    assert contents(folder) == reference


_KILLED = """
import sys
from pathlib import Path
from meshwright.data import building as module
from meshwright.data.reading import read_build

if __name__ == "__main__":
    module.UNIT_BYTES = 48 << 10
    module.build(read_build(sys.argv[1]), workers=2)
"""


def test_kill_at_any_moment_then_the_same_command_again(
    corpus, tokenizer_file, tmp_path: Path, reference
) -> None:
    from meshwright.data.reading import write_build

    folder = tmp_path / "shards"
    config, script = tmp_path / "config.toml", tmp_path / "run.py"
    config.write_text(write_build(settings(corpus, tokenizer_file, folder)))
    script.write_text(_KILLED)
    delay_s = 0.4
    for _ in range(20):
        process = subprocess.Popen([sys.executable, str(script), str(config)])
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            delay_s *= 1.5
            continue
        assert process.returncode == 0
        break
    assert contents(folder) == reference


def test_done_is_done(corpus, tokenizer_file, tmp_path: Path) -> None:
    asked = settings(corpus, tokenizer_file, tmp_path / "shards")
    first = build(asked, engine="inline")
    stamp = (tmp_path / "shards" / "manifest.json").stat().st_mtime_ns
    stages: list[str] = []
    again = build(asked, engine="inline", on_progress=lambda state: stages.append(state.stage))
    assert again == first
    assert stages == []
    assert (tmp_path / "shards" / "manifest.json").stat().st_mtime_ns == stamp


def test_finished_output_of_other_settings_stays(corpus, tokenizer_file, tmp_path: Path) -> None:
    asked = settings(corpus, tokenizer_file, tmp_path / "shards")
    build(asked, engine="inline")
    before = contents(tmp_path / "shards")
    with pytest.raises(MeshwrightError, match="other settings or other input") as refused:
        build(replace(asked, seed=4), engine="inline")
    assert "--fresh" in refused.value.hint
    assert contents(tmp_path / "shards") == before
    build(replace(asked, seed=4), engine="inline", fresh=True)
    assert contents(tmp_path / "shards") != before


def test_only_what_depends_on_a_change_is_made_again(
    corpus, tokenizer_file, tmp_path: Path
) -> None:
    copy = tmp_path / "raw"
    copy.mkdir()
    for path in sorted(corpus.glob("*.jsonl")):
        (copy / path.name).write_bytes(path.read_bytes())
    output = Output(folder=str(tmp_path / "shards"), shard_tokens=20_000, keep_work=True)
    asked = settings(copy, tokenizer_file, tmp_path, output=output)
    build(asked, engine="inline")
    last = copy / "part-2.jsonl"
    last.write_text(last.read_text().replace("Ka", "Xa"))
    (tmp_path / "shards" / "manifest.json").unlink()
    found: dict[str, list[int]] = {}

    def note(state) -> None:
        found.setdefault(state.stage, []).append(state.units_done)

    with pytest.raises(MeshwrightError, match=r"part-2\.jsonl has other content"):
        build(asked, engine="inline")
    build(asked, engine="inline", reuse=True, on_progress=note)
    assert 0 < found["scan"][0] < found["scan"][-1]
    fresh = tmp_path / "fresh"
    build(replace(asked, output=replace(output, folder=str(fresh), keep_work=False)))
    assert contents(fresh) == {
        name: text
        for name, text in contents(tmp_path / "shards").items()
        if not name.startswith(".work")
    }


def test_too_many_bad_lines_stop_with_file_and_lines(
    corpus, tokenizer_file, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    good = (corpus / "part-0.jsonl").read_text().splitlines(keepends=True)
    lines = [*good[:50], "{oops\n", *good[50:150], '{"text": 3}\n', *good[150:]]
    (raw / "a.jsonl").write_text("".join(lines))
    asked = settings(raw, tokenizer_file, tmp_path / "shards")
    with pytest.raises(InvalidInput) as refused:
        build(replace(asked, limits=Limits(bad_fraction=0.005)), engine="inline")
    first, *shown = refused.value.findings
    assert [finding.severity for finding in shown] == [Severity.INFO] * 2
    assert "2 of 202 documents cannot be read (1.0%)" in first.message
    assert "--bad-fraction" in first.hint
    assert [finding.line for finding in shown] == [51, 152]
    build(asked, engine="inline")
    kept_aside = (tmp_path / "shards" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["line"] for line in kept_aside] == [51, 152]


def test_a_second_build_in_the_folder_is_refused(corpus, tokenizer_file, tmp_path: Path) -> None:
    with (
        locked(tmp_path / "shards"),
        pytest.raises(MeshwrightError, match="another build is at work"),
    ):
        build(settings(corpus, tokenizer_file, tmp_path / "shards"), engine="inline")
    assert not (tmp_path / "shards" / ".lock").exists()


def test_full_disk_is_one_clear_error_and_loses_nothing(
    corpus, tokenizer_file, tmp_path: Path, reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshwright.data.work import store

    asked = settings(corpus, tokenizer_file, tmp_path / "shards")
    fsync, left = os.fsync, [30]

    def failing(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", failing)
        with pytest.raises(MeshwrightError, match="no space left") as full:
            build(asked, engine="inline")
    assert "run the same command again" in full.value.hint
    starts: list[int] = []
    build(asked, engine="inline", on_progress=lambda state: starts.append(state.units_done))
    assert starts[0] > 0
    assert contents(tmp_path / "shards") == reference


def test_a_worker_that_is_killed_is_an_error_that_says_so(
    corpus, tokenizer_file, tmp_path: Path, reference
) -> None:
    asked = settings(corpus, tokenizer_file, tmp_path / "shards")
    killed: list[int] = []

    def kill_one(state) -> None:
        if state.stage == "scan" and state.units_done == 3 and not killed:
            killed.append(children_of(os.getpid())[-1])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(MeshwrightError, match="was killed by signal 9") as lost:
        build(asked, workers=2, on_progress=kill_one)
    assert "--workers" in lost.value.hint
    build(asked, workers=2)
    assert contents(tmp_path / "shards") == reference


def test_workers_leave_when_their_parent_is_killed(corpus, tokenizer_file, tmp_path: Path) -> None:
    from meshwright.data.reading import write_build

    config, script = tmp_path / "config.toml", tmp_path / "run.py"
    config.write_text(write_build(settings(corpus, tokenizer_file, tmp_path / "shards")))
    script.write_text(_KILLED)
    process = subprocess.Popen([sys.executable, str(script), str(config)])
    deadline = time.monotonic() + 60  # all of it takes 1 s where nothing else runs
    while len(workers := children_of(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)  # two workers and the tracker of resources
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    assert not any(map(is_alive, workers))


def children_of(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_part_that_lags_behind_takes_the_output_of_the_others(
    tmp_path: Path, monkeypatch
) -> None:
    raw = tmp_path / "raw.jsonl"  # a single unit, which is part 0's
    raw.write_text("".join(json.dumps({"text": f"one text {n % 3}"}) + "\n" for n in range(9)))
    wanted = Build(
        sources=(Source(files=(str(raw),)),),
        dedup=Dedup(near=True),
        output=Output(folder=str(tmp_path / "shards")),
    )
    run_stages, made = module.run_stages, []

    def after_the_other(job, engine, **how):
        if engine.board.part.number and not made:
            made.append(build(wanted, engine="inline", part="0/2"))
        return run_stages(job, engine, **how)

    monkeypatch.setattr(module, "run_stages", after_the_other)
    assert build(wanted, engine="inline", part="1/2") == made[0]
    assert not (tmp_path / "shards" / ".work" / "link").exists()


def test_a_part_that_failed_before_another_of_its_run_began_stops_it(
    corpus, tokenizer_file, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_RUN", "monday")
    wanted = settings(corpus, tokenizer_file, tmp_path / "shards")
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_stages", _fail)
        with pytest.raises(MeshwrightError, match="no memory"):
            build(wanted, engine="inline", part="1/2")
    started = time.monotonic()
    with pytest.raises(MeshwrightError, match="part 1 of 2 failed: no memory"):
        build(wanted, engine="inline", part="0/2")
    assert time.monotonic() - started < 60


def _fail(*_args: object, **_how: object) -> None:
    raise MeshwrightError("no memory")
