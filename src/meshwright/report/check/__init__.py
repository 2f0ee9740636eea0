"""What `meshwright check` found, one module a format; each has `render(report, texts) -> str`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts

FORMATS = ("text", "concise", "json", "markdown", "github", "gitlab", "sarif", "junit")


def render(report: Report, texts: Texts, *, form: str) -> str:
    """The report in one of `FORMATS`; only that format's module is imported."""
    rendered: str = import_module(f"{__name__}.{form}").render(report, texts)
    return rendered
