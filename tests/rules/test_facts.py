"""What rules lean on: legal values nearby, environment variables, closed-form figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.hardware.cluster import Link
from meshwright.rules.environment import algorithms, integer, protocols, variable
from meshwright.rules.estimate import (
    dense_gradient_bytes,
    group_bytes_per_s,
    hop_bytes_per_s,
    parameters_per_rank,
    peak_flops,
    step_time_s,
    total_parameters,
)
from meshwright.rules.example import build_job
from meshwright.rules.nearest import divisors_near, multiples_near


@given(number=st.integers(1, 10**6), value=st.integers(1, 10**6))
def test_divisors_divide_and_no_nearer_one_is_left_out(number: int, value: int) -> None:
    found = divisors_near(number, value)
    assert all(number % d == 0 for d in found)
    assert list(found) == sorted(found)
    distance = max(max(d, value) / min(d, value) for d in found)
    for other in (1, number):
        assert other in found or max(other, value) / min(other, value) >= distance


@given(step=st.integers(1, 10**4), value=st.integers(0, 10**6))
def test_multiples_enclose_the_value(step: int, value: int) -> None:
    found = multiples_near(step, value)
    assert all(m % step == 0 and m > 0 for m in found)
    assert found[-1] > value
    assert found[-1] - value <= step


def test_no_divisor_or_multiple_of_nothing() -> None:
    assert divisors_near(0, 4) == ()
    assert multiples_near(0, 4) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ring", ("ring",)),
        ("Ring,Tree", ("ring", "tree")),
        ("^NVLS,PAT", ()),
        ("allreduce:Ring;broadcast:Tree", ("ring", "tree")),
        ("", ()),
    ],
)
def test_forced_algorithms(text: str, expected: tuple[str, ...]) -> None:
    assert algorithms(build_job(nccl_algo=text)) == expected
    assert algorithms(build_job(environment=(("NCCL_ALGO", text),))) == expected


def test_environment_variables() -> None:
    job = build_job(environment=(("A", "1"), ("B", "x"), ("A", "2"), ("NCCL_PROTO", "LL,Simple")))
    assert variable(job, "A") == "2"
    assert integer(job, "A") == 2
    assert integer(job, "B") is None
    assert integer(job, "C") is None
    assert protocols(job) == ("ll", "simple")


def test_rates_follow_the_links_that_a_group_crosses() -> None:
    cluster = build_job(nodes=8, link_bytes_per_s=450e9, net_bytes_per_s=50e9).cluster
    sizes, strides = np.array([8, 2, 8, 64]), np.array([1, 4, 8, 1])
    rates = group_bytes_per_s(cluster, sizes, strides)
    assert rates.tolist() == [450e9, 450e9, 50e9, 400e9]
    assert hop_bytes_per_s(cluster, sizes, strides).tolist() == [450e9, 450e9, 50e9, 50e9]


def test_an_oversubscribed_spine_slows_what_reaches_it() -> None:
    cluster = build_job(nodes=8, net_bytes_per_s=50e9, net_domain=16).cluster
    spine = Link(
        name="spine",
        kind="infiniband",
        domain=10**6,
        bytes_per_s=50e9,
        latency_s=1e-5,
        oversubscription=4.0,
    )
    cluster = replace(cluster, links=(*cluster.links, spine))
    assert hop_bytes_per_s(cluster, 2, 8) == 50e9
    assert hop_bytes_per_s(cluster, 8, 8) == 12.5e9


def test_step_time_is_as_stated_or_from_peak() -> None:
    assert step_time_s(build_job(step_time_s=3.0)) == 3.0
    job = build_job(seq_len=4096, global_batch_size=512)
    flops = 6 * 7.5e9 * 4096 * 512
    assert step_time_s(job) == pytest.approx(flops / (64 * 989e12 * 0.4), rel=0.02)


def test_unknown_peak_is_not_a_number() -> None:
    assert np.isnan(peak_flops(build_job(precision=5)))
    assert peak_flops(build_job(precision=np.array([1, 3]))).tolist() == [989e12, 1979e12]


def test_parameters_of_a_rank() -> None:
    job = build_job(model="mixtral-8x7b", tp=2, pp=2, ep=8)
    total = total_parameters(job.model)
    assert total == pytest.approx(46.7e9, rel=0.01)
    whole = build_job(model="mixtral-8x7b")
    assert parameters_per_rank(whole) == pytest.approx(total)
    assert parameters_per_rank(job) < total / 16 + 1.6e9
    assert dense_gradient_bytes(build_job(lora_rank=8)) == 0
