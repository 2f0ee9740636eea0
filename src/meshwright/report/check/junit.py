"""JUnit's XML, which every build server reads: a suite a file, a case a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from meshwright.base.finding import Severity
from meshwright.base.pattern import pattern
from meshwright.report.check.path import relative
from meshwright.report.findings import finding_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Checked, Report
    from meshwright.report.check.texts import Texts

_IMPOSSIBLE = pattern("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, texts: Texts) -> str:
    """One suite a file; errors and warnings are failures, notes pass with their text."""
    suites = [_suite(checked, texts) for checked in report.files]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="meshwright check">']
    lines += [line for suite in suites for line in suite]
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _suite(checked: Checked, texts: Texts) -> list[str]:
    failures = sum(finding.severity is not Severity.INFO for finding in checked.findings)
    errors = int(bool(checked.error))
    cases = [line for finding in checked.findings for line in _case(finding, checked, texts)]
    if not checked.findings:
        cases = list(_whole(checked))
    count = max(len(checked.findings), 1)
    head = f"<testsuite name={_quoted(relative(checked.file))} tests={_quoted(str(count))}"
    head += f' failures="{failures}" errors="{errors}">'
    return [f"  {head}", *cases, "  </testsuite>"]


def _whole(checked: Checked) -> Iterator[str]:
    """The one case of a file without findings."""
    head = f'    <testcase name="check" classname={_quoted(relative(checked.file))}'
    if not checked.error:
        yield f"{head}/>"
        return
    yield f"{head}>"
    yield f"      <error message={_quoted(checked.error)}/>"
    yield "    </testcase>"


def _case(finding: Finding, checked: Checked, texts: Texts) -> Iterator[str]:
    """One finding; its body is what the terminal would show."""
    name = f"{finding.code or 'meshwright'}:{finding.line}:{finding.column}"
    body = escape(_possible("\n".join(finding_lines(finding, texts))))
    place = f' file={_quoted(relative(finding.file))} line="{finding.line}"'
    yield (
        f"    <testcase name={_quoted(name)} classname={_quoted(relative(checked.file))}"
        f"{place if finding.file else ''}>"
    )
    if finding.severity is Severity.INFO:
        yield f"      <system-out>{body}</system-out>"
    else:
        kind = finding.severity.label
        message = _quoted(finding.message)
        yield f'      <failure type="{kind}" message={message}>{body}</failure>'
    yield "    </testcase>"


def _quoted(text: str) -> str:
    return quoteattr(_possible(text))


def _possible(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return _IMPOSSIBLE.sub("\N{REPLACEMENT CHARACTER}", text)
