from __future__ import annotations

import io

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.settings import Source
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.stdin import kept_stdin


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


class Broken(io.BytesIO):
    def read(self, *sizes: int) -> bytes:
        if self.tell():
            raise KeyboardInterrupt
        return super().read(3)


def test_what_is_piped_in_is_kept_and_can_be_read_again(tmp_path):
    found = kept_stdin(tmp_path / "work", io.BytesIO(b"one\ntwo\n"))
    assert (tmp_path / "work/stdin").read_bytes() == b"one\ntwo\n"
    assert found.bytes == 8
    again = kept_stdin(tmp_path / "work", io.BytesIO(b""))
    on_a_terminal = kept_stdin(tmp_path / "work", Terminal())
    assert found == again == on_a_terminal


def test_the_same_bytes_have_the_same_stamp_and_others_another(tmp_path):
    first = kept_stdin(tmp_path, io.BytesIO(b"one"))
    same = kept_stdin(tmp_path, io.BytesIO(b"one"))
    other = kept_stdin(tmp_path, io.BytesIO(b"two"))
    assert first.stamp == same.stamp != other.stamp
    assert (tmp_path / "stdin").read_bytes() == b"two"


def test_an_interruption_leaves_the_earlier_input_whole(tmp_path):
    before = kept_stdin(tmp_path, io.BytesIO(b"earlier"))
    with pytest.raises(KeyboardInterrupt):
        kept_stdin(tmp_path, Broken(b"later and longer"))
    assert [path.name for path in tmp_path.iterdir()] == ["stdin"]
    assert kept_stdin(tmp_path, io.BytesIO(b"")) == before


@pytest.mark.parametrize("stream", [Terminal(), io.BytesIO(b"")])
def test_nothing_piped_in_is_told_or_an_empty_file(tmp_path, stream):
    if stream.isatty():
        with pytest.raises(InvalidInput, match="nothing is piped in"):
            kept_stdin(tmp_path, stream)
    else:
        assert kept_stdin(tmp_path, stream).bytes == 0


def test_standard_input_is_an_input_like_any_other(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text":"a"}\n')))
    [found] = list_inputs((Source(files=("-",)),), spool=tmp_path)
    assert (found.path, found.format, found.bytes) == (str(tmp_path / "stdin"), "jsonl", 13)
    with pytest.raises(InvalidInput, match="-: standard input cannot be read here"):
        list_inputs((Source(files=("-",)),))
