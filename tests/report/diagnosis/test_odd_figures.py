"""Figures that no sound trace has: every report is still made, and says nothing absurd."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import nouns
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.diagnosis import Evidence
from meshwright.report.diagnosis.html import html_report
from meshwright.report.diagnosis.page import diagnosis_page
from meshwright.report.diagnosis.perfetto import perfetto_json
from meshwright.report.diagnosis.record import diagnosis_record
from meshwright.report.machine import to_json
from meshwright.report.page import plain

ODD = [0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300, 5e-324]


def every_report(found):
    """All four, each as its reader reads it."""
    json.loads(to_json(diagnosis_record(found)))
    json.loads(perfetto_json(found))
    text = plain(diagnosis_page(found))
    assert "Traceback" not in text
    return text, html_report(found)


def with_rank(rank):
    found = nouns.diagnosis(1, everything=False)
    return replace(found, evidence=replace(found.evidence, ranks=(rank,)))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "name", ["step_time_us_median", "device_step_time_us_median", "kernel_time_sum_us"]
)
def test_odd_times_of_a_rank(name, value):
    every_report(with_rank(replace(nouns.rank(0, 1), **{name: value})))


@pytest.mark.parametrize("value", ODD)
def test_odd_attributions(value):
    one = nouns.rank(0, 1)
    for window, part in ((value, 10.0), (100.0, value), (value, value)):
        whole = replace(one.attribution, window_us=window, parts_us={"compute": part, "x": 1.0})
        every_report(with_rank(replace(one, attribution=whole)))


@pytest.mark.parametrize("value", ODD)
def test_odd_collectives_and_kernels(value):
    one = nouns.rank(0, 1)
    (first, *rest) = one.collectives
    collective = replace(
        first, sum_us=value, exposed_us=value, busbw_GBps_at_min=value, bytes=-1, group_size=-1
    )
    kernel = replace(one.top_kernels[0], sum_us=value, name="")
    classes = {"gemm": value, "norm": value}
    odd = replace(
        one, collectives=(collective, *rest), top_kernels=(kernel,), kernel_class_sum_us=classes
    )
    every_report(with_rank(odd))


@pytest.mark.parametrize("value", ODD)
def test_odd_causes_and_promises(value):
    found = nouns.diagnosis()
    (cause, *_) = found.causes
    proof = replace(cause.evidence[0], start_us=value, dur_us=value)
    lever = replace(cause.lever, gain_s=value, changes={"x": value})
    odd = replace(cause, lost_us=value, share=value, evidence=(proof,), lever=lever)
    promise = replace(found.evidence.promises[0], predicted_s=value, measured_s=value)
    evidence = replace(found.evidence, promises=(promise,))
    every_report(replace(found, causes=(odd,), evidence=evidence, step_us=value, lost_us=value))


@pytest.mark.parametrize("value", ODD)
def test_odd_pipelines_memory_and_metrics(value):
    found = nouns.diagnosis()
    worker = replace(nouns.pipeline().by_worker[0], compute_us=value, over_median=value)
    pipeline = replace(
        nouns.pipeline(),
        by_worker=(worker,),
        step_span_us_median=value,
        what_if_us={"x": value},
        chart=(("pp0", "f", 0, value, value),),
    )
    snapshot = replace(nouns.snapshot(), peak_bytes=0, fragmentation=value)
    evidence = replace(
        found.evidence, pipeline=pipeline, memory=(snapshot,), metrics={"loss": value}
    )
    every_report(replace(found, evidence=evidence))


def test_bars_of_no_length_and_none_at_all():
    one = nouns.rank(0, 1)
    flat = replace(one.bars, end_ns=one.bars.start_ns)
    nothing = np.zeros(0, dtype=np.int64)
    none = replace(
        one.bars,
        lane=nothing.astype(np.int32),
        label=nothing.astype(np.int32),
        start_ns=nothing,
        end_ns=nothing,
    )
    for bars in (flat, none, replace(flat, start_ns=flat.end_ns + 5)):
        every_report(with_rank(replace(one, bars=bars)))


@given(st.text(max_size=30))
def test_any_text_anywhere(text):
    """Names of all kinds; a line end in one must not make a line of its own."""
    found = nouns.diagnosis(2, text=text)
    page, html = every_report(found)
    calm, _ = every_report(nouns.diagnosis(2, text="x"))
    assert page.count("\n") == calm.count("\n")
    assert not [c for c in page if ord(c) < 32 and c not in "\n\t"]
    assert html.count("<script") == 2


def test_nothing_at_all():
    found = replace(nouns.diagnosis(), evidence=Evidence(), causes=(), guards=(), left=())
    assert {f.name for f in fields(found)} >= {"summary", "evidence"}
    every_report(replace(found, summary=(), step_us=None, lost_us=None, principal="", second=None))
