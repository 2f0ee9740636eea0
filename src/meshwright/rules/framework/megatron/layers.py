"""Layers that are not where the arguments seem to put them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.frameworks.shape import moe_layers
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import is_meant, is_moe

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")


@demand(
    "CMP160",
    "Virtual stages that leave layers over",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-lm",
    source=f"{sources.ARGUMENTS}; NVIDIA/Megatron-LM#326",
    consequence='AssertionError: "number of layers per pipeline stage must be divisible number of '
    'layers per virtual pipeline stage"; releases before core 0.5 silently build fewer layers',
)
def chunks_leave_layers_over(k: Knobs) -> bool:
    """A stage is cut into chunks of a given number of layers, and only whole chunks are built.

    Choose a length that divides the layers of a stage.

    Fails: megatron-lm 0.19: --num-layers 40 --pipeline-model-parallel-size 8
        --num-layers-per-virtual-pipeline-stage 2
    Passes: megatron-lm 0.19: --num-layers 40 --pipeline-model-parallel-size 4
        --num-layers-per-virtual-pipeline-stage 2
    """
    return bool(_stage_layers(k) % k.num_layers_per_virtual_stage)


def _stage_layers(k: Knobs) -> int:
    """Slots of a pipeline rank, embedding and head among them where they count."""
    ends = bool(k.get("embedding_in_split")) + bool(k.get("loss_in_split"))
    return int((k.num_hidden_layers + ends) // k.pp)


@chunks_leave_layers_over.message
def _(k: Knobs) -> str:
    chunk, stage = k.num_layers_per_virtual_stage, _stage_layers(k)
    built = stage // chunk * chunk * k.pp
    return (
        f"{stage} layers a stage in chunks of {chunk}: {built} of {k.num_hidden_layers} layers "
        f"fill whole chunks (pp {k.pp})"
    )


@chunks_leave_layers_over.fix
def _(k: Knobs) -> dict[str, int]:
    stage, chunk = _stage_layers(k), k.num_layers_per_virtual_stage
    return {
        "num_layers_per_virtual_stage": max(
            n for n in range(1, max(min(chunk, stage), 1) + 1) if not stage % n
        )
    }


@demand(
    "CMP161",
    "Pattern of experts of another depth",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.10",
    source="Megatron-LM megatron/core/models/gpt/gpt_layer_specs.py (0.19.2)",
    confidence="read",
    consequence='AssertionError: "Invalid length of moe_layer_pattern: 14, expected 16, current '
    'moe layer pattern: ..."',
    says="moe_layer_freq {moe_layer_freq} does not list {num_hidden_layers} layers",
)
def pattern_has_another_depth(k: Knobs) -> bool:
    """A list of dense and routed layers names every layer of the model.

    Fails: megatron-lm 0.19: --num-experts 8 --num-layers 16 --moe-layer-freq "([0]*1+[1]*13)"
    Passes: megatron-lm 0.19: --num-experts 8 --num-layers 16 --moe-layer-freq "([0]*1+[1]*15)"
    Passes: megatron-lm 0.19: --num-experts 8 --num-layers 16 --moe-layer-freq 2
    """
    pattern = k.moe_layer_freq
    listed = isinstance(pattern, list) or "[" in str(pattern)
    return is_moe(k) and listed and moe_layers(pattern, k.num_hidden_layers) is None


@demand(
    "CMP360",
    "Stage without experts beside prediction layers with them",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.13,<=0.16",
    source="NVIDIA/Megatron-LM#3401; megatron/core/transformer/moe/moe_utils.py "
    "track_moe_metrics (0.16.0 against 0.17.0)",
    confidence="read",
    consequence="the first log line hangs: stages without a routed layer reduce a shorter tensor "
    "of auxiliary losses than the others",
)
def losses_of_unequal_length(k: Knobs) -> bool:
    """The losses of all routed layers are summed over the stages in one tensor.

    Stages with a routed layer make it num_layers + mtp_num_layers long, dense ones num_layers.
    Give every stage a routed layer, leave out the prediction layers, or upgrade to 0.17.

    Fails: megatron-lm 0.16: --num-experts 32 --mtp-num-layers 1 --pipeline-model-parallel-size 2
        --num-layers 14 --moe-layer-freq "([0]*7+[1]*7)" --moe-aux-loss-coeff 0.001
    Passes: megatron-lm 0.16: --num-experts 32 --mtp-num-layers 1 --pipeline-model-parallel-size 2
        --num-layers 14 --moe-layer-freq "([0]*3+[1]*11)" --moe-aux-loss-coeff 0.001
    Passes: knobs(framework="megatron-lm 0.17", num_experts=32, mtp_num_layers=1, pp=2)
    """
    if not (is_moe(k) and k.mtp_num_layers and k.pp > 1 and k.get("aux_loss_coeff")):
        return False
    return bool(_dense_stages(k))


def _dense_stages(k: Knobs) -> list[int]:
    """Pipeline ranks that hold no routed layer, for an even split."""
    layers, pp, chunks = k.num_hidden_layers, k.pp, k.get("vpp") or 1
    listed = moe_layers(k.get("moe_layer_freq", 1), layers)
    routed = k.get("routed_layers") if listed is None else listed
    if routed is None or layers % (pp * chunks) or k.get("uneven_pipeline"):
        return []
    length = layers // (pp * chunks)
    held: list[bool] = [False] * pp
    for index, has_experts in enumerate(routed):
        held[index // length % pp] |= has_experts
    return [rank for rank, has_experts in enumerate(held) if not has_experts]


@losses_of_unequal_length.message
def _(k: Knobs) -> str:
    dense = ", ".join(map(str, _dense_stages(k)))
    return (
        f"stage {dense} of pp {k.pp} has no routed layer (moe_layer_freq {k.moe_layer_freq}) while "
        f"mtp_num_layers is {k.mtp_num_layers}"
    )


@demand(
    "CMP360",
    "Stage without experts (up to 0.11)",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.9,<=0.11; nemo-rl<=0.6",
    source="NVIDIA/Megatron-LM#1444; megatron/core/transformer/moe/moe_utils.py "
    "reduce_aux_losses_tracker_across_ranks (0.11.0 against 0.12.3); NVIDIA-NeMo/RL#3419",
    confidence="read",
    consequence="the first log line hangs: stages with a routed layer wait in the all-reduce of "
    "auxiliary losses over the pipeline, the dense ones have none to reduce",
)
def losses_of_some_stages(k: Knobs) -> bool:
    """Only stages with a routed layer have an auxiliary loss, and all reduce what they have.

    Give every stage a routed layer, balance without an auxiliary loss, or upgrade to 0.12.

    Fails: megatron-lm 0.11: --num-experts 8 --pipeline-model-parallel-size 8 --num-layers 16
        --moe-layer-freq "([0]*3+[1]*13)" --moe-aux-loss-coeff 0.01
    Passes: megatron-lm 0.11: --num-experts 8 --pipeline-model-parallel-size 4 --num-layers 16
        --moe-layer-freq "([0]*3+[1]*13)" --moe-aux-loss-coeff 0.01
    Passes: megatron-lm 0.11: --num-experts 8 --pipeline-model-parallel-size 8 --num-layers 16
        --moe-layer-freq "([0]*3+[1]*13)" --moe-router-load-balancing-type none
    """
    balanced = k.get("load_balancing") or ["aux_loss"]
    kinds = balanced if isinstance(balanced, list) else [balanced]
    if not is_moe(k) or k.pp < 2 or all(kind in ("none", "sinkhorn") for kind in kinds):
        return False
    return bool(k.get("aux_loss_coeff") and _dense_stages(k))


@losses_of_some_stages.message
def _(k: Knobs) -> str:
    dense = ", ".join(map(str, _dense_stages(k)))
    return f"stage {dense} of pp {k.pp} has no routed layer whose auxiliary loss it could reduce"


@demand(
    "MOD260",
    "Experts overwritten by the distributed optimizer",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-lm",
    source="databricks/megablocks#160",
    confidence="read",
    consequence="no error where the fork's check was dropped: the optimizer gathers over the plain "
    "data-parallel group, and different experts are silently overwritten with the same weights",
    says="moe_expert_model_parallelism of the MegaBlocks fork with use_distributed_optimizer",
    suggest={"use_distributed_optimizer": None},
)
def gather_overwrites_experts(k: Knobs) -> bool:
    """The fork puts experts on data-parallel ranks; the optimizer takes those ranks for replicas.

    Turn the distributed optimizer off, or use a stack with a group of its own for experts.

    Fails: megatron-lm 0.19: --moe-expert-model-parallelism --use-distributed-optimizer
    Passes: megatron-lm 0.19: --moe-expert-model-parallelism
    """
    return bool(k.moe_expert_model_parallelism and k.use_distributed_optimizer)


@demand(
    "MOD262",
    "Vocabulary padded differently under each TP",
    severity=Severity.INFO,
    section="5.2",
    scope="megatron-core",
    source="NVIDIA/Megatron-LM#1754; Megatron-LM megatron/training/tokenizer/tokenizer.py "
    "_vocab_size_with_padding (0.19.2)",
    confidence="arithmetic",
    consequence="runs under another tp have another number of embedding rows: initialization and "
    "softmax differ, and checkpoints do not fit",
)
def rows_depend_on_tensor_parallelism(k: Knobs) -> bool:
    """The vocabulary is padded to a multiple of --make-vocab-size-divisible-by times tp.

    Compare runs only where both paddings agree: choose a vocabulary that the larger unit divides.

    Fails: megatron-lm 0.19: --vocab-size 50257 --make-vocab-size-divisible-by 1
        --tensor-model-parallel-size 2
    Passes: megatron-lm 0.19: --vocab-size 51200 --make-vocab-size-divisible-by 128
        --tensor-model-parallel-size 2
    """
    stated = k.is_stated("make_vocab_size_divisible_by") and k.get("pads_vocab", True)
    return bool(stated and k.tp > 1 and _rows(k, k.tp) != _rows(k, 1))


def _rows(k: Knobs, tp: int) -> int:
    """Rows of the embedding under a degree of tensor parallelism."""
    unit = k.make_vocab_size_divisible_by * tp
    return int(-(-k.vocab_size // unit) * unit)


@rows_depend_on_tensor_parallelism.message
def _(k: Knobs) -> str:
    return (
        f"{k.vocab_size} tokens pad to {_rows(k, k.tp)} rows under tp {k.tp} and to "
        f"{_rows(k, 1)} without (make_vocab_size_divisible_by {k.make_vocab_size_divisible_by})"
    )


@demand(
    "MOD261",
    "Query groups without group-query attention",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-lm",
    source="Megatron-LM megatron/training/arguments.py core_transformer_config_from_args (0.19.2)",
    confidence="read",
    consequence="no error: --num-query-groups is ignored and every query head gets keys and values "
    "of its own, which is not the model meant",
    says="num_query_groups {num_query_groups} for {num_attention_heads} heads without "
    "--group-query-attention",
    suggest={"group_query_attention": True},
)
def groups_are_ignored(k: Knobs) -> bool:
    """The number of groups is only looked at where --group-query-attention is given as well.

    Fails: megatron-lm 0.19: --hidden-size 4096 --num-query-groups 8
        --num-attention-heads 32
    Passes: megatron-lm 0.19: --hidden-size 4096 --num-query-groups 8
        --num-attention-heads 32 --group-query-attention
    """
    meant = k.is_stated("num_query_groups") and k.num_query_groups != k.num_attention_heads
    other = k.group_query_attention or k.get("multi_latent_attention")
    return bool(meant and not other and is_meant(k, "group_query_attention"))
