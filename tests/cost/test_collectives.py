"""Collectives on the links that a group really crosses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost import collectives
from meshwright.hardware.catalogue import cluster

DEGREES = st.sampled_from([1, 2, 4, 8, 16, 32])


@pytest.fixture(scope="module")
def h100():
    return cluster("H100:8", nodes=32)


def test_group_inside_a_node_uses_the_inner_link_only(h100):
    group = collectives.place(h100, 8, 1)
    assert (int(group.inner), int(group.outer)) == (8, 1)
    data_sheet_s = 7 / 8 * 1e9 / 450e9
    reached = data_sheet_s / float(collectives.all_gather_s(group, 1e9))
    assert 0.6 < reached < 0.9  # what NCCL's tests reach on this link
    assert float(collectives.latency_s(group)) == 0.0


def test_members_of_a_node_bring_their_own_ports(h100):
    """A group of 16 with 8 members a node crosses on 8 ports; one with a member a node on one."""
    packed = collectives.all_gather_s(collectives.place(h100, 16, 1), 1e9)
    spread = collectives.all_gather_s(collectives.place(h100, 16, 8), 1e9)
    assert spread > 5 * packed


def test_groups_that_do_not_divide_the_domain_still_cross(h100):
    group = collectives.place(h100, 12, 1)
    assert int(group.outer) == 2


def test_all_reduce_across_nodes_is_two_gathers(h100):
    group = collectives.place(h100, 8, 8)
    assert collectives.all_reduce_s(group, 3e8) == pytest.approx(
        2 * float(collectives.all_gather_s(group, 3e8))
    )


def test_switches_that_reduce_make_an_all_reduce_cheaper_than_two_gathers(h100):
    group = collectives.place(h100, 8, 1)
    assert collectives.all_reduce_s(group, 1e9) < 2 * collectives.all_gather_s(group, 1e9)


def test_sending_tokens_once_a_node_takes_less_network(h100):
    group = collectives.place(h100, 32, 1)
    whole = collectives.all_to_all_s(group, 1e9)
    assert collectives.all_to_all_s(group, 1e9, outer_bytes_share=0.3) < whole


@given(size=DEGREES, stride=DEGREES, share=st.floats(0.1, 1.0), data=st.floats(1.0, 1e11))
def test_slower_links_never_make_a_collective_faster(size, stride, share, data):
    machine = cluster("H100:8", nodes=128)
    for run in (
        collectives.all_gather_s,
        collectives.all_to_all_s,
        collectives.point_to_point_s,
    ):
        fast = run(collectives.place(machine, size, stride), data)
        slow = run(collectives.place(machine, size, stride, scale_up=share, scale_out=share), data)
        assert 0 <= fast <= slow


@given(st.lists(st.tuples(DEGREES, DEGREES), min_size=1, max_size=6))
def test_columns_equal_scalars(pairs):
    machine = cluster("H100:8", nodes=128)
    size = np.array([p[0] for p in pairs])
    stride = np.array([p[1] for p in pairs])
    column = collectives.all_gather_s(collectives.place(machine, size, stride), 1e8)
    each = [collectives.all_gather_s(collectives.place(machine, a, b), 1e8) for a, b in pairs]
    assert column == pytest.approx(np.array(each, dtype=float))
