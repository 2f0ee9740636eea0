"""What general rules only warn of and Megatron refuses: each with the code of its general rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree, is_meant, is_moe

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

WINDOWED = ("a2a", "all_gather")
COMMANDS = ("megatron-lm", "ms-swift-megatron")  # others have recipes, or turn it on by themselves


def _is_split_by_hand(k: Knobs) -> bool:
    """Whether stages are written out: by the ends, a layout, a list or a hybrid pattern."""
    ends = k.get("first_stage_layers") or k.get("last_stage_layers")
    written = k.get("pipeline_layout") is not None or k.get("hybrid_layer_pattern") is not None
    return bool(ends or written or k.get("num_layer_list"))


def _slots(k: Knobs) -> int:
    """Layers to split, embedding and head among them where they count as one."""
    ends = bool(k.get("embedding_in_split")) + bool(k.get("loss_in_split"))
    return int(k.num_hidden_layers) + ends


def _counts_ends(k: Knobs) -> bool:
    return bool(k.get("embedding_in_split") or k.get("loss_in_split"))


@demand(
    "MOD113",
    "Layers not divisible by PP (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Number of layers should be divisible by the '
    'pipeline-model-parallel size"',
    says="{num_hidden_layers} layers over pp {pp}, and no uneven split is written",
)
def stages_are_unequal(k: Knobs) -> bool:
    """Megatron splits layers evenly unless the first or last stage, or a layout, is written out.

    Other stacks split unevenly by themselves. State --decoder-first-pipeline-num-layers and
    --decoder-last-pipeline-num-layers so that the middle divides.

    Fails: megatron-lm 0.19: --num-layers 46 --pipeline-model-parallel-size 4
    Passes: megatron-lm 0.19: --num-layers 46 --pipeline-model-parallel-size 4
        --decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11
    Passes: megatron-lm 0.19: --num-layers 48 --pipeline-model-parallel-size 4
    """
    if _is_split_by_hand(k) or _counts_ends(k):
        return False
    return bool(k.pp > 1 and k.num_hidden_layers % k.pp)


@stages_are_unequal.fix
def _(k: Knobs) -> dict[str, int]:
    """Ends as equal as can be around a middle that divides."""
    layers, pp = k.num_hidden_layers, k.pp
    if pp < 3:
        return {"first_stage_layers": layers // pp, "last_stage_layers": layers - layers // pp}
    middle = -(-layers // pp)
    rest = layers - middle * (pp - 2)
    if rest < 2:
        middle = layers // pp
        rest = layers - middle * (pp - 2)
    return {"first_stage_layers": rest - rest // 2, "last_stage_layers": rest // 2}


@demand(
    "MOD114",
    "Layers per stage not divisible by virtual stages (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core",
    source=f"{sources.ARGUMENTS}; {sources.CONFIG}",
    consequence="AssertionError: the layers of a stage must divide by its virtual stages; given as "
    "--num-virtual-stages-per-pipeline-rank it is found when the model is built",
    says="{num_hidden_layers} layers over pp {pp} do not divide by vpp {vpp}",
)
def virtual_stages_are_unequal(k: Knobs) -> bool:
    """Every rank holds vpp chunks of the same length unless a layout is written out.

    Fails: megatron-lm 0.19: --num-layers 32 --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 3
    Passes: megatron-lm 0.19: --num-layers 32 --pipeline-model-parallel-size 4
        --num-virtual-stages-per-pipeline-rank 4
    """
    if _is_split_by_hand(k) or _counts_ends(k) or k.get("num_layers_per_virtual_stage"):
        return False
    whole = k.num_hidden_layers % k.pp == 0
    return bool(k.vpp > 1 and whole and k.num_hidden_layers // k.pp % k.vpp)


@demand(
    "MOD124",
    "Layers plus embedding or head not divisible (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.11",
    source=sources.CONFIG,
    consequence="ValueError: the number of middle layers must be divisible by the pipeline size, "
    "and by the virtual stages of a rank",
)
def slots_are_unequal(k: Knobs) -> bool:
    """Counted as a layer each, embedding and head must make the sum divide, not break it.

    Fails: megatron-lm 0.19: --num-layers 32 --pipeline-model-parallel-size 4
        --account-for-loss-in-pipeline-split
    Passes: megatron-lm 0.19: --num-layers 30 --pipeline-model-parallel-size 4
        --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split
    """
    if _is_split_by_hand(k) or not _counts_ends(k):
        return False
    slots = _slots(k)
    return bool(slots % k.pp or slots // k.pp % (k.get("vpp") or 1))


@slots_are_unequal.message
def _(k: Knobs) -> str:
    slots = _slots(k)
    return (
        f"{k.num_hidden_layers} layers and {slots - k.num_hidden_layers} of embedding and head "
        f"make {slots}, over pp {k.pp} and vpp {k.get('vpp') or 1}"
    )


@demand(
    "MOD154",
    "MoE with TP but no sequence parallelism (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core",
    source="Megatron-LM megatron/core/transformer/moe/moe_layer.py MoELayer.forward (0.10.0 to "
    "0.19.2)",
    consequence='ValueError in the first training step: "During training, performance may degrade '
    'if MoE and tensor parallelism are enabled without also enabling sequence parallelism."',
    says="num_experts {num_experts} with tp {tp} and sequence_parallel {sequence_parallel}",
    suggest={"sequence_parallel": True},
)
def experts_need_split_tokens(k: Knobs) -> bool:
    """Without sequence parallelism every tensor-parallel rank dispatches the same tokens.

    The message speaks of performance, but it is raised: no step is trained.

    Fails: megatron-lm 0.19: --num-experts 8 --tensor-model-parallel-size 2
    Passes: megatron-lm 0.19: --num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel
    Passes: megatron-lm 0.19: --num-experts 8 --tensor-model-parallel-size 1
    """
    forked = k.get("moe_expert_model_parallelism")
    left_out = k.framework not in COMMANDS and not is_meant(k, "sequence_parallel")
    whole_tokens = k.tp > 1 and not k.sequence_parallel
    return bool(is_moe(k) and whole_tokens and not forked and not left_out)


@demand(
    "CMP115",
    "Full recompute without a method or a number of layers (Megatron)",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-lm; megatron-bridge",
    source=sources.CONFIG,
    consequence='ValueError: "Using recompute_granularity: full so recompute_method must be block '
    'or uniform", "... recompute_num_layers must be between 1 and ..."',
    says="recompute full with recompute_method {recompute_method}, recompute_num_layers "
    "{recompute_num_layers}",
    suggest={"recompute_method": "uniform", "recompute_num_layers": 1},
)
def full_recompute_is_unfinished(k: Knobs) -> bool:
    """Full recompute needs the method and the layers of a unit (uniform) or of a stage (block).

    Fails: megatron-lm 0.19: --recompute-granularity full
    Fails: megatron-lm 0.19: --recompute-granularity full --recompute-method uniform
    Passes: megatron-lm 0.19: --recompute-granularity full --recompute-method uniform
        --recompute-num-layers 1
    """
    finished = k.get("recompute_method") in ("uniform", "block") and k.get("recompute_num_layers")
    return bool(k.is_stated("recompute") and k.recompute == "full" and not finished)


@demand(
    "CMP116",
    "Selective recompute with options of full recompute (Megatron)",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core",
    source=f"{sources.CONFIG}; {sources.ARGUMENTS}",
    consequence='AssertionError: "recompute method is not yet supported for selective recomputing '
    'granularity"; ValueError: "recompute_num_layers must be None"',
    says="recompute selective with recompute_method {recompute_method}, recompute_num_layers "
    "{recompute_num_layers}",
    suggest={"recompute_method": None, "recompute_num_layers": None},
    safe=True,
)
def selective_recompute_counts_layers(k: Knobs) -> bool:
    """Selective recompute covers modules of every layer; method and count belong to whole layers.

    Fails: megatron-lm 0.19: --recompute-granularity selective --recompute-method uniform
        --recompute-num-layers 1
    Passes: megatron-lm 0.19: --recompute-granularity selective
    """
    options = ("recompute_method", "recompute_num_layers")
    counted = any(k.is_stated(name) and k.get(name) is not None for name in options)
    return bool(k.recompute == "selective" and counted)


@demand(
    "CMP131",
    "CUDA graph of experts without padding (Megatron)",
    severity=Severity.ERROR,
    section="6.1",
    scope="megatron-core>=0.16",
    source=sources.CONFIG,
    consequence='AssertionError: "moe cuda graph is only supported with drop-padding MoE."',
    says="cuda_graph_modules {cuda_graph_modules} with moe_pad_expert_input_to_capacity "
    "{moe_pad_expert_input_to_capacity}",
)
def captured_experts_vary(k: Knobs) -> bool:
    """A graph replays fixed shapes, and tokens per expert vary unless padded to the capacity.

    Fails: knobs(cuda_graph_impl="local", cuda_graph_modules=["moe"])
    Passes: knobs(cuda_graph_impl="local", cuda_graph_modules=["moe"],
        moe_pad_expert_input_to_capacity=True)
    Passes: knobs(cuda_graph_impl="local", cuda_graph_modules=["attn"])
    """
    layered = k.cuda_graph_impl in ("local", "transformer_engine")
    captured = "moe" in (k.get("cuda_graph_modules") or ())
    return bool(layered and captured and not k.get("moe_pad_expert_input_to_capacity"))


def _algorithms(k: Knobs) -> list[str]:
    """How keys and values travel, for all layers or by layer."""
    stated = k.cp_comm_type
    return list(stated) if isinstance(stated, list | tuple) else [str(stated)]


@demand(
    "MOD180",
    "Sliding-window attention with ring CP (Transformer Engine)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core; transformer-engine",
    source="TransformerEngine transformer_engine/pytorch/attention context parallelism (d0067d0d)",
    confidence="read",
    consequence="AssertionError: context parallelism does not support sliding window attention "
    "with this cp_comm_type",
    says="sliding_window {sliding_window} under cp {cp} with cp_comm_type {cp_comm_type}",
    suggest={"cp_comm_type": "a2a"},
)
def ring_has_no_window(k: Knobs) -> bool:
    """The ring's kernels take whole chunks; heads (a2a) or gathered keys can be windowed.

    Fails: knobs(cp=2, sliding_window=4096, cp_comm_type="p2p")
    Passes: knobs(cp=2, sliding_window=4096, cp_comm_type="a2a")
    """
    ring = any(kind not in WINDOWED for kind in _algorithms(k))
    return bool(degree(k, "cp") > 1 and k.sliding_window and ring)


@demand(
    "MOD181",
    "Attention sinks with CP (Transformer Engine)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core; transformer-engine",
    source="TransformerEngine transformer_engine/pytorch/attention context parallelism (d0067d0d)",
    confidence="read",
    consequence="AssertionError: a learnable softmax offset works with a2a only",
    says="softmax_type {softmax_type} under cp {cp} with cp_comm_type {cp_comm_type}",
    suggest={"cp_comm_type": "a2a"},
)
def ring_misses_the_sink(k: Knobs) -> bool:
    """The sink belongs to every head's denominator once; a ring would add it at every step.

    Fails: knobs(cp=2, softmax_type="learnable", cp_comm_type="p2p")
    Passes: knobs(cp=2, softmax_type="learnable", cp_comm_type="a2a")
    Passes: knobs(cp=2, softmax_type="vanilla", cp_comm_type="p2p")
    """
    ring = any(kind != "a2a" for kind in _algorithms(k))
    return bool(degree(k, "cp") > 1 and k.softmax_type != "vanilla" and ring)


@demand(
    "MOD172",
    "All-to-all CP does not divide the KV heads (Transformer Engine)",
    severity=Severity.ERROR,
    section="5.1",
    scope="transformer-engine",
    source="TransformerEngine transformer_engine/pytorch/attention/dot_product_attention/"
    "context_parallel.py AttnFuncWithCPAndQKVOA2A (d0067d0d)",
    confidence="read",
    consequence='AssertionError: "The number of attention heads needs to be divisible by CP size!"',
)
def key_value_heads_are_exchanged_too(k: Knobs) -> bool:
    """The all-to-all gives every rank whole heads of keys and values too, and holds none twice.

    So cp is at most the KV heads of a tensor-parallel rank; DeepSpeed's Ulysses repeats them.

    Fails: knobs(cp=4, tp=4, num_key_value_heads=8, cp_comm_type="a2a")
    Passes: knobs(cp=2, tp=4, num_key_value_heads=8, cp_comm_type="a2a")
    Passes: knobs(cp=4, tp=4, num_key_value_heads=8, cp_comm_type="p2p")
    """
    if k.cp < 2 or "a2a" not in _algorithms(k) or k.get("multi_latent_attention"):
        return False
    return bool(max(k.num_key_value_heads // max(k.get("tp") or 1, 1), 1) % k.cp)


@key_value_heads_are_exchanged_too.message
def _(k: Knobs) -> str:
    own = max(k.num_key_value_heads // max(k.get("tp") or 1, 1), 1)
    return (
        f"{k.num_key_value_heads} key/value heads over tp {k.get('tp') or 1} leave {own} a rank, "
        f"which an all-to-all of cp {k.cp} does not divide"
    )
