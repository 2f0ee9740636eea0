"""Whatever ranks say, what lies between them is sound: nothing negative, nothing twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import Job, compute, grid, group_of, meet, named, play
from meshwright.diagnose.across.join import across
from meshwright.diagnose.across.table import rows_of
from meshwright.diagnose.rank import Instances
from meshwright.diagnose.trace.columns import Group, Message

BASE = play(Job(world=1, groups={}, steps=[[[compute(10.0)]]]))[0]
GROUPS = (
    Group(name="w", description="default_pg", ranks=(0, 1, 2), size=3),
    Group(name="a", description="", ranks=(0, 1), size=2),
)
WORDS = ("allreduce", "_allgather_base", "all_to_allv", "broadcast", "send", "recv", "barrier")


@st.composite
def messages(draw):
    """A message as a file might have it, or none."""
    if draw(st.booleans()):
        return None
    group = draw(st.sampled_from(["", "w", "a", "nobody knows"]))
    return Message(
        collective=draw(st.sampled_from(WORDS)),
        group=group,
        ranks=draw(st.sampled_from(["", "[0, 1]", "[0, 1, ...]", "[[", "[2]"])),
        group_size=draw(st.sampled_from([-1, 0, 1, 2, 3, 1000])),
        dtype=draw(st.sampled_from(["", "Float", "What"])),
        in_elements=draw(st.integers(-1, 10**7)),
        out_elements=draw(st.integers(-1, 10**7)),
        source_rank=draw(st.integers(-1, 3)),
        target_rank=draw(st.integers(-1, 3)),
    )


@st.composite
def ranks(draw):
    """Up to four ranks with a few kernels each."""
    kinds = draw(st.lists(messages(), min_size=1, max_size=4))
    found = []
    for number in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 12))
        longs = st.lists(st.integers(0, 10**6), min_size=count, max_size=count)
        start = np.array(draw(longs), np.int64)
        length = np.array(draw(longs), np.int64)
        few = st.lists(st.integers(-1, 2), min_size=count, max_size=count)
        which = st.lists(st.integers(0, len(kinds) - 1), min_size=count, max_size=count)
        instances = Instances(
            signatures=tuple(map(str, range(len(kinds)))),
            messages=tuple(kinds),
            kernels=("ncclDevKernel_SendRecv(x)",) * len(kinds),
            signature=np.array(draw(which), np.int32),
            start_ns=start,
            end_ns=start + length,
            exposed_ns=length // draw(st.integers(1, 3)),
            seq=np.array(draw(few), np.int64),
            stream=np.array(draw(few), np.int32),
            step=np.array(draw(few), np.int32),
        )
        rank = draw(st.sampled_from([number, number, number, None, 0]))
        meta = replace(BASE.meta, groups=GROUPS if draw(st.booleans()) else (), world_size=3)
        found.append(replace(BASE, rank=rank, meta=meta, instances=instances))
    return found


@settings(max_examples=150, deadline=None)
@given(found=ranks())
def test_whatever_ranks_say(found):
    told = across(found)
    if told is None:
        return
    total, waits = np.array(told.nccl_total_us_by_rank), np.array(told.wait_us_by_rank)
    assert (waits >= 0).all()
    assert (waits <= total + 1e-6).all()
    assert sum(told.times_last) == told.matched
    kernels = sum(len(r.instances.signature) for r in found if len(r.instances.signature))
    assert 2 * told.matched + told.unmatched <= kernels
    for met in told.collectives:
        assert len(set(met.ranks)) == len(met.ranks) >= 2
        assert min(met.wait_us) == 0.0
        assert met.last_rank in met.ranks
    assert sum(s.share for s in told.stragglers) <= 1.0 + 1e-9
    assert sum(a.calls for a in told.axes) >= 0.0


@settings(max_examples=15, deadline=None)
@given(
    shift=st.floats(-1e5, 1e5).filter(lambda s: abs(s) > 200.0),
    slow=st.integers(0, 7),
    extra=st.floats(100.0, 3000.0),
)
def test_another_hosts_clock_changes_no_wait(shift, slow, extra):
    lines = grid(8, [("tp", 2), ("dp", 4)])

    def rank(r):
        work = [compute(200.0 + 7.0 * r + (extra if r == slow else 0.0))]
        inner = [*work, meet(group_of(lines, "tp", r))] * 3
        return [*inner, meet(group_of(lines, "dp", r), 300.0)]

    program = [[rank(r) for r in range(8)]] * 3
    hosts = {r: "a" if r < 4 else "b" for r in range(8)}
    given = {"world": 8, "groups": named(lines), "steps": program, "hosts": hosts}
    plain = across(play(Job(**given)))
    moved = across(play(Job(**given, shift_us=dict.fromkeys(range(4, 8), shift))))
    # each of twelve meetings may begin a quarter of a microsecond off: times since 1970 are doubles
    np.testing.assert_allclose(moved.wait_us_by_rank, plain.wait_us_by_rank, atol=6.0)
    assert moved.straggler_rank == plain.straggler_rank


def test_ranks_are_in_the_order_of_their_numbers():
    played = play(Job(world=3, groups={"g": (0, 1, 2)}, steps=[[[meet("g")]] * 3] * 2))
    assert across(played[::-1]).ranks == (0, 1, 2)
    assert rows_of(played, (0, 1, 2)).ranks == (0, 1, 2)
