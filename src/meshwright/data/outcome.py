"""What there is to say of a finished build: that it holds nothing, or holds nothing out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.dry import Projection
    from meshwright.data.settings import Build
    from meshwright.data.shards.manifest import Manifest

_SHOWN = 3
_WANTED = 4  # documents that the share of a hint would hold out


def outcome(settings: Build, manifest: Manifest) -> Iterator[Finding]:
    """An error where no document is kept, a warning where the share for validation has none."""
    kept = manifest.counts.get("", 0)
    if not kept:
        yield _nothing_kept(settings.output.folder, manifest.counts)
    elif settings.validation and manifest.shards and not manifest.of_split("valid"):
        share = min(0.5, float(f"{_WANTED / kept:.1g}"))
        yield Finding(
            message=f"validation = {settings.validation:g} holds out none of {kept:,} documents",
            severity=Severity.WARNING,
            hint=f"a larger share, as --validation {share:g}, or none",
        )


def foreseen(settings: Build, found: Projection) -> Iterator[Finding]:
    """What a dry run finds of that: the error of the build where all of the input was tried.

    A warning where it was a sample. Nothing of input that the build refuses for its bad lines.
    """
    kept = round(found.kept * found.documents)
    if kept or found.refused:
        return
    counts = {why: round(share * found.documents) for why, share in found.dropped.items()}
    nothing = _nothing_kept(settings.output.folder, counts)
    if found.is_all:
        yield nothing
    else:
        message = f"of the sample: {nothing.message}"
        yield nothing.replace(message=message, severity=Severity.WARNING)


def passed_over(too_short: Mapping[str, int]) -> Iterator[Finding]:
    """Texts of test sets, by file, that were not sought."""
    count = sum(too_short.values())
    if count:
        files = ", ".join(sorted(too_short)[:_SHOWN]) + (", ..." if len(too_short) > _SHOWN else "")
        texts, were = ("text", "was") if count == 1 else ("texts", "were")
        yield Finding(
            message=f"{count:,} {texts} of the test sets {were} too short to be sought: {files}",
            severity=Severity.INFO,
            key="decontaminate.files",
            hint="answers and names are: documents that hold them alone stay",
        )


def _nothing_kept(folder: str, counts: Mapping[str, int]) -> Finding:
    """The error for an output without a document."""
    read = sum(counts.values())
    if not read:
        return Finding(
            message="no document was read: the output is empty",
            file=folder,
            hint="see that the input holds text, and that every line of it can be read",
        )
    gone = sorted(((count, why) for why, count in counts.items() if why), reverse=True)
    reasons = ", ".join(f"{why} {count:,}" for count, why in gone[:_SHOWN])
    more = f", and {len(gone) - _SHOWN:,} more reasons" if len(gone) > _SHOWN else ""
    return Finding(
        message=f"no document is kept of {read:,} that were read: {reasons}{more}",
        file=folder,
        hint=f"`meshwright explain {gone[0][1]}` says which settings decide",
    )
