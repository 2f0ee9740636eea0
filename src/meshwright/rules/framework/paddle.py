"""What PaddleNLP's trainer and Paddle's tuner of plans demand.

Sections 4.1, 4.2 and 5.1 of the guidelines. Sharding is an axis of its own here: the GPUs are
dp * sharding * tp * pp, and the batch divides over dp * sharding. Where the tuner refuses, it
leaves a plan out of its search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import degree
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_PRUNE = "PaddlePaddle python/paddle/distributed/auto_tuner/prune.py (3.2.0)"
_ARGUMENTS = "PaddleNLP paddlenlp/trainer/training_args.py TrainingArguments.__post_init__ (2.8.1)"
_PRUNED = "the tuner prunes the plan"
LARGEST_TP = 8


def _replicas(k: Knobs) -> int:
    """Data-parallel ranks beside the sharding axis."""
    stated = k.get("paddle_dp")
    return max(int(stated), 1) if stated else degree(k, "dp")


def _local_batch(k: Knobs) -> int:
    return int(k.global_batch_size) // (_replicas(k) * degree(k, "sharding_degree"))


@demand(
    "DAT126",
    "Local batch not divisible by micro-batch (Paddle tuner)",
    severity=Severity.ERROR,
    section="4.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_mbs",
    consequence=_PRUNED,
)
def micro_batches_fill_the_local_batch(k: Knobs) -> bool:
    """What a rank gets of the batch, global / (dp * sharding), is cut into whole micro-batches.

    Fails: knobs(framework="paddle 3.2", global_batch_size=48, dp=2, sharding_degree=2,
        micro_batch_size=8)
    Passes: knobs(framework="paddle 3.2", global_batch_size=64, dp=2, sharding_degree=2,
        micro_batch_size=8)
    """
    return bool(_local_batch(k) % k.micro_batch_size)


@micro_batches_fill_the_local_batch.message
def _(k: Knobs) -> str:
    return f"a local batch of {_local_batch(k)} in micro-batches of {k.micro_batch_size}"


@micro_batches_fill_the_local_batch.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = [d for d in divisors(max(_local_batch(k), 1)) if d <= k.micro_batch_size]
    return {"micro_batch_size": fitting[-1]}


def _gpus_of_degrees(k: Knobs) -> int:
    return _replicas(k) * degree(k, "sharding_degree") * degree(k, "tp") * degree(k, "pp")


@demand(
    "DAT127",
    "Degrees do not multiply to the GPU count (Paddle tuner)",
    severity=Severity.ERROR,
    section="4.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_num_gpus",
    consequence=_PRUNED,
)
def sharding_is_an_axis(k: Knobs) -> bool:
    """The sharding degree multiplies with dp, where Megatron and DeepSpeed count it into dp.

    Fails: knobs(framework="paddle 3.2", dp=8, tp=2, pp=1, sharding_degree=8, num_gpus=16)
    Passes: knobs(framework="paddle 3.2", dp=1, tp=2, pp=1, sharding_degree=8, num_gpus=16)
    """
    if k.get("sharding_degree") is None:
        return False
    return bool(_gpus_of_degrees(k) != k.num_gpus)


@sharding_is_an_axis.message
def _(k: Knobs) -> str:
    return (
        f"dp {_replicas(k)} * sharding {degree(k, 'sharding_degree')} * tp {degree(k, 'tp')} * "
        f"pp {degree(k, 'pp')} = {_gpus_of_degrees(k)}, not {k.num_gpus} GPUs"
    )


@demand(
    "DAT203",
    "Sharding stage 2/3 with pipeline (Paddle)",
    severity=Severity.ERROR,
    section="4.2",
    scope="paddlenlp@2.8; paddle@3.2",
    source=f"{_ARGUMENTS}; {_PRUNE} prune_by_sharding",
    consequence="ValueError: pipeline parallel is not compatible for sharding stage2 or stage3",
    consequences={"paddle": _PRUNED},
    says="sharding stage {zero_stage} with pp {pp}",
    suggest={"zero_stage": 1},
)
def pipeline_shards_optimizer_states(k: Knobs) -> bool:
    """Stages 2 and 3 give gradients away after each backward pass, which a pipeline accumulates.

    Fails: knobs(framework="paddlenlp 2.8", pp=2, zero_stage=2, sharding_degree=4)
    Passes: knobs(framework="paddlenlp 2.8", pp=2, zero_stage=1, sharding_degree=4)
    """
    sharded = k.get("sharding_degree") is None or degree(k, "sharding_degree") > 1
    return degree(k, "pp") > 1 and k.get("zero_stage", 0) in (2, 3) and sharded


@demand(
    "DAT252",
    "Paddle overlap flags conflict",
    severity=Severity.ERROR,
    section="4.2",
    scope="paddlenlp@2.8",
    source=_ARGUMENTS,
    consequence="AssertionError: dp_comm_overlap and sharding_comm_overlap cannot be enabled at "
    "the same time",
    confidence="read",
    says="enable_dp_comm_overlap = true and enable_sharding_comm_overlap = true",
    suggest={"enable_dp_comm_overlap": False},
)
def one_reduction_overlaps(k: Knobs) -> bool:
    """One of the two groups reduces the gradients, and its hooks start the collective.

    Fails: knobs(framework="paddlenlp 2.8", enable_dp_comm_overlap=True,
        enable_sharding_comm_overlap=True)
    Passes: knobs(framework="paddlenlp 2.8", enable_dp_comm_overlap=False,
        enable_sharding_comm_overlap=True)
    """
    return bool(
        k.get("enable_dp_comm_overlap", False) and k.get("enable_sharding_comm_overlap", False)
    )


def _uneven(k: Knobs) -> list[str]:
    """Sizes that tp does not divide."""
    names = ["hidden_size", "vocab_size", "num_attention_heads"]
    names += ["seq_len"] if k.get("sequence_parallel", False) else []
    return [f"{name} {getattr(k, name)}" for name in names if getattr(k, name) % k.tp]


@demand(
    "MOD112",
    "Hidden, heads, vocabulary or sequence not divisible by TP (Paddle tuner)",
    severity=Severity.ERROR,
    section="5.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_mp",
    consequence=_PRUNED,
)
def tp_divides_every_size(k: Knobs) -> bool:
    """The tuner takes no padding of the vocabulary into account.

    Fails: knobs(framework="paddle 3.2", tp=8, hidden_size=4096, vocab_size=32001,
        num_attention_heads=32)
    Passes: knobs(framework="paddle 3.2", tp=8, hidden_size=4096, vocab_size=32000,
        num_attention_heads=32)
    """
    return degree(k, "tp") > 1 and bool(_uneven(k))


@tp_divides_every_size.message
def _(k: Knobs) -> str:
    return f"tp {k.tp} does not divide {', '.join(_uneven(k))}"


@demand(
    "MOD117",
    "Interleaving with PP<=2 (Paddle)",
    severity=Severity.ERROR,
    section="5.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_vpp",
    consequence=_PRUNED,
    says="vpp {vpp} with pp {pp}",
    suggest={"vpp": 1},
)
def interleaving_has_three_ranks(k: Knobs) -> bool:
    """Megatron runs two ranks with overlapped transfers; the tuner leaves such plans out.

    Fails: knobs(framework="paddle 3.2", vpp=2, pp=2)
    Passes: knobs(framework="paddle 3.2", vpp=2, pp=4)
    """
    return degree(k, "vpp") > 1 and degree(k, "pp") <= 2


@demand(
    "MOD192",
    "TP beyond 8, or PP beyond the node count, in the Paddle tuner",
    severity=Severity.WARNING,
    section="5.1",
    scope="paddle>=2.6",
    source=f"{_PRUNE} prune_by_mp, prune_by_pp",
    consequence="the tuner prunes the plan unless the candidates are given (up to 2.6 also tp > 8)",
)
def degrees_are_among_the_candidates(k: Knobs) -> bool:
    """By default the tuner keeps tp within a node and pp within the number of nodes.

    Fails: knobs(framework="paddle 3.2", tp=1, pp=8, num_nodes=2)
    Passes: knobs(framework="paddle 3.2", tp=8, pp=2, num_nodes=2)
    """
    return degree(k, "tp") > LARGEST_TP or (k.num_nodes > 1 and degree(k, "pp") > k.num_nodes)


@degrees_are_among_the_candidates.message
def _(k: Knobs) -> str:
    return f"tp {degree(k, 'tp')}, pp {degree(k, 'pp')} on {k.num_nodes} nodes"


# What other frameworks run or only warn of


@demand(
    "CMP103",
    "Interleaved schedule with M not a multiple of PP (Paddle)",
    severity=Severity.ERROR,
    section="6.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_vpp",
    consequence=_PRUNED,
    says="{num_microbatches} micro-batches over pp {pp} with vpp {vpp}",
)
def interleaved_rounds_are_full(k: Knobs) -> bool:
    """Paddle interleaves in rounds of pp micro-batches.

    torch and Megatron run other numbers, each its own.

    Fails: knobs(framework="paddle 3.2", vpp=2, pp=4, num_microbatches=6)
    Passes: knobs(framework="paddle 3.2", vpp=2, pp=4, num_microbatches=8)
    """
    return degree(k, "vpp") > 1 and degree(k, "pp") > 1 and k.num_microbatches % k.pp != 0


@demand(
    "CMP104",
    "Fewer micro-batches than stages (Paddle)",
    severity=Severity.ERROR,
    section="6.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_mbs",
    consequence=_PRUNED,
    says="{num_microbatches} micro-batches over pp {pp}",
)
def every_stage_gets_a_micro_batch(k: Knobs) -> bool:
    """The tuner leaves out pipelines that are never full.

    Fails: knobs(framework="paddle 3.2", pp=4, num_microbatches=2)
    Passes: knobs(framework="paddle 3.2", pp=4, num_microbatches=4)
    """
    return degree(k, "pp") > 1 and bool(k.num_microbatches < k.pp)


@demand(
    "MOD113",
    "Layers not divisible by PP (Paddle)",
    severity=Severity.ERROR,
    section="5.1",
    scope="paddle@3.2",
    source=f"{_PRUNE} prune_by_pp",
    consequence=_PRUNED,
    says="{num_hidden_layers} layers over pp {pp}",
)
def layers_divide_over_stages(k: Knobs) -> bool:
    """Paddle's stages hold equal numbers of layers; torchtitan and DeepSpeed split unevenly.

    Fails: knobs(framework="paddle 3.2", num_hidden_layers=30, pp=4)
    Passes: knobs(framework="paddle 3.2", num_hidden_layers=32, pp=4)
    """
    return degree(k, "pp") > 1 and k.num_hidden_layers % k.pp != 0
