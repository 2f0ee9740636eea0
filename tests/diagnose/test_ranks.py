"""Numbers, hosts and steps of ranks."""

from __future__ import annotations

from dataclasses import replace

import nouns
import pytest

from meshwright.diagnose.ranks import hosts_of, numbers_of, rank_step_us
from meshwright.diagnose.trace.columns import Meta


def ranks(*numbers):
    return [replace(nouns.rank(0, 2), rank=number) for number in numbers]


@pytest.mark.parametrize(
    ("said", "numbers"),
    [((3, 1), [3, 1]), ((None, 7), [0, 1]), ((2, 2), [0, 1]), ((), [])],
)
def test_ranks_that_are_not_told_apart_have_their_order(said, numbers):
    assert numbers_of(ranks(*said)) == numbers


@pytest.mark.parametrize(
    ("metas", "hosts"),
    [
        ((Meta(host="a"), Meta(host="b")), {0: "a", 9: "b"}),
        ((Meta(gpus=("x",) * 8),) * 2, {0: "node 0", 9: "node 1"}),
        ((Meta(gpus=("x",) * 8), Meta(gpus=("x",) * 4)), {0: "", 9: ""}),
        ((Meta(), Meta()), {0: "", 9: ""}),
    ],
)
def test_hosts_by_name_or_by_the_gpus_that_files_count(metas, hosts):
    each = [replace(r, meta=m) for r, m in zip(ranks(0, 9), metas, strict=True)]
    assert hosts_of([0, 9], each) == hosts


def test_a_step_is_the_devices_else_the_hosts_else_the_window():
    rank = replace(nouns.rank(0, 2), device_step_time_us_median=5.0, step_time_us_median=4.0)
    assert rank_step_us(rank) == 5.0
    rank = replace(rank, device_step_time_us_median=None)
    assert rank_step_us(rank) == 4.0
    rank = replace(rank, step_time_us_median=None)
    assert rank_step_us(rank) == rank.attribution.window_us
    assert rank_step_us(replace(rank, attribution=None, gpu_span=None)) == 0.0
