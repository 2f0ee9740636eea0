"""Links are judged by their peers, by the plan, or by the device's usual node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from built_evidence import job, job_of_ranks, link

from meshwright.diagnose.across.noun import AxisTime
from meshwright.diagnose.causes import causes
from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.exposed import portions
from meshwright.diagnose.causes.links import slow_link_takes_us, slow_links
from meshwright.diagnose.diagnosis import Evidence


def with_link(planned: bool = False, **fields) -> Evidence:
    sent = AxisTime(
        axis="dp", total_us=3e4, exposed_us=3e4, wait_us=0.0, transfer_us=3e4, calls=4, bytes=4e8
    )
    found = job_of_ranks(4, comm=0.3, links=(link(**fields),), axes=(sent,))
    return replace(found, job=job(dp=4)) if planned else found


def test_a_link_below_its_peers_is_slow() -> None:
    found_in = with_link(gbps=30.0, of_peers=0.1, slow=True)
    (slow,) = slow_links(case_of(found_in))
    assert (slow.share, slow.by) == (0.1, "groups like it")
    cause = next(c for c in causes(found_in) if c.code == "COM911")
    assert cause.ranks == (0, 1, 2, 3)
    assert "10% of groups like it" in cause.message


def test_a_link_as_fast_as_its_node_is_not() -> None:
    assert slow_links(case_of(with_link(gbps=300.0))) == []


def test_without_a_plan_the_devices_usual_node_is_the_measure() -> None:
    (slow,) = slow_links(case_of(with_link(gbps=20.0)))
    assert slow.by == "the usual node of this device"
    assert 0 < slow.share < 0.5
    cause = next(c for c in causes(with_link(gbps=20.0)) if c.code == "COM911")
    assert cause.confidence == "low"
    assert any("usual one" in guard for guard in cause.guards)


@pytest.mark.parametrize("spans", [True, None])
def test_a_link_that_may_cross_nodes_has_no_usual_node(spans: bool | None) -> None:
    assert slow_links(case_of(with_link(gbps=20.0, spans=spans))) == []


def test_a_plan_for_gpus_judges_no_link_between_cpus() -> None:
    found_in = with_link(planned=True, gbps=1.0, of_cluster=0.01, slow=True)
    assert len(slow_links(case_of(found_in))) == 1
    hosts = tuple(replace(r, computes_on="host") for r in found_in.ranks)
    assert slow_links(case_of(replace(found_in, ranks=hosts))) == []


def test_a_slow_link_takes_no_more_than_its_axis_has() -> None:
    case = case_of(with_link(gbps=20.0))
    takes, room = slow_link_takes_us(case), portions(case)
    assert set(takes) <= set(room)
    assert all(us <= room[name] for name, us in takes.items())


def test_portions_of_communication_add_up_to_it() -> None:
    for comm, wait in ((0.3, 0.0), (0.3, 20_000.0), (0.01, 0.0)):
        case = case_of(job_of_ranks(4, comm=comm, wait_us=wait))
        assert sum(portions(case).values()) == pytest.approx(case.part_us("exposed_comm"))
