"""DAT3xx: reading data fast enough, once, and in the order meant.

Section 4.3 of the guidelines; checkpoints, the other half of it, are in `checkpoints.py`. Nothing
here fires unless the loader's settings are stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_count, format_rate
from meshwright.rules.estimate import step_time_s, tokens_per_step
from meshwright.rules.nearest import multiples_near
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

MANY_FILES = 100
SMALL_FILE_BYTES = 10e9
MANY_NODES = 256


@rule(
    "DAT301",
    "Storage cannot feed the tokens",
    severity=Severity.WARNING,
    section="4.3",
    source="bytes/s = tokens/s x bytes per token; Megatron-LM docs/user-guide/data-loading.md",
    reads=("precision",),
    confidence="arithmetic",
)
def storage_feeds_training(job: Job) -> Mask:
    """Reading must keep up with tokens per second times bytes per token.

    Tokenized text needs little (4 bytes a token); images, video and amplified random reads need a
    hundred times more. Cache on local disks, tokenize beforehand, or read from more servers.

    Fails: plan(read_bytes_per_s_per_node=1e5, step_time_s=2.0, read_amplification=10.0)
    Passes: plan(read_bytes_per_s_per_node=1e9, step_time_s=2.0, read_amplification=10.0)
    """
    supply = job.workload.loading.read_bytes_per_s_per_node
    if supply is None or job.workload.loading.mock_data:
        return False
    return _read_demand(job) > supply * job.cluster.num_nodes


def _read_demand(job: Job) -> Any:
    """Bytes/s that training consumes over all nodes."""
    loading = job.workload.loading
    per_token = loading.tokens_dtype_bytes * (loading.read_amplification or 1.0)
    return tokens_per_step(job) * per_token / step_time_s(job)


@storage_feeds_training.message
def _(job: Job) -> str:
    supply = (job.workload.loading.read_bytes_per_s_per_node or 0.0) * job.cluster.num_nodes
    return (
        f"training reads {format_rate(float(_read_demand(job)))}, storage gives "
        f"{format_rate(supply)} to {job.cluster.num_nodes} nodes"
    )


@storage_feeds_training.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"read_bytes_per_s_per_node": (float(_read_demand(job)) / job.cluster.num_nodes,)}


@rule(
    "DAT302",
    "No loader workers",
    severity=Severity.WARNING,
    section="4.3",
    source="Megatron-LM docs/user-guide/data-loading.md (d98e8a64); torchtitan "
    "components/dataloader.py (0.3.0)",
    confidence="doc",
)
def workers_prepare_batches(job: Job) -> Mask:
    """Without workers the training process prepares each batch itself, between two steps.

    One or two workers hide it; more only cost cores.

    Fails: plan(num_workers=0)
    Passes: plan(num_workers=2)
    Passes: plan(num_workers=0, mock_data=True)
    """
    loading = job.workload.loading
    return loading.num_workers == 0 and not loading.mock_data


@workers_prepare_batches.message
def _(job: Job) -> str:
    return f"num_workers = {job.workload.loading.num_workers}: batches are prepared between steps"


workers_prepare_batches.fix(always(num_workers=(1, 2)))


# Streams


@rule(
    "DAT304",
    "Every worker reads the whole stream",
    severity=Severity.ERROR,
    section="4.3",
    source="PyTorch IterableDataset documentation (2.13)",
    confidence="run",
)
def workers_split_stream(job: Job) -> Mask:
    """A streamed data set is iterated by each worker; unless they split it, samples repeat.

    Each sample is then seen num_workers times, with no message.

    Fails: plan(streamed=True, num_workers=4, workers_split_stream=False)
    Passes: plan(streamed=True, num_workers=4, workers_split_stream=True)
    """
    loading = job.workload.loading
    several = (loading.num_workers or 0) > 1
    return bool(loading.streamed) and several and loading.workers_split_stream is False


@workers_split_stream.message
def _(job: Job) -> str:
    return f"{job.workload.loading.num_workers} workers each yield the whole stream"


workers_split_stream.fix(always(workers_split_stream=(True,), num_workers=(1,)))


@rule(
    "DAT305",
    "Shards do not divide over readers",
    severity=Severity.WARNING,
    section="4.3",
    source="Hugging Face datasets documentation, split_dataset_by_node",
    reads=("dp",),
    confidence="doc",
)
def shards_divide_over_readers(job: Job) -> Mask:
    """Replicas times workers share a stream's shards out; with a remainder the shares are unequal.

    Epochs then end at different times, or every reader reads everything and skips.

    Fails: plan(streamed=True, num_workers=2, num_shards=1000)
    Passes: plan(streamed=True, num_workers=2, num_shards=1024)
    """
    loading = job.workload.loading
    if not loading.streamed or loading.num_shards is None:
        return False
    return loading.num_shards % _readers(job) != 0


def _readers(job: Job) -> Any:
    """Processes that read: loader workers (or the trainer itself) of each replica."""
    return job.plan.dp * max(job.workload.loading.num_workers or 0, 1)


@shards_divide_over_readers.message
def _(job: Job) -> str:
    loading = job.workload.loading
    return (
        f"{loading.num_shards} shards do not divide over {_readers(job)} readers "
        f"(dp {job.plan.dp} x {max(loading.num_workers or 0, 1)} workers)"
    )


@shards_divide_over_readers.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"num_shards": multiples_near(_readers(job), job.workload.loading.num_shards)}


@rule(
    "DAT307",
    "The same order in every epoch",
    severity=Severity.WARNING,
    section="4.3",
    source="PyTorch DistributedSampler documentation (2.13), set_epoch",
    confidence="doc",
)
def epochs_are_reshuffled(job: Job) -> Mask:
    """A shuffle seeded once repeats its order each epoch unless told which epoch it is.

    Fails: plan(shuffle=True, reshuffle_each_epoch=False)
    Passes: plan(shuffle=True, reshuffle_each_epoch=True)
    Passes: plan(shuffle=True, reshuffle_each_epoch=False, train_tokens=1e9, dataset_tokens=1e9)
    """
    loading, tokens = job.workload.loading, job.workload.train_tokens
    unique = loading.dataset_tokens
    once = tokens is not None and unique is not None and tokens <= unique
    return bool(loading.shuffle) and loading.reshuffle_each_epoch is False and not once


@epochs_are_reshuffled.message
def _(job: Job) -> str:
    tokens = job.workload.train_tokens
    length = "a run of unknown length" if tokens is None else f"{format_count(tokens)} tokens"
    return f"shuffle = True and reshuffle_each_epoch = False over {length}"


epochs_are_reshuffled.fix(always(reshuffle_each_epoch=(True,)))


@rule(
    "DAT313",
    "No samples left",
    severity=Severity.ERROR,
    section="4.3",
    source="Megatron-LM megatron/training/datasets/data_samplers.py (0.19.2)",
    confidence="run",
)
def samples_are_left(job: Job) -> Mask:
    """A resumed run starts behind the samples it has consumed; there must be some after them.

    Fails: plan(num_samples=1000, consumed_samples=1000)
    Passes: plan(num_samples=1000, consumed_samples=500)
    """
    loading = job.workload.loading
    if loading.num_samples is None or loading.consumed_samples is None:
        return False
    return loading.consumed_samples >= loading.num_samples


@samples_are_left.message
def _(job: Job) -> str:
    loading = job.workload.loading
    return f"{loading.consumed_samples} of {loading.num_samples} samples are consumed"


# Files and their index


@rule(
    "DAT308",
    "Sample index on storage that other nodes do not see",
    severity=Severity.ERROR,
    section="4.3",
    source="Megatron-LM docs/user-guide/data-loading.md (d98e8a64)",
    confidence="doc",
)
def index_is_shared(job: Job) -> Mask:
    """One rank builds the sample index and all others read it after a barrier.

    On local storage the other nodes find nothing there, and fail or build their own.

    Fails: plan(nodes=8, index_shared=False)
    Passes: plan(nodes=1, index_shared=False)
    """
    return job.workload.loading.index_shared is False and job.cluster.num_nodes > 1


@index_is_shared.message
def _(job: Job) -> str:
    return f"the index is local to one of {job.cluster.num_nodes} nodes"


index_is_shared.fix(always(index_shared=(True,)))


@rule(
    "DAT310",
    "Many small data files",
    severity=Severity.WARNING,
    section="4.3",
    source="Megatron-LM docs/user-guide/data-loading.md (d98e8a64), step 1",
    confidence="doc",
)
def files_are_large(job: Job) -> Mask:
    """Index building and metadata dominate the start; aim at 10 GB and more a file.

    Fails: plan(num_files=2000, mean_file_bytes=1e9)
    Passes: plan(num_files=200, mean_file_bytes=1e10)
    """
    loading = job.workload.loading
    if loading.num_files is None or loading.mean_file_bytes is None:
        return False
    return loading.num_files > MANY_FILES and loading.mean_file_bytes < SMALL_FILE_BYTES


@files_are_large.message
def _(job: Job) -> str:
    loading = job.workload.loading
    return f"{loading.num_files} files of {format_bytes(loading.mean_file_bytes or 0.0)} on average"


@files_are_large.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    loading = job.workload.loading
    total = (loading.num_files or 0) * (loading.mean_file_bytes or 0.0)
    return {"num_files": (max(int(total // SMALL_FILE_BYTES), 1),)}


@rule(
    "DAT311",
    "Sample index built when a very large job starts",
    severity=Severity.WARNING,
    section="4.3",
    source="Megatron-LM docs/user-guide/data-loading.md (d98e8a64)",
    confidence="doc",
)
def index_is_prebuilt(job: Job) -> Mask:
    """All GPUs idle while one rank builds the index, then map it all at once.

    Fails: plan(nodes=512, index_prebuilt=False)
    Passes: plan(nodes=512, index_prebuilt=True)
    """
    return job.workload.loading.index_prebuilt is False and job.cluster.num_nodes >= MANY_NODES


@index_is_prebuilt.message
def _(job: Job) -> str:
    return f"{job.cluster.num_gpus} GPUs wait while one rank builds the index"


index_is_prebuilt.fix(always(index_prebuilt=(True,)))


@rule(
    "DAT312",
    "Memory-mapped files on object storage",
    severity=Severity.WARNING,
    section="4.3",
    source="Megatron-LM docs/user-guide/data-loading.md (d98e8a64)",
    confidence="doc",
)
def mapped_files_are_files(job: Job) -> Mask:
    """An object store has no pages to map: each access becomes a download or fails.

    Fails: plan(object_storage=True, memory_map=True)
    Passes: plan(object_storage=True, memory_map=False)
    """
    return bool(job.workload.loading.object_storage) and bool(job.workload.loading.memory_map)


@mapped_files_are_files.message
def _(job: Job) -> str:
    loading = job.workload.loading
    return f"memory_map = {loading.memory_map} with object_storage = {loading.object_storage}"


mapped_files_are_files.fix(always(memory_map=(False,)))
