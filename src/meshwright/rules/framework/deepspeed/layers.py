"""What DeepSpeed demands of pipelines, Ulysses batches, experts and secondary shards.

Sections 4.1, 4.2, 5.1, 5.2, 6.1 and 6.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.framework.degrees import runs_deepspeed
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_DUALPIPE = ("pipe_partitioned", "grad_partitioned", "dynamic_shape", "has_bool_tensors")
_FOLDING = "DeepSpeed deepspeed/module_inject/auto_ep_folding.py validate_folding_global (0.19.8)"


def _present(k: Knobs, names: tuple[str, ...]) -> list[str]:
    """Of these variables, those that are true."""
    return [name for name in names if k.get(name, False)]


# Pipelines


@demand(
    "CMP107",
    "DeepSpeed DualPipeV exclusions",
    severity=Severity.ERROR,
    section="6.1",
    scope="deepspeed>=0.19",
    source="DeepSpeed deepspeed/runtime/pipe/dualpipev.py (0.19.8)",
    consequence="AssertionError: DualPipeV does not support partitioned activations or gradients, "
    "dynamic shapes, or bool tensors",
    confidence="read",
)
def dualpipe_sends_whole_tensors(k: Knobs) -> bool:
    """DualPipeV exchanges fixed, whole tensors between the two halves of its V.

    Fails: knobs(framework="deepspeed 0.19", schedule="dualpipev", pipe_partitioned=True)
    Passes: knobs(framework="deepspeed 0.19", schedule="dualpipev", pipe_partitioned=False)
    Passes: knobs(framework="deepspeed 0.19", schedule="1f1b", pipe_partitioned=True)
    """
    dual = str(k.get("schedule", "")).lower().replace("-", "") == "dualpipev"
    return dual and bool(_present(k, _DUALPIPE))


@dualpipe_sends_whole_tensors.message
def _(k: Knobs) -> str:
    return f"schedule = {k.schedule} with {', '.join(_present(k, _DUALPIPE))}"


@dualpipe_sends_whole_tensors.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return dict.fromkeys(_present(k, _DUALPIPE), False)


@demand(
    "CMP134",
    "DeepSpeed partition method not implemented",
    severity=Severity.ERROR,
    section="6.1",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/pipe/module.py (0.19.8)",
    consequence="NotImplementedError: Partitioning method profile not implemented.",
    confidence="read",
)
def partition_is_implemented(k: Knobs) -> bool:
    """Layers can be split evenly, by parameters or by type; by measured time only in name.

    Fails: knobs(framework="deepspeed 0.19", partition_method="profile")
    Passes: knobs(framework="deepspeed 0.19", partition_method="parameters")
    """
    return runs_deepspeed(k) and str(k.get("partition_method", "")).lower() == "profile"


@partition_is_implemented.message
def _(k: Knobs) -> str:
    return f"partition_method = {k.partition_method}; there are parameters, uniform, type:regex"


partition_is_implemented.fix(set_to(partition_method="parameters"))


@demand(
    "MOD206",
    "Tied layers not declared in a DeepSpeed pipeline",
    severity=Severity.ERROR,
    section="5.2",
    scope="deepspeed",
    source="DeepSpeed docs/_tutorials/pipeline.md; deepspeed/runtime/pipe/module.py (0.19.8)",
    consequence="no error: the copies on the first and the last stage drift apart",
    confidence="doc",
)
def tied_layers_are_declared(k: Knobs) -> bool:
    """A weight that two stages share is one only if both layers are a TiedLayerSpec of one key.

    Otherwise each stage trains its own copy.

    Fails: knobs(framework="deepspeed 0.19", pp=2, tie_word_embeddings=True,
        uses_tied_layer_spec=False)
    Passes: knobs(framework="deepspeed 0.19", pp=2, tie_word_embeddings=True,
        uses_tied_layer_spec=True)
    """
    if not runs_deepspeed(k) or (k.get("pp") or 1) < 2 or not k.get("tie_word_embeddings", False):
        return False
    return not k.uses_tied_layer_spec


@tied_layers_are_declared.message
def _(k: Knobs) -> str:
    return f"tie_word_embeddings = True over pp {k.pp} without a TiedLayerSpec"


# Ulysses


@demand(
    "DAT123",
    "Ulysses batches without position_ids",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed>=0.19",
    source="DeepSpeed deepspeed/runtime/sequence_parallel/ulysses_sp.py (0.19.8)",
    consequence="ValueError: Ulysses SP requires position_ids in every dataloader batch",
    confidence="read",
)
def shards_know_their_positions(k: Knobs) -> bool:
    """Without position_ids each shard would count from zero, and the causal mask with it.

    Fails: knobs(framework="deepspeed 0.19", ulysses=4, batch_has_position_ids=False)
    Passes: knobs(framework="deepspeed 0.19", ulysses=4, batch_has_position_ids=True)
    """
    return runs_deepspeed(k) and (k.get("ulysses") or 1) > 1 and not k.batch_has_position_ids


@shards_know_their_positions.message
def _(k: Knobs) -> str:
    return f"Ulysses degree {k.ulysses} over batches without position_ids"


def _chunks(k: Knobs) -> tuple[int, int]:
    """Chunks of the sequence, and tokens of one rank."""
    return k.seq_len // k.fpdt_chunk_size, k.seq_len // (k.get("ulysses") or 1)


@demand(
    "DAT125",
    "FPDT chunk does not tile the sequence",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed",
    source="DeepSpeed deepspeed/sequence/fpdt_layer.py FPDT_InputConstruct (0.19.8)",
    consequence="AssertionError in the constructor of the chunked input",
    confidence="read",
)
def chunks_tile_the_sequence(k: Knobs) -> bool:
    """The sequence splits into whole chunks, and a rank's part into as many.

    Fails: knobs(framework="deepspeed 0.19", seq_len=65536, fpdt_chunk_size=60000, ulysses=4)
    Passes: knobs(framework="deepspeed 0.19", seq_len=65536, fpdt_chunk_size=8192, ulysses=4)
    """
    if not runs_deepspeed(k) or (k.get("fpdt_chunk_size") or 0) <= 0:
        return False
    chunks, local = _chunks(k)
    return k.seq_len % k.fpdt_chunk_size != 0 or local % max(chunks, 1) != 0


@chunks_tile_the_sequence.message
def _(k: Knobs) -> str:
    _, local = _chunks(k)
    return f"chunks of {k.fpdt_chunk_size} in {k.seq_len} tokens, {local} a rank"


# Experts


@demand(
    "MOD152",
    "AutoEP+AutoTP folding limits",
    severity=Severity.ERROR,
    section="5.1",
    scope="deepspeed>=0.19",
    source=_FOLDING,
    consequence="ValueError: AutoEP+AutoTP folding currently supports pp_size=1 only, no Ulysses, "
    "autoep_size > 1 and no offload",
)
def folding_stays_within_its_limits(k: Knobs) -> bool:
    """DeepSpeed folds experts over tensor-parallel ranks in one case only.

    No pipeline, no Ulysses, no offload, and more than one expert-parallel rank: with one, the tp
    ranks would count the gradients of routed tokens twice.

    Fails: knobs(framework="deepspeed 0.19", num_experts=8, tp=2, ep=4, pp=2)
    Fails: knobs(framework="deepspeed 0.19", num_experts=8, tp=2, ep=1)
    Passes: knobs(framework="deepspeed 0.19", num_experts=8, tp=2, ep=4)
    """
    if not runs_deepspeed(k) or not (k.get("num_experts") or 0) or (k.get("tp") or 1) < 2:
        return False
    return bool(_folding_faults(k))


def _folding_faults(k: Knobs) -> list[str]:
    """What the folding does not take."""
    faults = {
        f"pp {k.get('pp')}": (k.get("pp") or 1) > 1,
        f"Ulysses degree {k.get('ulysses')}": (k.get("ulysses") or 1) > 1,
        "ep 1": (k.get("ep") or 1) == 1,
        "optimizer offload": bool(k.get("optimizer_offload", False)),
        "parameter offload": bool(k.get("offload_params", False)),
    }
    return [words for words, present in faults.items() if present]


@folding_stays_within_its_limits.message
def _(k: Knobs) -> str:
    return f"{k.num_experts} experts under tp {k.tp} with {', '.join(_folding_faults(k))}"


folding_stays_within_its_limits.fix(set_to(tp=1))


@demand(
    "CMP320",
    "Fewer tokens than the minimum capacity",
    severity=Severity.ERROR,
    section="6.3",
    scope="deepspeed",
    source="DeepSpeed deepspeed/moe/sharded_moe.py top1gating (0.19.8)",
    consequence="AssertionError: No. of tokens (batch-size) should be greater than min_capacity",
    confidence="read",
)
def tokens_fill_the_capacity(k: Knobs) -> bool:
    """The gate of DeepSpeed's MoE layer picks min_capacity tokens an expert at least.

    Fails: knobs(framework="deepspeed 0.19", num_experts=8, moe_min_capacity=4096,
        micro_batch_size=1, seq_len=2048)
    Passes: knobs(framework="deepspeed 0.19", num_experts=8, moe_min_capacity=4,
        micro_batch_size=1, seq_len=2048)
    """
    if not runs_deepspeed(k) or not (k.get("num_experts") or 0):
        return False
    return bool(k.moe_min_capacity > k.micro_batch_size * k.seq_len)


@tokens_fill_the_capacity.message
def _(k: Knobs) -> str:
    return f"min_capacity {k.moe_min_capacity} of {k.micro_batch_size * k.seq_len} tokens"


tokens_fill_the_capacity.fix(set_to(moe_min_capacity=0))


# Secondary shards


@demand(
    "DAT235",
    "hpZ partition does not divide the world",
    severity=Severity.ERROR,
    section="4.2",
    scope="deepspeed>=0.10",
    source="DeepSpeed deepspeed/utils/groups.py _create_zero_param_parallel_group (0.19.8)",
    consequence="AssertionError when the secondary groups are made: not divisible",
    confidence="read",
)
def secondary_shards_tile_the_world(k: Knobs) -> bool:
    """Each group of zero_hpz_partition_size ranks holds one more copy of the weights.

    Fails: deepspeed 0.19: {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 6}}
        # 16 GPUs
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}
        # 16 GPUs
    """
    size = int(k.get("zero_hpz_partition_size") or 1)
    if not runs_deepspeed(k) or size <= 1:
        return False
    return bool(k.num_gpus % min(size, k.num_gpus))


@secondary_shards_tile_the_world.message
def _(k: Knobs) -> str:
    return f"zero_hpz_partition_size {k.zero_hpz_partition_size} on {k.num_gpus} GPUs"


@secondary_shards_tile_the_world.fix
def _(k: Knobs) -> Mapping[str, Any]:
    within = [d for d in divisors(int(k.num_gpus)) if d <= k.get("gpus_per_node", 8)]
    return {"zero_hpz_partition_size": within[-1]}


@demand(
    "DAT236",
    "hpZ partition different from the fast domain",
    severity=Severity.WARNING,
    section="4.2",
    scope="deepspeed>=0.10",
    source="ZeRO++ (arXiv 2306.10209); DeepSpeed docs/_tutorials/zeropp.md",
    consequence="smaller groups hold more copies than needed, larger ones gather over the network",
    confidence="doc",
)
def secondary_shards_stay_in_the_node(k: Knobs) -> bool:
    """The second copy of the weights is for gathers inside one node, so it should fill one.

    Fails: knobs(framework="deepspeed 0.19", zero_hpz_partition_size=4, gpus_per_node=8)
    Passes: knobs(framework="deepspeed 0.19", zero_hpz_partition_size=8, gpus_per_node=8)
    """
    size = int(k.get("zero_hpz_partition_size") or 1)
    return runs_deepspeed(k) and size > 1 and size != k.gpus_per_node


@secondary_shards_stay_in_the_node.message
def _(k: Knobs) -> str:
    return f"zero_hpz_partition_size {k.zero_hpz_partition_size} on nodes of {k.gpus_per_node} GPUs"


@secondary_shards_stay_in_the_node.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"zero_hpz_partition_size": k.gpus_per_node}
