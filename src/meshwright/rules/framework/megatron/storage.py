"""Loading and storage: caches and checkpoint formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

ASYNCHRONOUS_FORMATS = ("torch_dist", "fsdp_dtensor")


@demand(
    "DAT309",
    "Fast cache load without a cache",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-core>=0.16",
    source="Megatron-LM megatron/core/datasets/blended_megatron_dataset_config.py (0.19.2)",
    confidence="read",
    consequence="AssertionError: --data-cache-path must be provided; a --data-path blend is "
    "refused as well",
    says="dataloader_fast_cache_load with data_cache_path {data_cache_path}, data_path {data_path}",
)
def fast_load_of_no_cache(k: Knobs) -> bool:
    """The fast path trusts index files that were built before, and looks for them in the cache.

    Build the cache in a job of its own, and give the data by split rather than as one blend.

    Fails: megatron-lm 0.19: --dataloader-fast-cache-load
    Fails: knobs(dataloader_fast_cache_load=True, data_cache_path="cache", blend_in_data_path=True)
    Passes: megatron-lm 0.19: --dataloader-fast-cache-load --data-cache-path cache
    """
    cached = k.get("data_cache_path") is not None and not _is_blend(k)
    return bool(k.dataloader_fast_cache_load and not cached)


def _is_blend(k: Knobs) -> bool:
    return bool(k.get("blend_in_data_path") or k.get("data_path"))


@demand(
    "DAT316",
    "Non-parallel save with the distributed optimizer",
    severity=Severity.WARNING,
    section="4.3",
    scope="megatron-lm>=0.8",
    source=sources.ARGUMENTS,
    consequence="only printed: the checkpoint will be impossible to resume under another "
    "parallelism; the save is slower too",
    says="ckpt_fully_parallel_save off with ckpt_format {ckpt_format} and the distributed "
    "optimizer",
    suggest={"ckpt_fully_parallel_save": True},
)
def save_is_bound_to_its_layout(k: Knobs) -> bool:
    """Without the parallel save each data-parallel group writes its states as one opaque piece.

    Fails: megatron-lm 0.19: --ckpt-format torch_dist --use-distributed-optimizer
        --no-ckpt-fully-parallel-save
    Passes: megatron-lm 0.19: --ckpt-format torch_dist --use-distributed-optimizer
    """
    sharded = k.ckpt_format == "torch_dist" and k.use_distributed_optimizer
    return bool(sharded and not k.ckpt_fully_parallel_save)


@demand(
    "DAT317",
    "Async save without the persistent worker",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE_CHECKPOINT,
    consequence='AssertionError: "async_save requires use_persistent_ckpt_worker=True."',
    says="checkpoint_async with use_persistent_ckpt_worker {use_persistent_ckpt_worker}",
    suggest={"use_persistent_ckpt_worker": True},
)
def asynchronous_save_has_no_worker(k: Knobs) -> bool:
    """The process that writes in the background is started once and kept; no other way is left.

    Fails: megatron-bridge 0.6: checkpoint.async_save=true
        checkpoint.use_persistent_ckpt_worker=false
    Passes: megatron-bridge 0.6: checkpoint.async_save=true
        checkpoint.use_persistent_ckpt_worker=true
    """
    return bool(k.checkpoint_async and not k.use_persistent_ckpt_worker)


@demand(
    "DAT317",
    "Async save turned off for want of the persistent worker",
    severity=Severity.WARNING,
    section="4.3",
    scope="megatron-lm>=0.19",
    source=sources.ARGUMENTS,
    consequence="a warning on rank 0, then every save is synchronous and stalls the step: "
    '"--async-save is not supported without --use-persistent-ckpt-worker. Disabling --async-save."',
    says="checkpoint_async with use_persistent_ckpt_worker {use_persistent_ckpt_worker} and "
    "ckpt_format {ckpt_format}",
    suggest={"use_persistent_ckpt_worker": True},
)
def asynchronous_save_is_turned_off(k: Knobs) -> bool:
    """Megatron-LM drops --async-save where nothing is left to write in the background.

    Fails: megatron-lm 0.19: --async-save --ckpt-format torch_dist
    Passes: megatron-lm 0.19: --async-save --use-persistent-ckpt-worker --ckpt-format torch_dist
    """
    wanted = k.checkpoint_async and k.ckpt_format != "torch"
    return bool(wanted and not k.use_persistent_ckpt_worker)


@demand(
    "DAT318",
    "Async save in an unsupported format",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.7; megatron-bridge>=0.6",
    source=f"{sources.BRIDGE}; Megatron-LM megatron/training/checkpointing.py save_checkpoint "
    "(0.12.3, 0.19.2)",
    confidence="read",
    consequence="AssertionError: async_save is only supported with torch_dist, fsdp_dtensor",
    consequences={
        "megatron-lm": 'NotImplementedError: "Async checkpoint save not implemented for legacy '
        'checkpoints", at the first save'
    },
    says="checkpoint_async with ckpt_format {ckpt_format}",
    suggest={"ckpt_format": "torch_dist"},
)
def format_cannot_be_written_later(k: Knobs) -> bool:
    """Only formats whose shards are planned before they are written can be handed to a worker.

    Fails: megatron-bridge 0.6: checkpoint.async_save=true checkpoint.ckpt_format=torch
    Fails: megatron-lm 0.12: --async-save --ckpt-format torch
    Passes: megatron-bridge 0.6: checkpoint.async_save=true checkpoint.ckpt_format=torch_dist
    """
    return bool(k.checkpoint_async and k.ckpt_format not in ASYNCHRONOUS_FORMATS)


@demand(
    "DAT319",
    "Megatron-FSDP without fsdp_dtensor checkpoints",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.14; megatron-bridge>=0.6",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Megatron-FSDP requires the `fsdp_dtensor` checkpointing format."',
    says="use_megatron_fsdp with ckpt_format {ckpt_format}",
    suggest={"ckpt_format": "fsdp_dtensor"},
)
def fsdp_needs_its_format(k: Knobs) -> bool:
    """Megatron-FSDP keeps parameters as DTensors, which the other formats cannot describe.

    Such checkpoints load under Megatron-FSDP only, and others do not load under it.

    Fails: megatron-lm 0.19: --use-megatron-fsdp --ckpt-format torch_dist
    Passes: megatron-lm 0.19: --use-megatron-fsdp --ckpt-format fsdp_dtensor
    """
    return bool(k.use_megatron_fsdp and k.ckpt_format != "fsdp_dtensor")


@demand(
    "DAT320",
    "torch_dcp outside FSDP2, or with TP/PP",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.12",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "--ckpt-format torch_dcp is only tested with FSDP.", '
    '"... not tested with megatron tensor (pipeline) parallelism."',
    says="ckpt_format torch_dcp with use_torch_fsdp2 {use_torch_fsdp2}, tp {tp}, pp {pp}",
    suggest={"ckpt_format": "torch_dist"},
)
def dcp_knows_one_axis(k: Knobs) -> bool:
    """torch_dcp saves what FSDP2 shards; Megatron's own shards over TP and PP are not in it.

    Fails: megatron-lm 0.19: --ckpt-format torch_dcp --tensor-model-parallel-size 1
        --pipeline-model-parallel-size 1
    Fails: megatron-lm 0.19: --ckpt-format torch_dcp --use-torch-fsdp2
        --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1
    Passes: megatron-lm 0.19: --ckpt-format torch_dcp --use-torch-fsdp2
        --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1
    """
    covered = k.use_torch_fsdp2 and k.tp <= 1 and k.pp <= 1
    return bool(k.ckpt_format == "torch_dcp" and not covered)


@demand(
    "DAT321",
    "Legacy checkpoints without Gloo groups",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.17",
    source=sources.ARGUMENTS,
    consequence="a bare AssertionError at start",
    says="ckpt_format torch and the distributed optimizer without Gloo process groups",
    suggest={"ckpt_format": "torch_dist"},
)
def states_cannot_be_collected(k: Knobs) -> bool:
    """The old format gathers the sharded optimizer on one rank's host memory, through Gloo.

    Fails: megatron-lm 0.19: --disable-gloo-process-groups --use-distributed-optimizer
        --ckpt-format torch
    Passes: megatron-lm 0.19: --disable-gloo-process-groups --use-distributed-optimizer
        --ckpt-format torch_dist
    """
    gathered = k.use_distributed_optimizer and k.ckpt_format == "torch"
    return bool(gathered and not k.use_gloo_process_groups)


@demand(
    "DAT322",
    "Save directory without interval",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm; torchtitan>=0.3",
    source=f"{sources.ARGUMENTS}; torchtitan checkpoint config (0.3.0)",
    consequence="a bare AssertionError at start (assert args.save_interval is not None)",
    consequences={"torchtitan": 'ValueError: "Checkpoint interval needs to be at least 1 step."'},
    says="ckpt_dir {ckpt_dir} with checkpoint_interval_steps {checkpoint_interval_steps}",
)
def saves_at_no_step(k: Knobs) -> bool:
    """A directory to save to says that checkpoints are wanted, but not when.

    Fails: megatron-lm 0.19: --save checkpoints
    Fails: knobs(framework="torchtitan 0.3", ckpt_dir="checkpoint", checkpoint_interval_steps=0)
    Passes: megatron-lm 0.19: --save checkpoints --save-interval 500
    """
    return k.get("ckpt_dir") is not None and not k.get("checkpoint_interval_steps")


@demand(
    "DAT327",
    "Local checkpoints without a directory or library",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-lm>=0.11",
    source=sources.ARGUMENTS,
    consequence='RuntimeError: "nvidia_resiliency_ext is required for local checkpointing", or '
    'AssertionError: "Tried to use local checkpointing without specifying --local-ckpt-dir!"',
    says="non_persistent_ckpt_type local, non_persistent_local_ckpt_dir "
    "{non_persistent_local_ckpt_dir}",
)
def local_checkpoints_have_no_place(k: Knobs) -> bool:
    """Local checkpoints are written by nvidia_resiliency_ext to a directory of each node.

    Fails: megatron-lm 0.19: --non-persistent-ckpt-type local
    Fails: knobs(non_persistent_ckpt_type="local", non_persistent_local_ckpt_dir="/ssd",
        nvidia_resiliency_ext_installed=False)
    Passes: megatron-lm 0.19: --non-persistent-ckpt-type local
        --non-persistent-local-ckpt-dir /ssd
    """
    installed = k.get("nvidia_resiliency_ext_installed", True)
    ready = installed and k.get("non_persistent_local_ckpt_dir") is not None
    return bool(k.non_persistent_ckpt_type == "local" and not ready)


@demand(
    "DAT333",
    "Checkpoint step without load path",
    severity=Severity.ERROR,
    section="4.3",
    scope="megatron-bridge>=0.6",
    source=sources.BRIDGE_CHECKPOINT,
    consequence='ValueError: "ckpt_step=10 specified but checkpoint.load is None"',
    says="ckpt_step {ckpt_step} without ckpt_load",
)
def step_of_no_checkpoint(k: Knobs) -> bool:
    """A step selects one of the checkpoints below the load path, and there is no such path.

    Fails: megatron-bridge 0.6: checkpoint.ckpt_step=10
    Passes: megatron-bridge 0.6: checkpoint.ckpt_step=10 checkpoint.load=checkpoints
    """
    return k.get("ckpt_step") is not None and k.get("ckpt_load") is None
