"""The report as HTML: whole, self-contained, and no text in it that becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import nouns
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.diagnosis import Evidence
from meshwright.report.diagnosis.html import html_report
from meshwright.report.diagnosis.html.elements import Html, element, joined
from meshwright.report.diagnosis.html.pictures import MOST_BARS, MOST_ROWS

MOST_BYTES = 10_000_000
SECTIONS = ["answer", "split", "findings", "plan", "what-if", "ranks", "pipeline", "timeline"]
SECTIONS += ["communication", "kernels", "records", "notes"]


class Outline(HTMLParser):
    """Tags, attributes and texts of a page, and whether tags are closed in their order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.open, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


@pytest.fixture(scope="module")
def page():
    return html_report(nouns.diagnosis())


def test_it_has_every_section_and_is_well_formed(page):
    outline = Outline(page)
    assert outline.open == []
    identities = [value for name, value in outline.attributes if name == "id"]
    assert [i for i in identities if i in SECTIONS] == SECTIONS
    assert len(identities) == len(set(identities))


def test_it_needs_nothing_from_elsewhere(page):
    outline = Outline(page)
    assert {"link", "img", "iframe", "object", "embed", "base"}.isdisjoint(outline.tags)
    assert {"src", "href", "action"}.isdisjoint(name for name, _ in outline.attributes)
    assert "url(" not in page
    assert "@import" not in page
    assert not re.search(r"https?:", page)


def test_only_its_own_script_may_run(page):
    policy = dict(Outline(page).attributes)["content"]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe-inline" not in policy.split(";")[1]


def test_texts_of_traces_are_no_markup(page):
    evil = html_report(nouns.diagnosis(text=nouns.BREAKOUT + nouns.SCRIPT))
    calm, outline = Outline(page), Outline(evil)
    assert outline.open == []
    assert outline.tags == calm.tags
    assert any("<script>" in text for text in outline.texts)
    assert "\x1b" not in evil
    assert "\u202e" not in evil


@given(st.text(max_size=40))
def test_no_text_leaves_its_element(text):
    outline = Outline(element("p", text, element("b", text), title=text))
    assert outline.tags == ["p", "b"]
    assert outline.open == []


@given(st.text(st.sampled_from("<>/script&\"'\u2028!-"), max_size=30))
def test_no_text_ends_the_data(text):
    found = nouns.diagnosis(2, everything=False)
    late = replace(found.evidence.across.stragglers[0], rank=1, because=text)
    across = replace(found.evidence.across, stragglers=(late,))
    shown = html_report(replace(found, evidence=replace(found.evidence, across=across)))
    assert text in [rank[9] for rank in data_of(shown)["ranks"]]


def test_what_is_markup_stays_markup():
    assert joined([Html("<b>"), "<b>"]) == "<b>&lt;b&gt;"


def test_a_thousand_ranks_are_one_small_file():
    crowded = nouns.bars(count=20_000)
    found = nouns.diagnosis(1000)
    ranks = tuple(replace(rank, bars=crowded) for rank in found.evidence.ranks)
    text = html_report(replace(found, evidence=replace(found.evidence, ranks=ranks)))
    drawn = data_of(text)
    assert len(text) < MOST_BYTES / 4
    assert len(drawn["ranks"]) == 1000
    assert len(drawn["timeline"]["rows"]) == MOST_ROWS
    assert sum(len(row["bars"]) for row in drawn["timeline"]["rows"]) <= 4 * MOST_BARS
    assert drawn["timeline"]["rows"][0]["name"] == f"rank {nouns.LATE}"
    assert "64 of 1,000 ranks, the worst first." in text


def test_the_timeline_shows_steps_in_the_middle():
    (row, *_) = data_of(html_report(nouns.diagnosis(2)))["timeline"]["rows"]
    assert [step[0] for step in row["steps"]] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert min(row["bars"][2::4]) >= 0
    assert max(s + d for s, d in zip(row["bars"][2::4], row["bars"][3::4], strict=True)) <= (
        2 * nouns.STEP_US
    )


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(),
        Evidence(pipeline=nouns.pipeline()),
        Evidence(memory=(nouns.snapshot(),)),
        Evidence(ranks=(replace(nouns.rank(0, 1), attribution=None, bars=None, gpu_span=None),)),
    ],
    ids=["nothing", "pipeline", "memory", "no device"],
)
def test_little_evidence_makes_a_page_too(evidence):
    found = replace(
        nouns.diagnosis(), evidence=evidence, causes=(), step_us=None, lost_us=None, left=()
    )
    assert Outline(html_report(found)).open == []
