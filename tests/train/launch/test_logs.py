"""Logs of ranks, the cause among several failures, and events over a pipe."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.launch import event
from meshwright.train.launch.causes import cause_of
from meshwright.train.launch.codes import described
from meshwright.train.launch.event import Event, Reader
from meshwright.train.launch.logs import Tail, last_lines, log_of


def failed(rank, code=1):
    return Event(kind=event.FAILED, rank=rank, code=code)


def write(folder, rank, text):
    path = log_of(folder, 0, rank)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_last_lines_are_those_that_a_reader_saw(tmp_path):
    path = write(tmp_path, 0, "one\nstep 1\rstep 2\rstep 3\n\n  \nlast\n")
    assert last_lines(path, 3) == ("one", "step 3", "last")
    assert last_lines(path, 1) == ("last",)
    assert last_lines(tmp_path / "none", 3) == ()


def test_last_lines_of_a_long_log_that_is_no_text(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\xff" * 1_000_000 + b"\nend\n")
    assert last_lines(path, 1) == ("end",)


def test_a_tail_gives_every_byte_once(tmp_path):
    path = tmp_path / "log"
    tail = Tail()
    assert tail.read() == ""
    path.write_text("before\n")
    tail.follow(path, skip_bytes=7)
    assert tail.read() == ""
    with path.open("a") as file:
        file.write("a")
        file.flush()
        assert tail.read() == "a"
        file.write("b\n")
    assert tail.read() == "b\n"
    assert tail.read() == ""
    tail.follow(tmp_path / "none", skip_bytes=0)
    assert tail.read() == ""


def test_the_cause_is_the_rank_that_was_killed(tmp_path):
    write(tmp_path, 0, "RuntimeError: Connection reset by peer\n")
    cause = cause_of([failed(0), failed(1, -9), failed(2)], tmp_path)
    assert cause.rank == 1
    assert cause.text == "rank 1 ended with signal SIGKILL, then ranks 0, 2"


def test_the_cause_is_the_rank_that_speaks_of_no_lost_peer(tmp_path):
    write(tmp_path, 0, "RuntimeError: Connection closed by peer [127.0.0.1]\n")
    write(tmp_path, 1, "ValueError: a real reason\n")
    cause = cause_of([failed(0), failed(1)], tmp_path)
    assert (cause.rank, cause.lines) == (1, ("ValueError: a real reason",))


def test_among_equals_the_first_to_end_is_the_cause(tmp_path):
    assert cause_of([failed(2), failed(1)], tmp_path).rank == 2
    assert cause_of([failed(2)], tmp_path).text == "rank 2 ended with exit code 1"


def test_codes_in_words():
    assert described(3) == "exit code 3"
    assert described(-15) == "signal SIGTERM"
    assert described(-99) == "signal 99"


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.lists(st.builds(Event, kind=texts, text=texts, lines=st.tuples(texts))), st.integers(1, 9)
)
def test_events_come_through_a_pipe_whatever_they_hold(events, size):
    reader, writer = os.pipe()
    try:
        heard = Reader(reader)
        got = []
        for one in events:
            event.write(writer, one)
            if len(got) % size == 0:
                got += heard.read()
        assert got + heard.read() == events
    finally:
        os.close(reader)
        os.close(writer)


def test_half_an_event_waits_for_its_rest():
    reader, writer = os.pipe()
    try:
        heard = Reader(reader)
        os.write(writer, b'{"kind": "failed", "ra')
        assert heard.read() == []
        os.write(writer, b'nk": 3}\n')
        assert heard.read() == [failed(3, 0)]
    finally:
        os.close(reader)
        os.close(writer)


def test_a_supervisor_that_has_gone_is_no_reason_to_fail():
    reader, writer = os.pipe()
    os.close(reader)
    event.write(writer, failed(1))
    os.close(writer)
