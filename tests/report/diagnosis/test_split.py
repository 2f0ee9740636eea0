"""The split of a step: its parts sum to it, in figures and as printed."""

from __future__ import annotations

from dataclasses import replace

import nouns
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.rank import Kernel
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.split import KINDS, rank_parts, split_of
from meshwright.report.diagnosis.tables import split_table

SHARES = st.lists(st.floats(0, 1), min_size=3, max_size=6).filter(lambda s: sum(s) > 0.01)


def evidence(count=4):
    return nouns.diagnosis(count).evidence


def test_parts_sum_to_the_step():
    split = split_of(evidence())
    assert split.step_us == nouns.STEP_US
    assert sum(part.us for part in split.parts) == pytest.approx(split.step_us, rel=1e-12)
    assert sum(part.share for part in split.parts) == pytest.approx(1, rel=1e-12)
    assert {part.kind for part in split.parts} == set(KINDS)


def test_compute_is_shared_out_by_class_and_communication_by_axis():
    split = split_of(evidence())
    names = {part.kind: [] for part in split.parts}
    for part in split.parts:
        names[part.kind].append(part.name)
    assert names["compute"][0] == "matrix products"
    assert {"tp allreduce", "dp allreduce"} <= set(names["communication"])
    assert "host launched late" in names["idle"]


def test_products_of_a_serving_engine_are_no_other_compute():
    name = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16"
    kernel = Kernel(name=name, kind="gemm", sum_us=75.0, count=1, pct_of_kernel_sum=75.0)
    classes = {"other": 80.0, "norm": 20.0}
    ranks = tuple(
        replace(r, kernel_class_sum_us=classes, top_kernels=(kernel,)) for r in evidence(1).ranks
    )
    split = split_of(Evidence(ranks=ranks))
    own = {part.name: part.us for part in split.parts if part.kind == "compute"}
    assert own["matrix products"] == pytest.approx(0.75 * split.us_of("compute"))
    assert own["other"] == pytest.approx(0.05 * split.us_of("compute"))


def test_communication_that_no_collective_names_keeps_its_share():
    ranks = tuple(replace(r, collectives=r.collectives[:1]) for r in evidence().ranks)
    split = split_of(Evidence(ranks=ranks))
    own = {part.name: part.us for part in split.parts if part.kind == "communication"}
    exposed = sum(r.gpu_span.exposed_comm_us for r in ranks)
    named = sum(r.collectives[0].exposed_us for r in ranks)
    if exposed > named:
        assert own["unnamed"] / sum(own.values()) == pytest.approx(1 - named / exposed)
    assert sum(own.values()) == pytest.approx(split.us_of("communication"))


def test_the_step_of_a_pipeline_has_parts_too():
    split = split_of(Evidence(pipeline=nouns.pipeline()))
    assert sum(part.us for part in split.parts) == pytest.approx(40_000.0)
    assert any("bubble" in part.name for part in split.parts)


def test_nothing_accounted_for_has_no_split():
    bare = tuple(replace(r, attribution=None, step_attributions=()) for r in evidence().ranks)
    assert split_of(Evidence(ranks=bare)) is None
    assert rank_parts(bare[0]) == {}


@given(SHARES)
def test_any_attribution_sums_to_the_step(shares):
    names = ("compute", "exposed_comm", "idle_dataloader", "exposed_memory", "a_new_part", "x")
    window = 1e6
    total = sum(shares)
    found = {n: window * s / total for n, s in zip(names, shares, strict=False)}
    one = nouns.rank(0, 1)
    whole = replace(one.attribution, window_us=window, parts_us=found)
    split = split_of(Evidence(ranks=(replace(one, attribution=whole),)))
    assert sum(part.us for part in split.parts) == pytest.approx(split.step_us, rel=1e-9)
    table = split_table(split)
    printed = [float(row.cells["time"].replace(",", "")) for row in table.rows]
    assert sum(printed[:-1]) == pytest.approx(printed[-1], abs=1e-6)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(0, 3))
def test_rounded_texts_sum_to_the_rounded_sum(values, digits):
    texts = [float(text.replace(",", "")) for text in figures.rounded(values, digits)]
    assert sum(texts) == pytest.approx(round(sum(values), digits), abs=1.1 * 10**-digits)
    assert all(abs(t - v) <= 10**-digits + 1e-6 for t, v in zip(texts, values, strict=True))


def test_names_from_traces_steer_no_terminal():
    assert figures.name("a\x1b[31mb\nc") == "a\\x1b[31mb c"
    assert len(figures.name("x" * 1000)) == 72
