"""torchtitan's batch and sequence.

Sections 4.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import degree
from meshwright.rules.framework.torchtitan.mesh import beside_shards
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_TRAINER = "torchtitan torchtitan/trainer.py"
_DECODER = "torchtitan torchtitan/models/common/decoder.py Decoder.Config.update_from_config"


def _batch_ranks(k: Knobs) -> int:
    """Ranks that read different data: replicas times shards."""
    if k.get("dp_shard_auto", False):
        return max(int(k.num_gpus) // beside_shards(k), 1) * degree(k, "dp_replicate")
    return degree(k, "dp_replicate") * degree(k, "dp_shard")


@demand(
    "DAT114",
    "torchtitan global batch not a multiple of local batch times batch degree",
    severity=Severity.ERROR,
    section="4.1",
    scope="torchtitan>=0.1",
    source=f"{_TRAINER} Trainer.__init__ (0.3.0)",
    consequence="AssertionError: global batch size must be multiple of local batch size times "
    "data-parallel degree",
    confidence="read",
)
def local_batches_make_the_global_one(k: Knobs) -> bool:
    """Gradient accumulation is derived: global / (local * replicas * shards), without a rest.

    Fails: knobs(framework="torchtitan 0.3", global_batch_size=20, local_batch_size=8, dp_shard=2)
    Passes: knobs(framework="torchtitan 0.3", global_batch_size=32, local_batch_size=8, dp_shard=2)
    Passes: knobs(framework="torchtitan 0.3", gbs_explicit=False, global_batch_size=20,
        local_batch_size=8, dp_shard=2)
    """
    if k.get("gbs_explicit", True) is False or k.global_batch_size <= 0:
        return False
    return bool(k.global_batch_size % (k.local_batch_size * _batch_ranks(k)))


@local_batches_make_the_global_one.message
def _(k: Knobs) -> str:
    return (
        f"global_batch_size {k.global_batch_size} is no multiple of local_batch_size "
        f"{k.local_batch_size} * {_batch_ranks(k)} data-parallel ranks"
    )


@local_batches_make_the_global_one.fix
def _(k: Knobs) -> Mapping[str, Any]:
    unit = k.local_batch_size * _batch_ranks(k)
    return {"global_batch_size": max(round(k.global_batch_size / unit), 1) * unit}


@demand(
    "DAT115",
    "Pipeline micro-batch does not divide the local batch",
    severity=Severity.ERROR,
    section="4.1",
    scope="torchtitan>=0.1",
    source=f"{_TRAINER} Trainer.Config.__post_init__ (0.3.0)",
    consequence="ValueError: training.local_batch_size must be evenly divisible by "
    "parallelism.pipeline_parallel_microbatch_size",
)
def pipeline_cuts_the_local_batch(k: Knobs) -> bool:
    """The local batch of a rank is cut again into the pipeline's micro-batches.

    Releases before the check hung.

    Fails: torchtitan 0.2: [training]
        local_batch_size = 8
        [parallelism]
        pipeline_parallel_degree = 2
        pipeline_parallel_microbatch_size = 3
    Passes: torchtitan 0.2: [training]
        local_batch_size = 8
        [parallelism]
        pipeline_parallel_degree = 2
        pipeline_parallel_microbatch_size = 2
    """
    if degree(k, "pp") == 1:
        return k.is_stated("pipeline_micro_batch_size") and _pipelined(k) < 1
    return bool(_pipelined(k) < 1 or k.local_batch_size % _pipelined(k))


def _pipelined(k: Knobs) -> int:
    """Sequences of one pipeline micro-batch."""
    stated = k.get("pipeline_micro_batch_size")
    return int(k.micro_batch_size if stated is None else stated)


@pipeline_cuts_the_local_batch.message
def _(k: Knobs) -> str:
    return (
        f"local_batch_size {k.local_batch_size} in micro-batches of {_pipelined(k)} over pp {k.pp}"
    )


@pipeline_cuts_the_local_batch.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = [d for d in divisors(int(k.local_batch_size)) if d <= max(_pipelined(k), 1)]
    return {"pipeline_micro_batch_size": fitting[-1]}


def _sequence_unit(k: Knobs) -> int:
    """Divisor of the sequence: tp for sequence parallelism, 2*cp for balanced chunks."""
    tp = degree(k, "tp") if k.get("sequence_parallel", True) else 1
    cp = degree(k, "cp")
    return tp * (2 * cp if cp > 1 else 1)


@demand(
    "DAT118",
    "Sequence not divisible for SP and CP together",
    severity=Severity.ERROR,
    section="4.1",
    scope="torchtitan>=0.3",
    source=f"{_TRAINER} Trainer.__init__ (0.3.0)",
    consequence="ValueError: training.seq_len must be divisible by tp * 2 * cp",
    confidence="read",
)
def sequence_divides_over_both(k: Knobs) -> bool:
    """One check asks for tp * 2 * cp, though the shards alone would need less.

    Fails: knobs(framework="torchtitan 0.3", seq_len=8200, tp=4, cp=2, sequence_parallel=True)
    Passes: knobs(framework="torchtitan 0.3", seq_len=8192, tp=4, cp=2, sequence_parallel=True)
    """
    return bool(k.seq_len % _sequence_unit(k))


@sequence_divides_over_both.message
def _(k: Knobs) -> str:
    unit = _sequence_unit(k)
    return (
        f"seq_len {k.seq_len} is no multiple of {unit} (tp {degree(k, 'tp')}, cp {degree(k, 'cp')})"
    )


@sequence_divides_over_both.fix
def _(k: Knobs) -> Mapping[str, Any]:
    unit = _sequence_unit(k)
    return {"seq_len": -(-k.seq_len // unit) * unit}


@demand(
    "DAT165",
    "Sequence longer than torchtitan's rotary tables",
    severity=Severity.ERROR,
    section="4.1",
    scope="torchtitan>=0.3",
    source=f"{_DECODER} (0.3.0)",
    consequence="ValueError: Training sequence length exceeds attention RoPE maximum supported "
    "sequence length",
)
def rotary_tables_cover_the_sequence(k: Knobs) -> bool:
    """Every model states how far its rotary tables go; longer sequences are refused, not scaled.

    Fails: knobs(framework="torchtitan 0.3", seq_len=32768, rotary_max_seq_len=16384)
    Passes: knobs(framework="torchtitan 0.3", seq_len=16384, rotary_max_seq_len=16384)
    """
    return bool(k.seq_len > k.rotary_max_seq_len)


@rotary_tables_cover_the_sequence.message
def _(k: Knobs) -> str:
    return f"seq_len {k.seq_len}, but the model's rotary tables end at {k.rotary_max_seq_len}"


@rotary_tables_cover_the_sequence.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"seq_len": k.rotary_max_seq_len}
