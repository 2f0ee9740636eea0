"""The inputs of a build: every file that its sources name, what it is and how large."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding, Severity
from meshwright.data.source.looking import look_at
from meshwright.data.source.opening import is_url
from meshwright.data.source.places import files_of
from meshwright.data.source.stdin import STDIN, kept_stdin
from meshwright.data.source.waits import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from meshwright.data.settings import Source
    from meshwright.data.source.places import Found
    from meshwright.data.source.unit import Input


class Listing(NamedTuple):
    """The inputs that can be read, in their order, and what there is to say about the others."""

    inputs: tuple[Input, ...]
    findings: tuple[Finding, ...]


def list_inputs(
    sources: Sequence[Source],
    *,
    spool: Path | None = None,
    output: Path | None = None,
    tell: Callable[[Finding], object] | None = None,
) -> tuple[Input, ...]:
    """The inputs in the order of the sources and their files; globs and folders sorted.

    `spool` is the folder that keeps standard input, if a source names it as "-" (see `stdin`).
    `output` is the folder that a build of them will write, of which nothing is read.
    `tell` hears what is only odd. Raises InvalidInput with everything that is wrong: a name without
    a file, a file that cannot be read or is of no known kind, the same file in two sources.
    """
    listing = survey(sources, spool=spool, output=output)
    errors = [found for found in listing.findings if found.severity is Severity.ERROR]
    if errors:
        raise InvalidInput(errors)
    if tell is not None:
        for found in listing.findings:
            tell(found)
    return listing.inputs


def survey(
    sources: Sequence[Source], *, spool: Path | None = None, output: Path | None = None
) -> Listing:
    """As `list_inputs`, but with all findings, warnings too, and no error for a single file."""
    findings: list[Finding] = []
    seen: dict[tuple[object, ...], tuple[int, str]] = {}  # which source named a file first, and how
    files: list[tuple[Found, int]] = []
    for number, source in enumerate(sources):
        for name in source.files:
            found = _found(name, spool, output=output, tell=findings.append)
            findings += _repeated(found, number, sources=sources, seen=seen)
            for file in found:
                if file.identity not in seen:
                    seen[file.identity] = (number, file.path)
                    files.append((file, number))
    looks = in_order(
        lambda named: look_at(named[0], named[1], sources[named[1]]),
        files,
        at_once=any(is_url(file.path) for file, _ in files),
    )
    findings += [finding for look in looks for finding in look.findings]
    return Listing(tuple(look.input for look in looks if look.input is not None), tuple(findings))


def _found(
    name: str, spool: Path | None, *, output: Path | None, tell: Callable[[Finding], None]
) -> list[Found]:
    try:
        if name == STDIN:
            return [kept_stdin(spool)]
        return files_of(name, tell, output="" if output is None else str(output))
    except InvalidInput as error:
        for finding in error.findings:
            tell(finding)
        return []


def _repeated(
    found: Sequence[Found],
    number: int,
    *,
    sources: Sequence[Source],
    seen: Mapping[tuple[object, ...], tuple[int, str]],
) -> Iterator[Finding]:
    """What to say of files that were named before: once in a source will do, two are a puzzle."""
    again = [(file, seen[file.identity]) for file in found if file.identity in seen]
    for others in (False, True):
        told = [(file, path) for file, (first, path) in again if (first != number) == others]
        if not told:
            continue
        file, path = told[0]
        more = f", and {len(told) - 1:,} more files" if len(told) > 1 else ""
        where = f"source {sources[seen[file.identity][0]].name}" if others else "this source"
        yield Finding(
            message=f"already named in {where} as {path}{more}",
            severity=Severity.ERROR if others else Severity.WARNING,
            file=file.path,
            reason="the same file twice",
            hint="leave it in one of the sources" if others else "it is read once",
        )
