"""The report as one HTML file: charts, tables and findings, without a network.

Text from traces is escaped wherever it stands (`elements`), what the script draws is JSON in which
no `<` is left, and a content security policy lets no script run but the one that is shipped.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright import __version__
from meshwright.base.words import plural
from meshwright.report.diagnosis.html import parts
from meshwright.report.diagnosis.html.elements import Html, element, joined
from meshwright.report.diagnosis.html.pictures import pictures
from meshwright.report.diagnosis.html.tabular import section

if TYPE_CHECKING:
    from meshwright.diagnose.diagnosis import Diagnosis


def html_report(found: Diagnosis) -> str:
    """The report: some 100 kB, and less than 2 MB for a thousand ranks."""
    script, style = _packaged("report.js"), _packaged("report.css")
    drawn = pictures(found)
    body = joined(
        [
            _top(found),
            element("main", *_sections(found, drawn)),
            element("footer", f"meshwright {__version__} diagnose", class_="page"),
            _script(_json(drawn), type="application/json", id="data"),
            _script(script),
        ]
    )
    head = joined(
        [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", "meshwright diagnose"),
            Html(f"<style>{style}</style>"),
        ]
    )
    page = element("html", element("head", head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _packaged(name: str) -> str:
    """A file that is shipped beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """No network, no script but this one."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _script(text: str, **attributes: str) -> Html:
    """A script element; its text must hold no `</`."""
    opening = element("script", **attributes).removesuffix("</script>")
    return Html(f"{opening}{text}</script>")


def _json(value: Any) -> str:
    """JSON that ends no script element, whatever the texts in it are."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _top(found: Diagnosis) -> Html:
    """The bar at the top: what was read, and the way to the sections."""
    evidence = found.evidence
    gpus = sorted({rank.gpu for rank in evidence.ranks if rank.gpu})
    worlds = max((rank.world_size or 0 for rank in evidence.ranks), default=0)
    read = plural(len(evidence.ranks), "rank") if evidence.ranks else ""
    read += f" of {worlds:,}" if worlds > len(evidence.ranks) else ""
    told = " · ".join(text for text in (read, *gpus[:2]) if text)
    button = element("button", "light / dark", id="theme", type="button")
    return element(
        "header",
        element("b", "meshwright"),
        element("span", "diagnose"),
        element("span", told, class_="read"),
        button,
        class_="page",
    )


def _sections(found: Diagnosis, drawn: dict[str, Any]) -> list[Html]:
    return [
        parts.answer(found),
        parts.split(found),
        parts.findings(found),
        parts.promises(found),
        parts.what_ifs(found),
        _ranks() if len(drawn["ranks"]) > 1 else Html(""),
        _timeline("pipeline", "Pipeline", drawn["pipeline"], "One step of the pipeline."),
        _timeline("timeline", "Timeline", drawn["timeline"], _about(drawn["timeline"])),
        parts.communication(found),
        parts.kernels(found),
        parts.records(found),
        parts.notes(found),
    ]


def _ranks() -> Html:
    """Where the script draws one bar for each rank, and a table that can be searched."""
    orders = ("rank", "worst first", "step", "compute", "idle")
    choices = (element("option", name) for name in orders)
    controls = element(
        "div",
        element("label", "order ", element("select", *choices, id="order")),
        element("label", "find ", element("input", id="find", type="search", placeholder="rank")),
        element("span", "", id="count"),
        class_="controls",
    )
    canvas = element(
        "div",
        element("canvas", id="ranks-chart", role="img", aria_label="a bar for each rank"),
        class_="scroll",
    )
    table = element("div", element("table", id="ranks-table"), class_="scroll")
    more = element("button", "show more", id="more", type="button", hidden="")
    return section(
        "ranks",
        "Ranks",
        controls,
        canvas,
        table,
        more,
        _noscript(),
        note="One bar for each rank: its step by kind of time. Point at one to read it.",
    )


def _timeline(ident: str, title: str, drawn: dict[str, Any] | None, note: str) -> Html:
    if drawn is None:
        return Html("")
    canvas = element("canvas", id=f"{ident}-chart", tabindex="0", role="img", aria_label=title)
    reset = element("button", "whole", id=f"{ident}-reset", type="button")
    legend = element("div", "", id=f"{ident}-legend", class_="legend")
    controls = element("div", legend, reset, class_="controls")
    note = f"{note} Drag to move, Ctrl and the wheel to zoom, double click to see all."
    return section(ident, title, controls, canvas, _noscript(), note=note)


def _about(drawn: dict[str, Any] | None) -> str:
    """What of the ranks the timeline shows."""
    if drawn is None:
        return ""
    rows, of = len(drawn["rows"]), drawn["of"]
    shown = f"{rows} of {of:,} ranks, the worst first." if rows < of else "All ranks."
    left = f" {drawn['left']:,} short bars are left out." if drawn["left"] else ""
    return f"Steps in the middle of the trace. {shown}{left}"


def _noscript() -> Html:
    return element("noscript", element("p", "This picture needs JavaScript.", class_="note"))
