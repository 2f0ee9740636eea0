"""What a check found: findings by file, what could not be read, and what was mended."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, Finding, Severity
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One configuration and what the rules have against it.

    `file` is where it starts, `sources` are the texts that findings point into, by file. `summary`
    says in one line what the configuration amounts to, `figures` are numbers that follow from it,
    units in their names. `error` says why it could not be read ("" if it could); `findings` then
    say where.
    """

    file: str
    framework: str = ""
    version: str = ""
    findings: tuple[Finding, ...] = ()
    summary: str = ""
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """The findings, or why there are none."""
        if self.findings or not self.error:
            return self.findings
        return (Finding(message=self.error, file=self.file),)

    def replace(self, **changes: Any) -> Checked:
        """A copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All configurations of one check, in the order given.

    `skipped` are files of a folder that are no configurations. `fixed` counts the findings that
    were mended, and are no longer among those of `files`. `unsafe` tells that fixes which may
    change the plan count as fixable.
    """

    files: tuple[Checked, ...]
    skipped: tuple[str, ...] = ()
    fixed: int = 0
    unsafe: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all files, in their order; one of its own for what is unreadable."""
        return tuple(finding for checked in self.files for finding in checked.all_findings)

    @property
    def unreadable(self) -> tuple[Checked, ...]:
        """Files that could not be read."""
        return tuple(checked for checked in self.files if checked.error)

    @property
    def sources(self) -> dict[str, str]:
        """The texts that findings point into, by file."""
        return {file: text for checked in self.files for file, text in checked.sources.items()}

    def replace(self, **changes: Any) -> Report:
        """A copy with some fields changed."""
        return replace(self, **changes)


def exit_code(report: Report) -> int:
    """2 when a file is unreadable, else 1 when there is an error or a warning, else 0."""
    if report.unreadable:
        return EXIT_USAGE
    found = any(finding.severity is not Severity.INFO for finding in report.findings)
    return EXIT_FINDINGS if found else EXIT_OK


def is_fixable(finding: Finding, *, unsafe: bool = False) -> bool:
    """Whether `--fix` mends a finding.

    With `unsafe` an edit that changes the plan counts too, where the plan is not legal; one that
    would only make it faster is advice. Notes are not mended: nothing is wrong there.
    """
    if not finding.edits or finding.severity is Severity.INFO:
        return False
    changes_plan = unsafe and finding.severity is Severity.ERROR
    return changes_plan or all(edit.safe for edit in finding.edits)
