"""The data of a run before it is started: judged under the plan, and built where it is text."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.feeding import data_findings
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.units import format_duration
from meshwright.data.shards.names import MANIFEST, SPLITS
from meshwright.train.feeding.kinds import BLEND, INDEXED, SHARDS, TEXT, kind_of, prefix_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.data.settings import Build
    from meshwright.data.shards.folder import Folder
    from meshwright.data.work.progress import Progress
    from meshwright.plan.job import Job
    from meshwright.train.settings import Feed, Spec

    Tell = Callable[[str], object]

DATA = "data"  # folder of what is built, in that of the run
HELD_OUT = 0.05  # share of the documents, where the run evaluates on what is held out
_SPLIT_HINT = "build it with validation = 0.01, name a second source with --eval-data, or no --eval"
_POLL_S = 1.0
_LONGEST_S = 24 * 3600.0


def source_findings(job: Job, feed: Feed) -> list[Finding]:
    """What is wrong with the data for this job; InvalidInput where there is none."""
    found = _judged(job, feed.source, feed)
    if feed.evaluation is not None and feed.evaluation != feed.source:
        found += _judged(job, feed.evaluation, feed)
    elif feed.evaluate_every and kind_of(feed.source) in (SHARDS, BLEND, INDEXED):
        found += _without_validation(feed.source)
    return found


def _judged(job: Job, source: str, feed: Feed) -> list[Finding]:
    kind = kind_of(source)
    if kind == SHARDS:
        return data_findings(source, job)
    if kind == BLEND:
        from meshwright.data.mix import open_blend

        folders, _ = open_blend(Path(source), "train")
        return [finding for folder in folders for finding in data_findings(folder.path, job)]
    if kind == INDEXED:
        return _of_indexed(job, source)
    if kind == TEXT and feed.tokenizer is None:
        message = f"{source!r} is text, and nothing says how it becomes tokens"
        hint = "--tokenizer FOLDER, or build shards first: meshwright data build"
        return [Finding(message=message, key="tokenizer", hint=hint)]
    return []


def _of_indexed(job: Job, source: str) -> list[Finding]:
    """Files of Megatron say nothing of their vocabulary: a sample of their tokens does."""
    from meshwright.data.shards.indexed import open_indexed

    prefix = prefix_of(source)
    if prefix is None:
        return []
    tokens, length, known = open_indexed(prefix).tokens, job.workload.seq_len, job.model.vocab_size
    told = []
    if tokens.size < length:
        message = f"{source!r} has {tokens.size:,} tokens, fewer than a row of {length:,}"
        told.append((message, "give more data, or a shorter workload.seq_len"))
    sample = tokens[:_SAMPLE_TOKENS]
    largest, least = int(sample.max(initial=0)), int(sample.min(initial=0))
    if largest >= known or least < 0:
        message = f"{source!r} holds token {min(least, 0) or largest:,}; the model knows {known:,}"
        hint = "cut the text with the model's own tokenizer, or enlarge the model's vocab_size"
        told.append((message, hint))
    return [Finding(message=m, key="data", value=source, hint=hint) for m, hint in told]


_SAMPLE_TOKENS = 1 << 27


def _without_validation(source: str) -> list[Finding]:
    """A finding where nothing is held out to evaluate on."""
    if kind_of(source) == INDEXED or not _held_out(source):
        message = f"{source!r} holds nothing out to evaluate on"
        return [Finding(message=message, key="evaluation", value=source, hint=_SPLIT_HINT)]
    return []


def _held_out(source: str) -> bool:
    return all(any(f.manifest.of_split(SPLITS[1])) for f in _folders(source))


def _folders(source: str) -> tuple[Folder, ...]:
    from meshwright.data.mix import open_blend
    from meshwright.data.shards.folder import open_folder

    if kind_of(source) == BLEND:
        return tuple(open_blend(Path(source), "train")[0])
    return (open_folder(Path(source), "train"),)


# Text


def prepared(job: Job, spec: Spec, *, is_first: bool, tell: Tell | None) -> Spec:
    """The specification with shards in place of text, built by the first node, once."""
    feed = spec.run.feed
    texts = {
        name: source
        for name, source in (("source", feed.source), ("evaluation", feed.evaluation))
        if source is not None and kind_of(source) == TEXT
    }
    if not texts:
        return spec
    built: dict[str, Any] = {
        name: str(_built(job, spec, name, source, is_first=is_first, tell=tell))
        for name, source in texts.items()
    }
    return replace(spec, run=replace(spec.run, feed=replace(feed, **built)))


def _built(
    job: Job, spec: Spec, name: str, source: str, *, is_first: bool, tell: Tell | None
) -> Path:
    """The folder of shards that a text becomes."""
    folder = Path(spec.run.out) / (DATA if name == "source" else f"{DATA}-{name}")
    if not is_first or (spec.run.resume and (folder / MANIFEST).exists()):
        return _waited_for(folder)
    from meshwright.data import build

    hold_out = name == "source" and spec.run.feed.evaluate_every > 0
    hold_out = hold_out and spec.run.feed.evaluation is None
    settings = settings_of(job, spec, source, folder, hold_out=hold_out)
    began_s = time.monotonic()
    manifest = build(settings, on_progress=_telling(tell))
    if tell is not None and manifest.packed is not None:
        rows = sum(record.rows for record in manifest.of_split("train"))
        took = format_duration(time.monotonic() - began_s)
        tell(f"{source} is {rows:,} rows of {job.workload.seq_len:,} tokens in {folder} ({took})")
    errors = [f for f in data_findings(folder, job) if f.severity is Severity.ERROR]
    if errors:
        from meshwright.base.errors import InvalidInput

        raise InvalidInput(errors)
    return folder


def settings_of(job: Job, spec: Spec, source: str, folder: Path, *, hold_out: bool) -> Build:
    """How a text is built: as it is, but for exact duplicates."""
    from meshwright.data.settings import Build, Output, Pack, Source, TokenizerSource

    return Build(
        sources=(Source(files=_files(source), documents="paragraph" if hold_out else "file"),),
        output=Output(folder=str(folder)),
        tokenizer=TokenizerSource(file=str(spec.run.feed.tokenizer)),
        pack=Pack(seq_len=job.workload.seq_len),
        seed=spec.run.seed,
        validation=HELD_OUT if hold_out else 0.0,
    )


def _files(source: str) -> tuple[str, ...]:
    """A file, or the texts of a folder."""
    path = Path(source)
    return (
        tuple(f"{path}/*{ending}*" for ending in (".jsonl", ".txt")) if path.is_dir() else (source,)
    )


def _telling(tell: Tell | None) -> Callable[[Progress], None] | None:
    """Tells of stages as they begin."""
    if tell is None:
        return None
    begun: set[str] = set()

    def told(progress: Progress) -> None:
        if progress.stage not in begun:
            begun.add(progress.stage)
            tell(f"data: {progress.stage} ({progress.place} of {progress.stages})")

    return told


def _waited_for(folder: Path) -> Path:
    """The folder, once the first node has built it."""
    end_s = time.monotonic() + _LONGEST_S
    while not (folder / MANIFEST).exists():
        if time.monotonic() > end_s:
            raise MeshwrightError(
                f"the first node has not built {str(folder)!r}",
                hint="--out must be a folder that all nodes see",
            )
        time.sleep(_POLL_S)
    return folder
