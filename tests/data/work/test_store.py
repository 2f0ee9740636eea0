"""Units on disk, when two processes write the same one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from meshwright.data.work import store as module
from meshwright.data.work.store import Store


def write(store: Store, key: str, text: str) -> None:
    with store.writing("scan", 3, key=key) as draft:
        draft.write_text("note", text)


def note(store: Store) -> str:
    return (store.folder("scan", 3) / "note").read_text()


def test_of_two_writers_on_two_machines_the_first_unit_stays(tmp_path: Path, monkeypatch) -> None:
    store = Store(tmp_path)
    with store.writing("scan", 3, key="k") as draft:
        draft.write_text("note", "second")
        monkeypatch.setattr(socket, "gethostname", lambda: "node-2.cluster")  # the same process id
        write(store, "k", "first")
        assert draft.folder.exists()
    assert note(store) == "first"
    assert [path.name for path in (tmp_path / "scan").iterdir()] == ["00003"]


def test_a_unit_of_another_key_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write(store, "old", "old")
    write(store, "k", "new")
    assert note(store) == "new"
    assert store.is_done("scan", 3, key="k")


def test_a_unit_that_appears_at_the_last_moment_stays(tmp_path: Path, monkeypatch) -> None:
    store = Store(tmp_path)
    remove = module.shutil.rmtree

    def rmtree(path: Path, **more: object) -> None:
        remove(path, **more)
        if path.name == "00003":
            monkeypatch.setattr(module.shutil, "rmtree", remove)
            monkeypatch.setattr(socket, "gethostname", lambda: "node-2")
            write(store, "k", "first")

    monkeypatch.setattr(module.shutil, "rmtree", rmtree)
    write(store, "k", "second")
    assert note(store) == "first"


def test_what_cannot_be_renamed_is_an_error(tmp_path: Path, monkeypatch) -> None:
    def refuse(_part: Path, _final: Path) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="read-only"):
        write(Store(tmp_path), "k", "text")
    assert list((tmp_path / "scan").iterdir()) == []
