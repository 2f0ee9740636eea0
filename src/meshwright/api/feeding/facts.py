"""What a corpus and its loader mean to the rules on data: section 4 of the guidelines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity

if TYPE_CHECKING:
    from meshwright.api.feeding.corpus import Corpus
    from meshwright.api.feeding.reading import Feed
    from meshwright.base.finding import Finding
    from meshwright.plan.job import Job, Loading
    from meshwright.rules.rule import Rule

# Of the rules on partitioning, those on what data there is; and every error, which stops the run.
_ON_SAMPLES = ("DAT131", "DAT144", "DAT149")
_ON_FILES = ("DAT310",)  # rules that ask for nothing but the files
_ON_ROWS = ("DAT347",)  # rules that ask for nothing but the length of rows
# What the loader of `meshwright.data.loader` does, where the plan does not say otherwise.
_LOADER: dict[str, Any] = {"memory_map": True, "order_recomputable": True}


def with_facts(job: Job, corpus: Corpus, feed: Feed | None = None) -> Job:
    """The job with what its data is, and what reading it takes.

    What the corpus itself tells replaces what the plan states of it; what a loader is told to do
    is left to the plan.
    """
    stated = job.workload.loading
    own: dict[str, Any] = {
        "num_files": corpus.files,
        "mean_file_bytes": corpus.file_bytes,
        "num_shards": corpus.files,
        "dataset_tokens": corpus.tokens,
        "tokens_dtype_bytes": corpus.token_bytes,
        "packed": True,
        "packed_seq_len": corpus.seq_len,
        "token_ids": corpus.vocab_size,
    }
    if corpus.document_tokens_cv is not None:
        own["doc_len_cv"] = corpus.document_tokens_cv
    loading = replace(stated, **own, **_unstated(stated, _LOADER))
    runtime = job.workload.runtime
    if feed is not None:
        loading = replace(loading, **_reading(loading, feed))
        runtime = replace(runtime, step_time_s=feed.step_s)
    return replace(job, workload=replace(job.workload, loading=loading, runtime=runtime))


def _reading(loading: Loading, feed: Feed) -> dict[str, Any]:
    read = {
        "num_workers": feed.workers,
        "read_amplification": feed.amplification * feed.copies,
        "read_bytes_per_s_per_node": feed.supply_bytes_per_s,
    }
    return _unstated(loading, read)


def _unstated(loading: Loading, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if getattr(loading, name) is None}


def findings_of(job: Job) -> list[Finding]:
    """What the rules on data have against a job with facts; errors first, then by code."""
    from meshwright.rules.rule import all_rules, check

    rules = [rule for rule in all_rules() if _is_on_data(rule)]
    found = [_in_words_of_build(finding, job) for finding in check(job, rules)]
    return sorted(found, key=lambda finding: (-int(finding.severity), finding.code))


def _is_on_data(rule: Rule) -> bool:
    if rule.code.startswith("DAT1"):
        return rule.severity is Severity.ERROR or rule.code in _ON_SAMPLES
    return rule.code.startswith("DAT3")


def row_findings_of(job: Job) -> list[Finding]:
    """What the rules on the length of rows alone have against a job that states it."""
    from meshwright.rules.rule import check, find_rule

    found = check(job, filter(None, map(find_rule, _ON_ROWS)))
    return [_in_words_of_build(finding, job) for finding in found]


def findings_without_plan(corpus: Corpus) -> list[Finding]:
    """What the rules on files alone have against a corpus; the job around it only stands in."""
    from meshwright import api
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.rules.rule import check, find_rule

    job = Job(
        model=api.load_model("gpt2"),
        cluster=api.cluster("H100:8"),
        workload=api.workload(seq_len=corpus.seq_len, global_batch=8),
        plan=Plan(dp=8),
    )
    return check(with_facts(job, corpus), filter(None, map(find_rule, _ON_FILES)))


def _in_words_of_build(finding: Finding, job: Job) -> Finding:
    """The finding with what to type to `data build`, where that is what helps."""
    loading, seq_len = job.workload.loading, job.workload.seq_len
    hints = {
        "DAT347": f"build with --seq-len {seq_len}, or plan for seq_len = {loading.packed_seq_len}",
        "DAT348": "build with the model's own --tokenizer",
    }
    return finding.replace(hint=hints.get(finding.code, finding.hint))
