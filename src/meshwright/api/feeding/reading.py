"""What training reads: bytes a second, by whom, and how many loader workers that takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.data.loader.epochs import WINDOW

if TYPE_CHECKING:
    from meshwright.api.feeding.corpus import Corpus
    from meshwright.plan.job import Job

PAGE_BYTES = 4096
_PREFETCHED = 3  # steps in memory at once: two made ahead, one in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One step's data, a second of it, and the share of each reader.

    Ranks of one node that need the same row read it once: the page cache has it for the others.
    `copies` are the nodes that read each row. `amplification` is what is read over what is used,
    on one node: whole pages, at each end of a stretch. `workers` serve one reading rank.
    """

    step_s: float
    tokens_per_s: float
    used_bytes_per_s: float
    amplification: float
    copies: int
    read_bytes_per_s: float  # by all nodes
    reading_nodes: int
    node_bytes_per_s: float  # by each of these
    supply_bytes_per_s: float | None  # of each node, where it is known
    rank_tokens_per_s: float  # that one replica's rows hold
    worker_tokens_per_s: float
    workers: int
    reading_ranks: int  # of a node
    batch_bytes: float  # of a reading rank: the arrays of the steps that it holds
    mapped_bytes: float  # of a node: index and plan of the shards in use


def feed_of(job: Job, corpus: Corpus, *, step_s: float, worker_tokens_per_s: float) -> Feed:
    """What a step of `step_s` seconds demands."""
    plan, work = job.plan, job.workload
    row_bytes = corpus.seq_len * corpus.token_bytes
    tokens_per_s = work.global_batch_size * work.seq_len / step_s
    used = tokens_per_s * corpus.token_bytes
    amplification = 1.0 + corpus.read_stretches * PAGE_BYTES / row_bytes
    replica = int(plan.tp) * int(plan.cp)
    copies = _ends(job) * _nodes_of(replica, job)
    reading_nodes = min(_ends(job) * _nodes_of(replica * int(plan.dp), job), job.cluster.num_nodes)
    rank_tokens_per_s = tokens_per_s / int(plan.dp)
    loading = job.workload.loading
    return Feed(
        step_s=step_s,
        tokens_per_s=tokens_per_s,
        used_bytes_per_s=used,
        amplification=amplification,
        copies=copies,
        read_bytes_per_s=used * amplification * copies,
        reading_nodes=reading_nodes,
        node_bytes_per_s=used * amplification * copies / reading_nodes,
        supply_bytes_per_s=loading.read_bytes_per_s_per_node
        or job.cluster.host.storage_bytes_per_s
        or None,
        rank_tokens_per_s=rank_tokens_per_s,
        worker_tokens_per_s=worker_tokens_per_s,
        workers=max(math.ceil(rank_tokens_per_s / worker_tokens_per_s), 1),
        reading_ranks=_reading_ranks(job),
        batch_bytes=_batch_bytes(job),
        mapped_bytes=_mapped_bytes(corpus),
    )


def _ends(job: Job) -> int:
    """Places where a row is needed, first and last stage, counted once if one node holds both.

    Pipeline stages are the slowest axis of the mesh: of a job on several nodes they share none.
    """
    return 1 if int(job.plan.pp) == 1 or job.cluster.num_nodes == 1 else 2


def _nodes_of(ranks: int, job: Job) -> int:
    return math.ceil(ranks / job.cluster.gpus_per_node)


def _reading_ranks(job: Job) -> int:
    """Ranks of a node that open a loader: one of each tp group at a first or last stage."""
    plan = job.plan
    groups = int(plan.dp) * int(plan.cp) * (min(int(plan.pp), 2) if _ends(job) == 1 else 1)
    return max(min(groups, job.cluster.gpus_per_node // int(plan.tp)), 1)


def _batch_bytes(job: Job) -> float:
    """Tokens, labels and positions of 8 bytes and documents of 4, for the steps in memory."""
    plan, work = job.plan, job.workload
    tokens = work.global_batch_size * work.seq_len / int(plan.dp) / int(plan.cp)
    return _PREFETCHED * tokens * (3 * 8 + 4)


def _mapped_bytes(corpus: Corpus) -> float:
    """Index and plan of the two windows of shards that an epoch is in at once."""
    share = min(2 * WINDOW / max(corpus.files, 1), 1.0)
    return share * (corpus.index_bytes + corpus.plan_bytes)
