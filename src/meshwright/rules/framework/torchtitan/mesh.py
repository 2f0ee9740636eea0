"""torchtitan's mesh, and what tensor parallelism cuts on it.

Sections 4.1, 4.2 and 5.1 of the guidelines.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import degree
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_DIMS = "torchtitan torchtitan/distributed/parallel_dims.py ParallelDims (0.3.0)"
_DECODER = "torchtitan torchtitan/models/common/decoder.py Decoder.Config.update_from_config"


def beside_shards(k: Knobs) -> int:
    """Product of the degrees beside dp_shard."""
    return prod(degree(k, name) for name in ("dp_replicate", "cp", "tp", "pp"))


# The mesh


@demand(
    "DAT103",
    "Automatic shard degree floors and then fails",
    severity=Severity.ERROR,
    section="4.1",
    scope="torchtitan>=0.1",
    source=f"{_DIMS}",
    consequence="AssertionError: Invalid parallel dims: dp_replicate * dp_shard * cp * tp * pp != "
    "WORLD_SIZE",
)
def other_degrees_divide_the_world(k: Knobs) -> bool:
    """data_parallel_shard_degree = -1 takes what the others leave, rounded down.

    A remainder then shows up as a product that is not the number of GPUs.

    Fails: knobs(framework="torchtitan 0.3", dp_shard_auto=True, num_gpus=10, tp=4)
    Passes: knobs(framework="torchtitan 0.3", dp_shard_auto=True, num_gpus=8, tp=4)
    """
    return bool(k.get("dp_shard_auto", False)) and k.num_gpus % beside_shards(k) != 0


@other_degrees_divide_the_world.message
def _(k: Knobs) -> str:
    return (
        f"dp_replicate {degree(k, 'dp_replicate')} * cp {degree(k, 'cp')} * tp "
        f"{degree(k, 'tp')} * pp {degree(k, 'pp')} = {beside_shards(k)} does not divide "
        f"{k.num_gpus} GPUs"
    )


@demand(
    "DAT211",
    "Replication only, next to another dimension (torchtitan)",
    severity=Severity.ERROR,
    section="4.2",
    scope="torchtitan<=0.2",
    source="torchtitan torchtitan/models/llama3/infra/parallelize.py (0.2.2)",
    consequence="RuntimeError: DDP has not supported > 1D parallelism.",
    confidence="read",
)
def replicas_are_sharded_too(k: Knobs) -> bool:
    """Without sharding torchtitan 0.1 and 0.2 wrap the model in DDP, which knows one axis.

    Fails: torchtitan 0.2: [parallelism]
        data_parallel_replicate_degree = 4
        data_parallel_shard_degree = 1
        tensor_parallel_degree = 2
    Passes: torchtitan 0.2: [parallelism]
        data_parallel_replicate_degree = 2
        data_parallel_shard_degree = 2
        tensor_parallel_degree = 2
    """
    if k.get("dp_shard_auto", False) or degree(k, "dp_replicate") == 1:
        return False
    return degree(k, "dp_shard") == 1 and beside_shards(k) > degree(k, "dp_replicate")


@replicas_are_sharded_too.message
def _(k: Knobs) -> str:
    return (
        f"dp_replicate {k.dp_replicate} with dp_shard 1 beside tp {degree(k, 'tp')}, cp "
        f"{degree(k, 'cp')}, pp {degree(k, 'pp')}"
    )


@replicas_are_sharded_too.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"dp_shard": k.dp_replicate, "dp_replicate": 1}


@demand(
    "MOD147",
    "EP does not divide the shards of a replica (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.3",
    source=f"{_DIMS} build_mesh",
    consequence="ValueError: The product of mesh_sizes is ..., but the original dimension at dim=0 "
    "has size ... (when the mesh is built, also for a model without experts)",
)
def experts_tile_the_shards(k: Knobs) -> bool:
    """The expert mesh lies over dp_shard * cp * tp, within a replica and a stage.

    Fails: knobs(framework="torchtitan 0.3", ep=16, dp_shard=2, cp=1, tp=2)
    Passes: knobs(framework="torchtitan 0.3", ep=4, dp_shard=2, cp=1, tp=2)
    """
    ranks = int(k.dp_shard) * degree(k, "cp") * degree(k, "tp")
    return ranks % degree(k, "ep") != 0


@experts_tile_the_shards.message
def _(k: Knobs) -> str:
    return (
        f"ep {k.ep} does not divide dp_shard {k.dp_shard} * cp {degree(k, 'cp')} * tp "
        f"{degree(k, 'tp')}"
    )


@demand(
    "MOD148",
    "ETP other than 1 or TP",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan<=0.2; deepspeed>=0.19",
    source="torchtitan torchtitan/distributed/parallel_dims.py (0.2.2); DeepSpeed "
    "deepspeed/module_inject/auto_ep_folding.py (0.19.8)",
    consequence="AssertionError: Currently we only support ETP=TP or ETP=1",
    consequences={
        "deepspeed": "ValueError: expert_parallel.expert_tensor_parallel_size is reserved for "
        "expert-internal tensor parallelism (only 1 is supported)"
    },
)
def experts_split_fully_or_not(k: Knobs) -> bool:
    """torchtitan 0.2 cuts experts over all tp ranks or over none; DeepSpeed's AutoEP over none.

    From torchtitan 0.3 on the option is gone.

    Fails: knobs(framework="torchtitan 0.2", ep=4, tp=4, etp=2)
    Fails: knobs(framework="deepspeed 0.19", ep=4, tp=2, etp=2)
    Passes: knobs(framework="torchtitan 0.2", ep=4, tp=4, etp=4)
    """
    if degree(k, "ep") == 1:
        return False
    tp = degree(k, "tp") if k.framework.startswith("torchtitan") else 1
    return degree(k, "etp") not in (1, tp)


@experts_split_fully_or_not.message
def _(k: Knobs) -> str:
    return f"etp {k.etp} with tp {degree(k, 'tp')} and ep {k.ep}"


experts_split_fully_or_not.fix(set_to(etp=1))


# Heads and vocabulary


@demand(
    "MOD104",
    "KV heads not divisible by TP (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan",
    source=f"{_DECODER} (0.3.0)",
    consequence="ValueError: tensor_parallel_degree must divide n_kv_heads; before 0.3 the reshape "
    "of the attention fails",
)
def tp_divides_key_value_heads(k: Knobs) -> bool:
    """torchtitan does not copy key/value heads: each tp rank holds whole ones of its own.

    Megatron and others replicate them where tp exceeds their number. Releases before 0.3 have no
    check and fail in the first forward pass, when the heads of a rank do not fill its tensor.

    Fails: knobs(framework="torchtitan 0.3", num_key_value_heads=8, tp=16)
    Passes: knobs(framework="torchtitan 0.3", num_key_value_heads=8, tp=8)
    """
    return degree(k, "tp") > 1 and k.num_key_value_heads % k.tp != 0


@tp_divides_key_value_heads.message
def _(k: Knobs) -> str:
    legal = ", ".join(map(str, divisors(int(k.num_key_value_heads))))
    return f"{k.num_key_value_heads} KV heads over tp {k.tp}; legal tp: {legal}"


@tp_divides_key_value_heads.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"tp": [d for d in divisors(int(k.num_key_value_heads)) if d <= k.tp][-1]}


@demand(
    "MOD111",
    "Empty vocabulary shard in the loss",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.3",
    source="torchtitan torchtitan/components/loss.py _LossParallelCrossEntropy (0.3.0)",
    consequence="the loss over tensor-parallel logits refuses a rank without vocabulary",
    confidence="read",
)
def every_rank_has_vocabulary(k: Knobs) -> bool:
    """Shards of ceil(vocab / tp) rows may leave nothing for the last ranks.

    Fails: knobs(framework="torchtitan 0.3", vocab_size=10, tp=8)
    Passes: knobs(framework="torchtitan 0.3", vocab_size=128256, tp=8)
    """
    tp = degree(k, "tp")
    return tp > 1 and ceil(k.vocab_size / tp) * (tp - 1) >= k.vocab_size


@every_rank_has_vocabulary.message
def _(k: Knobs) -> str:
    return f"vocab_size {k.vocab_size} over tp {k.tp} leaves a rank empty"
