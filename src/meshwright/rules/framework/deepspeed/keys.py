"""Keys of a DeepSpeed file: removed, unknown, misplaced, or with a value that is refused.

Sections 4.2, 7.1 and 7.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes
from meshwright.frameworks.field import release
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import runs_deepspeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_CONFIG = "DeepSpeed deepspeed/runtime/config.py DeepSpeedConfig (0.19.8)"
BYTES_OF_OVERLAP = 9.0  # 4.5 copies of the buckets, two bytes each
BUFFER_SHARE = 0.1
_DTYPES = (None, "fp16", "bf16", "fp32")
REMOVED = {
    "elasticity": "elastic batches are gone; state the batch sizes",
    "mics_shard_size": "zero_hpz_partition_size replaces MiCS",
    "mics_hierarchical_params_gather": "zero_hpz_partition_size replaces MiCS",
    "zeropp_loco_param": "LoCo is gone",
    "curriculum_learning": "data_efficiency.data_sampling.curriculum_learning replaces it",
    "progressive_layer_drop": "progressive layer dropping is gone",
    "sparse_attention": "sparse attention is gone",
    "eigenvalue": "eigenvalues of quantization are gone",
    "graph_harvesting": "graph harvesting is gone",
    "nebula": "Nebula checkpoints are gone",
    "compression_training": "the compression library is gone",
    "amp": "fp16, bf16 or torch_autocast replace Apex",
    "quantize_training": "mixture of quantization is gone",
    "sparse_gradients": "embeddings built with sparse=True need no flag",
}
_FROM_0_19_7 = {  # the others went with 0.19.8
    *("nebula", "compression_training", "quantize_training", "sparse_attention"),
    *("mics_shard_size", "mics_hierarchical_params_gather"),
}


def _removed(k: Knobs) -> list[str]:
    """Keys of the file that the release refuses because what they turned on is gone."""
    gone = REMOVED
    if k.version and release(k.version)[:3] == (0, 19, 7):
        gone = {key: why for key, why in REMOVED.items() if key in _FROM_0_19_7}
    return [key for key in k.get("ds_config_keys") or () if key in gone]


@demand(
    "DAT231",
    "Removed DeepSpeed features in the config",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19.7",
    source=f"{_CONFIG} _reject_removed_config_keys; 0.19.6 has none of it, 0.19.7 a part",
    consequence="DeepSpeedConfigError: the feature has been removed; the configuration block is "
    "no longer supported",
)
def no_removed_block(k: Knobs) -> bool:
    """Elastic batches, MiCS, the old curriculum, layer dropping and sparse attention are gone.

    Files that older releases took are refused at the start.

    Fails: deepspeed 0.19.8: {"train_batch_size": 8, "elasticity": {"enabled": true}}
    Fails: deepspeed 0.19.7: {"train_batch_size": 8, "nebula": {"enabled": true}}
    Passes: deepspeed 0.19.6: {"train_batch_size": 8, "nebula": {"enabled": true}}
    Passes: deepspeed 0.19.8: {"train_batch_size": 8}
    Passes: deepspeed 0.14: {"train_batch_size": 8, "elasticity": {"enabled": true}}
    """
    return bool(_removed(k))


@no_removed_block.message
def _(k: Knobs) -> str:
    return "; ".join(f"{key} = removed in 0.19.8: {REMOVED[key]}" for key in _removed(k))


@demand(
    "DAT232",
    "Unknown key inside zero_optimization",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.8",
    source="DeepSpeed deepspeed/runtime/zero/config.py DeepSpeedZeroConfig (0.19.8)",
    consequence="ValidationError: Extra inputs are not permitted",
)
def zero_keys_are_known(k: Knobs) -> bool:
    """Within zero_optimization, bf16 and fp16 a key that the release does not know is refused.

    At the top level of the file it is ignored, so that a typing error there switches off what it
    was meant to switch on.

    Fails: deepspeed 0.19: {"zero_optimization": {"stage": 3, "overlap_com": true}}
    Fails: deepspeed 0.19: {"bf16": {"enabled": true, "loss_scale": 1.0}}
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 3, "overlap_comm": true}}
    """
    return bool(k.get("ds_unknown_zero_keys"))


@zero_keys_are_known.message
def _(k: Knobs) -> str:
    names = ", ".join(map(str, k.ds_unknown_zero_keys))
    return f"zero_optimization, bf16 and fp16 have no key {names}"


@demand(
    "DAT271",
    "Value outside what DeepSpeed's configuration takes",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.19",
    source=f"{_CONFIG}; deepspeed/runtime/zero/config.py, runtime/precision_config.py",
    consequence="ValidationError, ValueError or AssertionError while the file is read",
)
def values_are_in_range(k: Knobs) -> bool:
    """Batch sizes are positive, a ZeRO stage is one of four, words are among those that are known.

    Fails: deepspeed 0.19: {"train_batch_size": 8, "gradient_allreduce_op": "avg"}
    Fails: deepspeed 0.19: {"train_micro_batch_size_per_gpu": 0}
    Passes: deepspeed 0.19: {"train_batch_size": 8, "checkpoint": {"tag_validation": "Warn"}}
    """
    return bool(k.get("ds_refused_values"))


@values_are_in_range.message
def _(k: Knobs) -> str:
    return "; ".join(f"{name} takes {what}" for name, what in dict(k.ds_refused_values).items())


@demand(
    "DAT242",
    "max_grad_norm inside optimizer parameters",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/engine.py DeepSpeedEngine (0.19.8)",
    consequence="ValueError: 'max_grad_norm' is not supported as an optimizer parameter, please "
    "switch to using the deepspeed parameter 'gradient_clipping'",
)
def clipping_is_not_the_optimizers(k: Knobs) -> bool:
    """The engine clips, since no rank's optimizer sees all gradients.

    Fails: deepspeed 0.19: {"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}},
        "train_batch_size": 8}
    Passes: deepspeed 0.19: {"optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
        "train_batch_size": 8, "gradient_clipping": 1.0}
    """
    return "max_grad_norm" in (k.get("ds_optimizer_params") or {})


@clipping_is_not_the_optimizers.message
def _(k: Knobs) -> str:
    value = dict(k.ds_optimizer_params).get("max_grad_norm")
    return f"optimizer.params.max_grad_norm = {value}; the key is gradient_clipping"


@demand(
    "COM119",
    "Communication dtype not supported",
    severity=Severity.ERROR,
    section="7.1",
    scope="deepspeed",
    source=f"{_CONFIG} get_communication_data_type",
    consequence="ValueError: Invalid communication_data_type. Supported data types: ['fp16', "
    "'bf16', 'fp32']",
)
def communication_dtype_is_known(k: Knobs) -> bool:
    """Gradients travel as fp16, bf16 or fp32, in these words.

    Fails: deepspeed 0.19: {"train_batch_size": 8, "communication_data_type": "fp8"}
    Passes: deepspeed 0.19: {"train_batch_size": 8, "communication_data_type": "bf16"}
    """
    return runs_deepspeed(k) and k.get("communication_data_type") not in _DTYPES


@communication_dtype_is_known.message
def _(k: Knobs) -> str:
    return f"communication_data_type = {k.communication_data_type}"


communication_dtype_is_known.fix(set_to(communication_data_type="bf16"))


@demand(
    "COM307",
    "ZeRO-1/2 all-gather bucket not aligned",
    severity=Severity.ERROR,
    section="7.3",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py (0.19.8)",
    consequence="AssertionError: allgather_bucket_size must be a multiple of "
    "nccl_start_alignment_factor, 2",
)
def bucket_is_aligned(k: Knobs) -> bool:
    """Slices of the gathered buffer start on four bytes, so it must have an even size.

    Fails: deepspeed 0.19: {"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000001}}
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000000}}
    """
    staged = runs_deepspeed(k) and k.get("zero_stage", 0) in (1, 2)
    return staged and (k.get("allgather_bucket_size") or 0) % 2 != 0


@bucket_is_aligned.message
def _(k: Knobs) -> str:
    return f"allgather_bucket_size {k.allgather_bucket_size:.0f} is odd"


@bucket_is_aligned.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"allgather_bucket_size": int(k.allgather_bucket_size) + 1}


def _buffer_bytes(k: Knobs) -> float:
    """Bytes of the buckets that an overlapped reduction keeps alive."""
    buckets = (k.get("reduce_bucket_size") or 5e8) + (k.get("allgather_bucket_size") or 5e8)
    return BYTES_OF_OVERLAP * float(buckets)


@demand(
    "COM308",
    "ZeRO buckets eat the memory",
    severity=Severity.WARNING,
    section="7.3",
    scope="deepspeed",
    source="transformers DeepSpeed documentation (ZeRO config)",
    consequence="the buffers take a tenth of the device or more, which activations then lack",
    confidence="doc",
)
def buckets_are_small_beside_memory(k: Knobs) -> bool:
    """With overlap_comm DeepSpeed holds about 4.5 copies of its buckets.

    The default 5e8 elements of each bucket make 9 GB, which a 24 GB card cannot spare.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=2, overlap_comm=True, gpu_mem_bytes=24e9,
        reduce_bucket_size=5e8, allgather_bucket_size=5e8)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=2, overlap_comm=True, gpu_mem_bytes=24e9,
        reduce_bucket_size=1e8, allgather_bucket_size=1e8)
    """
    staged = runs_deepspeed(k) and k.get("zero_stage", 0) in (1, 2) and k.get("overlap_comm", False)
    return bool(staged) and _buffer_bytes(k) > BUFFER_SHARE * k.gpu_mem_bytes


@buckets_are_small_beside_memory.message
def _(k: Knobs) -> str:
    share = _buffer_bytes(k) / k.gpu_mem_bytes
    return (
        f"overlapped buckets take {format_bytes(_buffer_bytes(k))}, {share:.0%} of "
        f"{format_bytes(k.gpu_mem_bytes)}"
    )


@buckets_are_small_beside_memory.fix
def _(k: Knobs) -> Mapping[str, Any]:
    most = int(BUFFER_SHARE * k.gpu_mem_bytes / BYTES_OF_OVERLAP / 2 * 0.99)
    unit = 10 ** (len(str(most)) - 1)
    elements = max(most // unit, 1) * unit
    return {"reduce_bucket_size": elements, "allgather_bucket_size": elements}


LEAST_PER_LAYER = 8  # times hidden_size squared, parameters of a dense layer with few KV heads


def _layer_parameters(k: Knobs) -> float:
    """At least so many parameters has a dense layer."""
    return float(LEAST_PER_LAYER * k.hidden_size**2)


@demand(
    "COM221",
    "Stage 3 fetches less than a layer ahead",
    severity=Severity.INFO,
    section="7.2",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/zero/partitioned_param_coordinator.py (0.19.8); DeepSpeed "
    "issue 1174",
    consequence="all-gathers go out in small messages, weight by weight, and wait for latency "
    "instead of running ahead of the compute",
    confidence="read",
)
def a_layer_is_fetched_ahead(k: Knobs) -> bool:
    """Parameters are gathered ahead of use up to stage3_prefetch_bucket_size elements.

    A bucket below one layer leaves most of the next layer to be gathered when it is needed. Only a
    size that the file states is judged; small parameters are best kept by
    stage3_param_persistence_threshold, and where the model fits, ZeRO-2 gathers once a step.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=3, prefetch_bucket_size=5e7,
        hidden_size=4096, num_experts=0, num_gpus=8)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, prefetch_bucket_size=5e8,
        hidden_size=4096, num_experts=0, num_gpus=8)
    """
    if not runs_deepspeed(k) or k.get("zero_stage", 0) != 3:
        return False
    if not k.is_stated("prefetch_bucket_size"):
        return False
    if k.get("num_experts") or k.num_gpus == 1:
        return False
    return bool(k.prefetch_bucket_size < _layer_parameters(k))


@a_layer_is_fetched_ahead.message
def _(k: Knobs) -> str:
    share = k.prefetch_bucket_size / _layer_parameters(k)
    each = 2 * k.hidden_size**2 / k.num_gpus
    return (
        f"stage3_prefetch_bucket_size {k.prefetch_bucket_size:.3g} holds {share:.0%} of a layer of "
        f"{_layer_parameters(k):.3g} parameters or more: all-gathers of single weights are small "
        f"messages, {format_bytes(each)} from each of {k.num_gpus} ranks"
    )


@a_layer_is_fetched_ahead.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"prefetch_bucket_size": int(1.5 * _layer_parameters(k))}
