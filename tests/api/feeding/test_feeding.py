"""What a run needs of its data: sizes by hand, rules by their facts, a folder by its manifest."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import api
from meshwright.api.feeding import Asked, data_findings, plan_data
from meshwright.api.feeding.corpus import built, planned
from meshwright.api.feeding.facts import findings_of, with_facts
from meshwright.api.feeding.reading import feed_of
from meshwright.api.feeding.saving import GPU_MTBF_S, saves_of
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.data.rates import rates
from meshwright.data.shards.indexed import HEADER
from meshwright.data.stages.layout import PIECE, ROW
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.rules.rule import check


def job_of(
    *, nodes: int = 64, gpus: str = "H100:8", model: str = "llama-3.1-70b", **plan: int
) -> Job:
    cluster = api.cluster(gpus, nodes=nodes)
    degrees = {"tp": 8, "pp": 4, "cp": 1} | plan
    dp = cluster.num_gpus // math.prod(degrees[axis] for axis in ("tp", "pp", "cp"))
    return Job(
        model=api.load_model(model),
        cluster=cluster,
        workload=api.workload(seq_len=8192, global_batch=512, train_tokens="15T"),
        plan=Plan(dp=dp, **degrees),
    )


# Sizes


def test_sizes_of_a_planned_corpus() -> None:
    corpus = planned(15e12, seq_len=8192, vocab_size=128_256, document_tokens=1000)
    assert corpus.token_bytes == 4
    assert corpus.bin_bytes == 60e12
    assert corpus.rows == math.ceil(15e12 / 8192)
    assert corpus.documents == 15e9
    assert corpus.files == 6000
    assert corpus.file_bytes == 10e9
    assert corpus.index_bytes == 6000 * (HEADER.size + 8) + 15e9 * (4 + 8 + 8)
    assert corpus.plan_bytes == ROW.itemsize * corpus.rows + PIECE.itemsize * corpus.pieces


def test_small_vocabularies_take_two_bytes() -> None:
    assert planned(1e9, seq_len=4096, vocab_size=65_499).token_bytes == 2
    assert planned(1e9, seq_len=4096, vocab_size=65_500).token_bytes == 4


@given(st.floats(1e3, 1e14), st.sampled_from([50_257, 128_256]))
def test_files_are_few_or_large(tokens: float, vocab_size: int) -> None:
    corpus = planned(tokens, seq_len=4096, vocab_size=vocab_size)
    assert corpus.files <= 100 or corpus.shard_tokens * corpus.token_bytes >= 10e9
    assert corpus.files * corpus.shard_tokens >= tokens


def test_a_planned_corpus_breaks_no_rule_on_files() -> None:
    corpus = planned(15e12, seq_len=8192, vocab_size=128_256)
    assert data_findings(corpus) == []
    small = replace(corpus, files=60_000, bin_bytes=60e12)
    assert [finding.code for finding in data_findings(small)] == ["DAT310"]


# Reading


def test_bytes_read_follow_from_the_step() -> None:
    job = job_of()
    corpus = planned(15e12, seq_len=8192, vocab_size=128_256)
    feed = feed_of(job, corpus, step_s=8.0, worker_tokens_per_s=20_000)
    assert feed.tokens_per_s == 512 * 8192 / 8
    assert feed.used_bytes_per_s == 4 * feed.tokens_per_s
    assert feed.amplification == 1 + 4096 / (4 * 8192)
    assert feed.read_bytes_per_s == pytest.approx(feed.used_bytes_per_s * feed.amplification * 2)
    assert feed.node_bytes_per_s * feed.reading_nodes == pytest.approx(feed.read_bytes_per_s)
    assert feed.rank_tokens_per_s == feed.tokens_per_s / 16
    assert feed.workers == 2  # 32,768 tokens/s by 20,000


@pytest.mark.parametrize(
    ("nodes", "degrees", "copies", "reading_nodes", "reading_ranks"),
    [
        (64, {"tp": 8, "pp": 4}, 2, 32, 1),  # 16 nodes for each of the first and the last stage
        (64, {"tp": 8, "pp": 1}, 1, 64, 1),
        (64, {"tp": 4, "pp": 1}, 1, 64, 2),
        (1, {"tp": 2, "pp": 2}, 1, 1, 4),
        (1, {"tp": 1, "pp": 8}, 1, 1, 2),
        (8, {"tp": 8, "pp": 1, "cp": 4}, 4, 8, 1),  # a row's cp ranks lie on four nodes
        (2, {"tp": 1, "pp": 4}, 2, 2, 4),
    ],
)
def test_who_reads(
    nodes: int, degrees: dict[str, int], copies: int, reading_nodes: int, reading_ranks: int
) -> None:
    corpus = planned(1e12, seq_len=8192, vocab_size=128_256)
    feed = feed_of(job_of(nodes=nodes, **degrees), corpus, step_s=1.0, worker_tokens_per_s=1e6)
    assert (feed.copies, feed.reading_nodes, feed.reading_ranks) == (
        copies,
        reading_nodes,
        reading_ranks,
    )


def test_only_shards_in_use_are_mapped() -> None:
    corpus = planned(15e12, seq_len=8192, vocab_size=128_256)
    feed = feed_of(job_of(), corpus, step_s=1.0, worker_tokens_per_s=1e6)
    whole = corpus.index_bytes + corpus.plan_bytes
    assert feed.mapped_bytes == pytest.approx(whole * 32 / corpus.files)
    few = planned(1e9, seq_len=8192, vocab_size=128_256)
    feed = feed_of(job_of(), few, step_s=1.0, worker_tokens_per_s=1e6)
    assert feed.mapped_bytes == few.index_bytes + few.plan_bytes


# Checkpoints


def test_the_interval_is_youngs_and_the_loss_least_there() -> None:
    saves, assumed = saves_of(job_of(), step_s=10.0)
    assert saves.mtbf_s == GPU_MTBF_S / 512
    assert saves.stall_s == saves.checkpoint_bytes / (2e9 * 64)
    assert saves.interval_s == saves.optimum_s == math.sqrt(2 * saves.stall_s * saves.mtbf_s)
    assert saves.lost_share == pytest.approx(math.sqrt(2 * saves.stall_s / saves.mtbf_s))
    assert saves.day_bytes == pytest.approx(86400 * 64 * saves.mean_bytes_per_s_per_node)
    assert any("2 GB/s" in text for text in assumed)
    assert any("fails every 5.8 years" in text for text in assumed)


def test_what_is_stated_of_checkpoints_is_used() -> None:
    job = job_of()
    loading = replace(
        job.workload.loading,
        checkpoint_interval_steps=100,
        checkpoint_write_bytes_per_s_per_node=1e9,
        checkpoint_stall_s=5.0,
        checkpoint_bytes=1e12,
    )
    runtime = replace(job.workload.runtime, job_mtbf_s=1e5)
    job = replace(job, workload=replace(job.workload, loading=loading, runtime=runtime))
    saves, assumed = saves_of(job, step_s=10.0)
    assert assumed == ()
    assert saves.is_stated
    assert (saves.interval_s, saves.stall_s, saves.mtbf_s) == (1000.0, 5.0, 1e5)
    assert saves.lost_share == 5 / 1000 + 1000 / 2e5
    assert saves.optimum_s == 1000.0


def test_asynchronous_saves_stall_for_the_copy_to_the_host() -> None:
    job = job_of()
    loading = replace(job.workload.loading, checkpoint_async=True)
    job = replace(job, workload=replace(job.workload, loading=loading))
    saves, assumed = saves_of(job, step_s=10.0)
    copied_s = saves.checkpoint_bytes / 512 / job.cluster.host.bytes_per_s_per_gpu
    assert saves.stall_s == max(copied_s, 1.0)
    assert any("copied to the host" in text for text in assumed)


# The whole


def test_a_plan_without_a_job_sizes_the_corpus_alone() -> None:
    found = plan_data(Asked(tokens=1e12, seq_len=4096))
    assert found.feed is None
    assert found.saves is None
    assert found.findings == ()
    assert found.making is not None
    assert found.making.cpu_s == 4e12 / rates().build_text_bytes_per_s
    assert any("128,256 ids" in text for text in found.assumptions)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(), "number of tokens"),
        (Asked(tokens=1e9), "length of rows"),
        (Asked(folder=Path("x"), seq_len=4096), "says itself"),
    ],
)
def test_what_is_missing_is_named(asked: Asked, words: str) -> None:
    with pytest.raises(MeshwrightError, match=words) as caught:
        plan_data(asked)
    assert caught.value.hint


def test_a_job_gives_lengths_vocabulary_and_tokens() -> None:
    job = job_of()
    found = plan_data(Asked(have=5e12), job)
    assert found.corpus.seq_len == 8192
    assert found.corpus.vocab_size == job.model.vocab_size
    assert found.train_tokens == 15e12
    assert found.epochs == 3.0
    assert found.feed is not None
    assert found.feed.step_s == api.predict(job).step_time_s


def test_more_than_four_epochs_are_told() -> None:
    found = plan_data(Asked(have=1e12), job_of())
    assert "DAT149" in [finding.code for finding in found.findings]


def test_a_slow_storage_is_told() -> None:
    job = job_of()
    loading = replace(job.workload.loading, read_bytes_per_s_per_node=1e3)
    slow = replace(job, workload=replace(job.workload, loading=loading))
    codes = [finding.code for finding in plan_data(Asked(), slow).findings]
    assert "DAT301" in codes
    assert "DAT301" not in [finding.code for finding in plan_data(Asked(), job).findings]


def test_what_the_plan_tells_its_loader_is_left_alone() -> None:
    job = job_of()
    loading = replace(job.workload.loading, num_workers=0, memory_map=False)
    stated = replace(job, workload=replace(job.workload, loading=loading))
    corpus = planned(1e12, seq_len=8192, vocab_size=128_256)
    feed = feed_of(stated, corpus, step_s=1.0, worker_tokens_per_s=1e6)
    facts = with_facts(stated, corpus, feed).workload.loading
    assert facts.num_workers == 0
    assert facts.memory_map is False
    assert "DAT302" in [finding.code for finding in plan_data(Asked(), stated).findings]


def test_facts_make_no_finding_of_other_sections() -> None:
    """A sound plan stays sound with the facts of a sound corpus; the job itself is unchanged."""
    job = job_of()
    corpus = planned(15e12, seq_len=8192, vocab_size=128_256)
    feed = feed_of(job, corpus, step_s=10.0, worker_tokens_per_s=1e6)
    before = [finding.code for finding in check(job)]
    with_facts(job, corpus, feed)
    assert [finding.code for finding in check(job)] == before
    assert findings_of(with_facts(job, corpus, feed)) == []


def test_a_plan_that_cannot_be_laid_has_findings_and_no_rates() -> None:
    job = job_of()
    bad = job.with_plan(job.plan.replace(tp=3))
    found = plan_data(Asked(), bad)
    assert found.feed is None
    assert "DAT101" in [finding.code for finding in found.findings]
    assert found.corpus.bin_bytes > 0


# A folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small built folder with a vocabulary of bytes."""
    tokenizers, *_ = map(  # what a build needs
        pytest.importorskip, ("tokenizers", "orjson", "zstandard", "pyarrow", "xxhash")
    )
    from meshwright.data.building import build
    from meshwright.data.settings import Build, Output, Pack, Source, TokenizerSource

    root = tmp_path_factory.mktemp("feeding")
    texts = [f"{number} " + "word " * (5 + 37 * number % 300) for number in range(120)]
    (root / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|endoftext|>": 0} | {c: n for n, c in enumerate(alphabet, 1)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.add_special_tokens(["<|endoftext|>"])
    model.save(str(root / "tokenizer.json"))
    build(
        Build(
            sources=(Source(files=(str(root / "in.jsonl"),)),),
            output=Output(folder=str(root / "shards"), shard_tokens=20_000),
            tokenizer=TokenizerSource(file=str(root / "tokenizer.json")),
            pack=Pack(seq_len=512, strategy="best-fit"),
        ),
        workers=1,
        engine="inline",
    )
    return root / "shards"


def test_a_folder_is_what_lies_in_it(folder: Path) -> None:
    corpus = built(folder)
    assert corpus.seq_len == 512
    assert corpus.token_bytes == 2
    assert corpus.documents == 120
    assert corpus.files == len(list(folder.glob("train-*.bin"))) > 1
    assert corpus.bin_bytes == sum(path.stat().st_size for path in folder.glob("train-*.bin"))
    assert corpus.index_bytes == sum(path.stat().st_size for path in folder.glob("train-*.idx"))
    assert corpus.document_tokens_cv == pytest.approx(0.58, abs=0.15)
    assert corpus.folder == str(folder)


def test_rows_of_another_length_are_an_error(folder: Path) -> None:
    found = data_findings(folder, job_of())
    assert found[0].severity is Severity.ERROR
    assert "rows of 512 tokens, but the plan trains on 8,192" in found[0].message
    assert "--seq-len 8192" in found[0].hint


def test_ids_beyond_the_models_table_are_an_error(folder: Path) -> None:
    job = job_of(model="gpt2", tp=1, pp=1, nodes=1)
    corpus = replace(built(folder), vocab_size=60_000, seq_len=8192)
    messages = [finding.message for finding in findings_of(with_facts(job, corpus))]
    assert any(
        "60,000 ids in the data's vocabulary, but 50,257 embeddings" in text for text in messages
    )


def test_a_folder_without_a_plan_has_its_files_judged(folder: Path) -> None:
    assert data_findings(folder) == []
    found = plan_data(Asked(folder=folder))
    assert found.making is None
    assert found.train_tokens == found.corpus.tokens


def test_rates_name_their_source() -> None:
    assert rates().loader_tokens_per_s > 0
    assert rates().loader_source.startswith("benchmarks/")
    assert rates().build_source.startswith("benchmarks/")
    assert np.isfinite(rates().build_text_bytes_per_s)
