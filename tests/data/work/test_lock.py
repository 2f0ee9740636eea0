"""One build in a folder, several parts of one, and workers that outlive their build."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.data.work import lock
from meshwright.data.work.lock import held_by_worker, locked, wait_for_workers


def test_a_second_holder_is_refused_and_told_who_holds(tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        with (
            pytest.raises(MeshwrightError, match=r"process \d+ on") as refused,
            locked(tmp_path / "out"),
        ):
            pass
        assert "-o" in refused.value.hint
    with locked(tmp_path / "out"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_parts_share_and_the_last_one_clears_up(tmp_path: Path) -> None:
    with locked(tmp_path, shared=True):
        with locked(tmp_path, shared=True), pytest.raises(MeshwrightError), locked(tmp_path):
            pass
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()


def test_the_lock_goes_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="oops"), locked(tmp_path):
        raise ValueError("oops")
    with locked(tmp_path):
        pass


def test_a_new_build_waits_for_old_workers(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "work" / "workers.lock"
    begun, leave = threading.Event(), threading.Event()

    def work() -> None:
        with held_by_worker(path), held_by_worker(path):
            begun.set()
            leave.wait(60)

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(60)
    monkeypatch.setattr(lock, "_PATIENCE_S", 0.2)
    with pytest.raises(MeshwrightError, match="still at work"):
        wait_for_workers(path)
    monkeypatch.setattr(lock, "_PATIENCE_S", 60.0)
    threading.Timer(0.2, leave.set).start()
    wait_for_workers(path)
    assert leave.is_set()
    worker.join()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told_of_and_used(
    tmp_path: Path, monkeypatch, number: int
) -> None:
    def refuse(_file: object, _kind: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    told: list[Finding] = []
    with locked(tmp_path, tell=told.append), locked(tmp_path):
        wait_for_workers(tmp_path / "work" / "workers.lock")
        with held_by_worker(tmp_path / "work" / "workers.lock"):
            pass
    (finding,) = told
    assert finding.severity == Severity.WARNING
    assert "no locks" in finding.message
    assert finding.file == str(tmp_path)


def test_nothing_is_told_where_locks_are_had(tmp_path: Path) -> None:
    told: list[Finding] = []
    with locked(tmp_path, tell=told.append):
        pass
    assert told == []
