"""The report in a headless Chromium: drawn, searchable, quiet, and nothing of a trace runs."""

from __future__ import annotations

import nouns
import pytest
from browser import Browser, executable

from meshwright.report.diagnosis.html import html_report

pytestmark = pytest.mark.skipif(
    executable() is None, reason="no chromium on PATH (Debian: apt install chromium)"
)
FEW_ELEMENTS = 2000  # of a page that is quick to lay out, whatever the number of ranks
INK = """(() => {
  const canvas = document.getElementById(%r);
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let n = 0; n < pixels.length; n += 4)
    if (pixels[n + 3] === 255) seen.add(pixels[n] + ',' + pixels[n + 1] + ',' + pixels[n + 2]);
  return seen.size;
})()"""


def write(folder, found):
    path = folder / "report.html"
    path.write_text(html_report(found), encoding="utf-8")
    return path


@pytest.fixture(name="browser", scope="module")
def _browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def _quiet(browser):
    """Every page: no word on the console, no error, no request but for the file itself."""
    for heard in (browser.console, browser.errors, browser.requests):
        heard.clear()
    yield
    assert browser.console == []
    assert browser.errors == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file"}
    assert len(browser.requests) <= 1


def test_everything_is_drawn(browser, tmp_path):
    browser.open(write(tmp_path, nouns.diagnosis()))
    assert browser.run("document.querySelectorAll('main > section').length") == 12
    for canvas in ("ranks-chart", "timeline-chart", "pipeline-chart"):
        assert browser.run(INK % canvas) >= 3
    assert browser.run("document.querySelectorAll('#ranks-table tbody tr').length") == 4
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_texts_of_traces_do_not_run(browser, tmp_path):
    browser.open(write(tmp_path, nouns.diagnosis(text=nouns.BREAKOUT + nouns.SCRIPT)))
    assert browser.run("document.title") == "meshwright diagnose"
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.getElementById('findings').textContent.includes('<script>')")
    assert browser.run(INK % "ranks-chart") >= 3


def test_a_thousand_ranks_open_at_once_and_can_be_searched(browser, tmp_path):
    browser.open(write(tmp_path, nouns.diagnosis(1000)))
    assert browser.run("document.querySelectorAll('*').length") < FEW_ELEMENTS
    worst = "document.querySelector('#ranks-table tbody td').textContent"
    assert browser.run("document.getElementById('order').value") == "worst first"
    assert browser.run(worst) == str(nouns.LATE)
    rows = "document.querySelectorAll('#ranks-table tbody tr').length"
    assert browser.run(rows) == 25
    browser.run("document.getElementById('more').click()")
    assert browser.run(rows) == 125
    find = (
        "(() => { const box = document.getElementById('find'); box.value = '700-709';"
        "box.dispatchEvent(new Event('input')); })()"
    )
    browser.run(find)
    assert browser.run(rows) == 10
    assert browser.run("document.getElementById('count').textContent") == "10 of 1000"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_a_timeline_is_zoomed_and_read(browser, tmp_path):
    browser.open(write(tmp_path, nouns.diagnosis()))
    browser.run("document.getElementById('timeline-chart').scrollIntoView({block: 'center'})")
    box = browser.run(
        "(() => { const b = document.getElementById('timeline-chart').getBoundingClientRect();"
        "return [b.left, b.top, b.width]; })()"
    )
    where = {"x": box[0] + 89, "y": box[1] + 26}
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", **where)
    told = browser.run("document.getElementById('tip').textContent")
    assert told.startswith("rank 3, compute\nampere_bf16_gemm\n")
    before = browser.run("document.getElementById('timeline-chart').toDataURL()")
    wheel = {"deltaX": 0, "deltaY": -400, "modifiers": 2}
    browser.send("Input.dispatchMouseEvent", type="mouseWheel", **where, **wheel)
    assert browser.run("document.getElementById('timeline-chart').toDataURL()") != before
    browser.run("document.getElementById('timeline-reset').click()")
    assert browser.run("document.getElementById('timeline-chart').toDataURL()") == before


def test_light_and_dark(browser, tmp_path):
    browser.open(write(tmp_path, nouns.diagnosis(1)))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(paper) != light
    assert browser.run("document.documentElement.dataset.theme") == "dark"
