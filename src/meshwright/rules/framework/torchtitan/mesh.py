"""torchtitan's mesh, batch, sequence and stages.

Sections 4.1, 4.2, 5.1 and 5.2 of the guidelines.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand, set_to
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

MOST_LAYERS = 4096  # of any model
_DIMS = "torchtitan torchtitan/distributed/parallel_dims.py ParallelDims (0.3.0)"
_TRAINER = "torchtitan torchtitan/trainer.py"
_DECODER = "torchtitan torchtitan/models/common/decoder.py Decoder.Config.update_from_config"


def _degree(k: Knobs, name: str) -> int:
    return int(k.get(name) or 1)


def _others(k: Knobs) -> int:
    """Product of the degrees beside dp_shard."""
    names = ("dp_replicate", "cp", "tp", "pp")
    product = 1
    for name in names:
        product *= _degree(k, name)
    return product


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
    return bool(k.get("dp_shard_auto", False)) and k.num_gpus % _others(k) != 0


@other_degrees_divide_the_world.message
def _(k: Knobs) -> str:
    return (
        f"dp_replicate {_degree(k, 'dp_replicate')} * cp {_degree(k, 'cp')} * tp "
        f"{_degree(k, 'tp')} * pp {_degree(k, 'pp')} = {_others(k)} does not divide "
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
    if k.get("dp_shard_auto", False) or _degree(k, "dp_replicate") == 1:
        return False
    return _degree(k, "dp_shard") == 1 and _others(k) > _degree(k, "dp_replicate")


@replicas_are_sharded_too.message
def _(k: Knobs) -> str:
    return (
        f"dp_replicate {k.dp_replicate} with dp_shard 1 beside tp {_degree(k, 'tp')}, cp "
        f"{_degree(k, 'cp')}, pp {_degree(k, 'pp')}"
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
    ranks = int(k.dp_shard) * _degree(k, "cp") * _degree(k, "tp")
    return ranks % _degree(k, "ep") != 0


@experts_tile_the_shards.message
def _(k: Knobs) -> str:
    return (
        f"ep {k.ep} does not divide dp_shard {k.dp_shard} * cp {_degree(k, 'cp')} * tp "
        f"{_degree(k, 'tp')}"
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
    if _degree(k, "ep") == 1:
        return False
    tp = _degree(k, "tp") if k.framework.startswith("torchtitan") else 1
    return _degree(k, "etp") not in (1, tp)


@experts_split_fully_or_not.message
def _(k: Knobs) -> str:
    return f"etp {k.etp} with tp {_degree(k, 'tp')} and ep {k.ep}"


experts_split_fully_or_not.fix(set_to(etp=1))


# Batch and sequence


def _batch_ranks(k: Knobs) -> int:
    """Ranks that read different data: replicas times shards."""
    if k.get("dp_shard_auto", False):
        return max(int(k.num_gpus) // _others(k), 1) * _degree(k, "dp_replicate")
    return _degree(k, "dp_replicate") * _degree(k, "dp_shard")


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
    if _degree(k, "pp") == 1:
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
    tp = _degree(k, "tp") if k.get("sequence_parallel", True) else 1
    cp = _degree(k, "cp")
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
        f"seq_len {k.seq_len} is no multiple of {unit} (tp {_degree(k, 'tp')}, cp "
        f"{_degree(k, 'cp')})"
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


# Heads, vocabulary, stages


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
    return _degree(k, "tp") > 1 and k.num_key_value_heads % k.tp != 0


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
    tp = _degree(k, "tp")
    return tp > 1 and ceil(k.vocab_size / tp) * (tp - 1) >= k.vocab_size


@every_rank_has_vocabulary.message
def _(k: Knobs) -> str:
    return f"vocab_size {k.vocab_size} over tp {k.tp} leaves a rank empty"


def _virtual_stages(k: Knobs) -> int:
    """Stages that torchtitan derives from the layers it puts into one."""
    ends = k.get("first_stage_less_layers", 1) + k.get("last_stage_less_layers", 1)
    slots = int(k.num_hidden_layers + ends)
    return -(-slots // int(k.layers_per_stage))


@demand(
    "MOD129",
    "Virtual stages not a multiple of PP (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py _get_pipeline_metadata (0.3.0)",
    consequence="ValueError: Number of virtual stages must be divisible by pipeline parallel size.",
)
def stages_divide_over_ranks(k: Knobs) -> bool:
    """Layers per stage give the number of stages; embedding and head count as a layer each.

    Fails: knobs(framework="torchtitan 0.3", layers_per_stage=3, num_hidden_layers=16, pp=4)
    Passes: knobs(framework="torchtitan 0.3", layers_per_stage=5, num_hidden_layers=16, pp=4)
    """
    if k.get("layers_per_stage") is None or _degree(k, "pp") == 1:
        return False
    return bool(_virtual_stages(k) % k.pp)


@stages_divide_over_ranks.message
def _(k: Knobs) -> str:
    return (
        f"{k.num_hidden_layers} layers and the ends in stages of {k.layers_per_stage} make "
        f"{_virtual_stages(k)} stages, no multiple of pp {k.pp}"
    )


@stages_divide_over_ranks.fix
def _(k: Knobs) -> Mapping[str, Any]:
    ends = k.get("first_stage_less_layers", 1) + k.get("last_stage_less_layers", 1)
    slots = int(k.num_hidden_layers + ends)
    each_of = range(1, min(slots, MOST_LAYERS) + 1)
    legal = [each for each in each_of if -(-slots // each) % k.pp == 0]
    nearest = sorted(legal, key=lambda each: abs(each - k.layers_per_stage))
    return {"layers_per_stage": nearest[0]} if nearest else {}


_SINGLE = ("1f1b", "gpipe")


@demand(
    "MOD130",
    "Schedule and stages of a rank disagree (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.1",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py _get_pipeline_metadata (0.3.0)",
    consequence="ValueError: Single stage schedule requires exactly 1 stage per rank, or: "
    "Multi-stage schedule requires at least 2 stages per rank",
)
def schedule_has_its_stages(k: Knobs) -> bool:
    """1F1B and GPipe order one stage a rank, the others two or more; layers a stage decide.

    Elsewhere 1F1B with several chunks is the interleaved schedule; torchtitan has it by that name.

    Fails: knobs(framework="torchtitan 0.3", pp=2, schedule_class="1F1B", stages_per_rank=2)
    Fails: knobs(framework="torchtitan 0.3", pp=2, schedule_class="Interleaved1F1B",
        stages_per_rank=1)
    Passes: knobs(framework="torchtitan 0.3", pp=2, schedule_class="Interleaved1F1B",
        stages_per_rank=2)
    """
    if _degree(k, "pp") == 1 or k.get("schedule_name_unknown", False) or k.get("pp_schedule_csv"):
        return False
    single = str(k.schedule_class).lower() in _SINGLE
    return bool(k.stages_per_rank != 1) if single else bool(k.stages_per_rank < 2)


@schedule_has_its_stages.message
def _(k: Knobs) -> str:
    return f"{k.schedule_class} with {k.stages_per_rank} stages a rank on pp {k.pp}"


@demand(
    "MOD131",
    "An end of the model counts for more layers than a stage has (torchtitan)",
    severity=Severity.ERROR,
    section="5.1",
    scope="torchtitan>=0.2",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py "
    "_generate_llm_fqn_per_model_part (0.3.0)",
    consequence="ValueError: input_weight exceeds minimum layers per stage, output_weight exceeds "
    "minimum layers per stage, or: Number of stages cannot be greater than effective layers",
)
def ends_fit_into_a_stage(k: Knobs) -> bool:
    """Embedding and head are slots of the split, and all slots of an end lie in one stage.

    Fails: knobs(framework="torchtitan 0.3", pp=4, num_stages=8, num_hidden_layers=32,
        first_stage_less_layers=20)
    Passes: knobs(framework="torchtitan 0.3", pp=4, num_stages=8, num_hidden_layers=32,
        first_stage_less_layers=2)
    """
    if _degree(k, "pp") == 1 or k.get("module_split"):
        return False
    ends = [k.get(f"{end}_stage_less_layers", 1) for end in ("first", "last")]
    return max(*ends, 1) > (k.num_hidden_layers + sum(ends)) // k.num_stages


@ends_fit_into_a_stage.message
def _(k: Knobs) -> str:
    first, last = (k.get(f"{end}_stage_less_layers", 1) for end in ("first", "last"))
    return (
        f"the ends count as {first} and {last} layers, but {k.num_hidden_layers} layers in "
        f"{k.num_stages} stages leave {(k.num_hidden_layers + first + last) // k.num_stages} each"
    )


@demand(
    "MOD203",
    "Tied embeddings with pipeline parallelism (torchtitan)",
    severity=Severity.ERROR,
    section="5.2",
    scope="torchtitan>=0.3",
    source=f"{_DECODER} (0.3.0)",
    consequence="NotImplementedError: Weight tying is not supported with Pipeline Parallel.",
)
def tied_models_have_one_stage(k: Knobs) -> bool:
    """Embedding and head lie on different stages, and torchtitan does not reduce between them.

    Fails: knobs(framework="torchtitan 0.3", tie_word_embeddings=True, pp=2)
    Passes: knobs(framework="torchtitan 0.3", tie_word_embeddings=False, pp=2)
    """
    return _degree(k, "pp") > 1 and bool(k.tie_word_embeddings)


@tied_models_have_one_stage.message
def _(k: Knobs) -> str:
    return f"tie_word_embeddings = True with pp {k.pp}"


tied_models_have_one_stage.fix(set_to(pp=1))


@demand(
    "CMP321",
    "Vision encoder on the first stage not accounted for",
    severity=Severity.WARNING,
    section="6.3",
    scope="torchtitan>=0.3",
    source="torchtitan torchtitan/distributed/pipeline_parallel.py pipeline_vlm (0.3.0)",
    consequence="stage 0 carries the encoder and as many layers as if it held the embedding alone",
    confidence="read",
)
def first_stage_makes_room(k: Knobs) -> bool:
    """The automatic split takes one layer off the first stage, for the embedding.

    Fails: knobs(framework="torchtitan 0.3", has_vision_encoder=True, pp=4,
        first_stage_less_layers=1)
    Passes: knobs(framework="torchtitan 0.3", has_vision_encoder=True, pp=4,
        first_stage_less_layers=3)
    """
    if _degree(k, "pp") == 1 or not k.get("has_vision_encoder", False):
        return False
    return bool(k.get("first_stage_less_layers", 1) <= 1)


@first_stage_makes_room.message
def _(k: Knobs) -> str:
    less = k.get("first_stage_less_layers", 1)
    return f"first_stage_less_layers {less} with a vision encoder over pp {k.pp}"


first_stage_makes_room.fix(set_to(first_stage_less_layers=3))
