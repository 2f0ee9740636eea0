"""What a run needs of its data and its storage: `meshwright data plan` as a library.

`plan_data` sizes the corpus, what training reads of it, and what checkpoints write; `data_findings`
says what the rules have against a folder of shards, alone or under a plan; `row_findings` what can
be said before there is one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.api import read_job
from meshwright.api.feeding.corpus import DOCUMENT_TOKENS, Corpus, built, planned
from meshwright.api.feeding.facts import (
    findings_of,
    findings_without_plan,
    row_findings_of,
    with_facts,
)
from meshwright.api.feeding.reading import Feed, feed_of
from meshwright.api.feeding.saving import Saves, saves_of
from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.rates import rates

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.plan.job import Job

__all__ = [
    "Asked",
    "Corpus",
    "DataPlan",
    "Feed",
    "Making",
    "Saves",
    "data_findings",
    "plan_data",
    "row_findings",
]

TEXT_BYTES_PER_TOKEN = 4.0  # English prose by vocabularies of 100,000 ids and more: 4.2 to 4.7
VOCABULARY = 128_256  # where neither model nor folder says


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be planned; None leaves it to the plan, the folder, or an assumption."""

    tokens: float | None = None  # that the run trains on
    have: float | None = None  # distinct tokens
    seq_len: int | None = None
    vocab_size: int | None = None
    document_tokens: float | None = None
    text_bytes_per_token: float | None = None
    loader_tokens_per_s: float | None = None
    build_text_bytes_per_s: float | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """CPU time that building the corpus from text takes, by a measured rate of one core."""

    text_bytes: float
    text_bytes_per_s: float
    source: str
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """All of it. `feed` and `saves` need a plan that can be laid on its GPUs."""

    job: Job | None
    train_tokens: float
    corpus: Corpus
    making: Making | None  # None for a corpus that is there
    feed: Feed | None
    saves: Saves | None
    assumptions: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def epochs(self) -> float:
        """How often the run passes through the corpus."""
        return self.train_tokens / max(self.corpus.tokens, 1.0)


def plan_data(asked: Asked, job: Job | str | Path | None = None) -> DataPlan:
    """Sizes, rates and findings for the tokens asked for, under a job or the plan.toml at a path.

    MeshwrightError when neither says how many tokens, or of what length rows are.
    """
    known = None if job is None else read_job(job)
    assumed: list[str] = []
    corpus = _corpus(asked, known, assumed)
    train_tokens = asked.tokens or (known.workload.train_tokens if known else None) or corpus.tokens
    feed, saves = None, None
    findings: list[Finding] = []
    if known is not None:
        known = _lengthened(known, train_tokens)
        feed, saves = _under_plan(known, corpus, asked, assumed)
        findings = findings_of(with_facts(known, corpus, feed))
    else:
        findings = findings_without_plan(corpus)
    return DataPlan(
        job=known,
        train_tokens=train_tokens,
        corpus=corpus,
        making=None if corpus.folder else _making(asked, corpus, assumed),
        feed=feed,
        saves=saves,
        assumptions=tuple(assumed),
        findings=tuple(findings),
    )


def data_findings(data: str | Path | Corpus, job: Job | str | Path | None = None) -> list[Finding]:
    """What the rules on data have against a folder of shards, or against training on it by a plan.

    Errors first. Without a plan only its files are judged. InvalidInput or MeshwrightError when it
    is no finished folder of tokens.
    """
    corpus = data if isinstance(data, Corpus) else built(Path(data))
    if job is None:
        return findings_without_plan(corpus)
    known = read_job(job)
    return findings_of(with_facts(known, corpus))


def row_findings(seq_len: int, job: Job | str | Path) -> list[Finding]:
    """What the rules have against rows of so many tokens under a plan: no data need be there."""
    known = read_job(job)
    loading = replace(known.workload.loading, packed_seq_len=seq_len)
    return row_findings_of(replace(known, workload=replace(known.workload, loading=loading)))


def _corpus(asked: Asked, job: Job | None, assumed: list[str]) -> Corpus:
    if asked.folder is not None:
        _refuse_doubly_given(asked)
        return built(asked.folder)
    tokens = asked.have or asked.tokens or (job.workload.train_tokens if job else None)
    if not tokens:
        raise MeshwrightError("no number of tokens is given", hint="--tokens 15T")
    seq_len = asked.seq_len or (job.workload.seq_len if job else None)
    if not seq_len:
        raise MeshwrightError("the length of rows is not given", hint="--seq-len 8192")
    vocab_size = asked.vocab_size or (job.model.vocab_size if job else 0)
    if not vocab_size:
        vocab_size = VOCABULARY
        assumed.append(f"a vocabulary of {VOCABULARY:,} ids")
    document_tokens = asked.document_tokens or (job.workload.packed_mean_len if job else None)
    if not document_tokens:
        document_tokens = DOCUMENT_TOKENS
        assumed.append(f"{DOCUMENT_TOKENS:,} tokens a document")
    return planned(tokens, seq_len=seq_len, vocab_size=vocab_size, document_tokens=document_tokens)


def _refuse_doubly_given(asked: Asked) -> None:
    """What a folder says of itself cannot be said again."""
    flags = {
        "have": "--have",
        "seq_len": "--seq-len",
        "vocab_size": "--vocab-size",
        "document_tokens": "--doc-tokens",
    }
    for name, flag in flags.items():
        if getattr(asked, name) is not None:
            raise MeshwrightError(
                f"the folder says itself what its {name} is", hint=f"leave {name} out ({flag})"
            )


def _lengthened(job: Job, train_tokens: float) -> Job:
    """The job over that many tokens."""
    return replace(job, workload=replace(job.workload, train_tokens=train_tokens))


def _under_plan(
    job: Job, corpus: Corpus, asked: Asked, assumed: list[str]
) -> tuple[Feed | None, Saves | None]:
    """Reading and saving; None for both where the plan cannot be laid on its GPUs."""
    step_s = _step_s(job)
    if step_s is None:
        return None, None
    worker = asked.loader_tokens_per_s
    if worker is None:
        worker = rates().loader_tokens_per_s
        assumed.append(f"{worker / 1e6:g}M tokens/s a loader worker ({rates().loader_source})")
    feed = feed_of(job, corpus, step_s=step_s, worker_tokens_per_s=worker)
    saves, more = saves_of(job, step_s=step_s)
    assumed += more
    return feed, saves


def _step_s(job: Job) -> float | None:
    """Seconds of a step, stated or predicted."""
    from meshwright.api import predict
    from meshwright.rules.costed import is_laid

    if job.workload.runtime.step_time_s:
        return job.workload.runtime.step_time_s
    return predict(job).step_time_s if is_laid(job) else None


def _making(asked: Asked, corpus: Corpus, assumed: list[str]) -> Making:
    each, rate = asked.text_bytes_per_token, asked.build_text_bytes_per_s
    source = "given"
    if each is None:
        each = TEXT_BYTES_PER_TOKEN
        assumed.append(f"{each:g} bytes of text a token")
    if rate is None:
        rate, source = rates().build_text_bytes_per_s, rates().build_source
    text_bytes = corpus.tokens * each
    return Making(
        text_bytes=text_bytes, text_bytes_per_s=rate, source=source, cpu_s=text_bytes / rate
    )
