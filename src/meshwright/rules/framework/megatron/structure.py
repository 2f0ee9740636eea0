"""Structure partitioning: heads, pipeline split, precision of edge layers, context parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree, is_meant

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD103",
    "KV heads not divisible by TP (older Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core<=0.15",
    source="Megatron-LM TransformerConfig.__post_init__ (0.12.3 and 0.14.0 refuse, 0.16.1 and "
    "0.19.2 accept)",
    consequence="ValueError: num_query_groups must be a multiple of tensor_model_parallel_size",
    says="num_key_value_heads {num_key_value_heads} over tp {tp}",
)
def key_heads_are_not_replicated(k: Knobs) -> bool:
    """Up to 0.15 every tensor-parallel rank must own whole KV heads of its own.

    From 0.16 on a KV head may be replicated where tp is a multiple of their number.

    Fails: megatron-lm 0.14: --group-query-attention --num-query-groups 2
        --num-attention-heads 32 --tensor-model-parallel-size 4
    Passes: megatron-lm 0.19: --group-query-attention --num-query-groups 2
        --num-attention-heads 32 --tensor-model-parallel-size 4
    Fails: knobs(framework="megatron-lm 0.14", num_key_value_heads=2, tp=4)
    Passes: knobs(framework="megatron-lm 0.14", num_key_value_heads=8, tp=4)
    """
    return bool(k.num_key_value_heads % k.tp)


@key_heads_are_not_replicated.fix
def _(k: Knobs) -> dict[str, int]:
    return {"tp": max(n for n in range(1, k.tp) if not k.num_key_value_heads % n)}


@demand(
    "MOD107",
    "Hidden size not divisible by heads and no explicit head size",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm",
    source=sources.ARGUMENTS,
    consequence="a bare AssertionError (assert args.hidden_size % args.num_attention_heads == 0); "
    "TransformerConfig alone floors the head size without a word",
    says="hidden_size {hidden_size} over num_attention_heads {num_attention_heads}, and no "
    "--kv-channels",
)
def head_size_is_no_whole_number(k: Knobs) -> bool:
    """Without --kv-channels a head is hidden_size / num_attention_heads wide.

    Fails: megatron-lm 0.19: --hidden-size 5000 --num-attention-heads 48
    Passes: knobs(hidden_size=5000, num_attention_heads=48, head_dim_explicit=104)
    Passes: megatron-lm 0.19: --hidden-size 5120 --num-attention-heads 40
    """
    if k.get("head_dim_explicit") is not None or k.is_stated("head_dim"):
        return False
    return bool(k.hidden_size % k.num_attention_heads)


@demand(
    "MOD116",
    "Interleaving with PP=2 and no p2p overlap",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.8",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "When interleaved schedule is used and p2p communication overlap '
    'is disabled, pipeline-model-parallel size should be greater than 2"',
    says="vpp {vpp} on pp {pp} with overlapped transfers turned off",
    suggest={"overlap_pp": True},
)
def neighbors_are_the_same_rank(k: Knobs) -> bool:
    """With two stages the previous and the next neighbor are one rank.

    Batched sends and receives then cannot be told apart; overlapped ones are issued one by one.

    Fails: megatron-lm 0.19: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 2 --no-overlap-p2p-communication
    Passes: megatron-lm 0.19: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 2
    Passes: megatron-lm 0.19: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 4 --no-overlap-p2p-communication
    """
    return bool(k.vpp > 1 and k.pp == 2 and not k.overlap_pp)


@demand(
    "MOD116",
    "Interleaving with PP=2 (older Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm<=0.7",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.7.0; relaxed in 0.8.0)",
    confidence="read",
    consequence='AssertionError: "pipeline-model-parallel size should be greater than 2 with '
    'interleaved schedule"',
    says="vpp {vpp} on pp {pp}",
)
def neighbors_were_the_same_rank(k: Knobs) -> bool:
    """Up to 0.7 the interleaved schedule needs more than two stages, overlap or not.

    Fails: megatron-lm 0.7: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 2
    Passes: megatron-lm 0.7: --num-virtual-stages-per-pipeline-rank 2
        --pipeline-model-parallel-size 4
    """
    return bool(k.vpp > 1 and k.pp <= 2)


@demand(
    "MOD119",
    "An end of the pipeline without layers (Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.11",
    source=sources.CONFIG,
    consequence='ValueError: "num_layers_in_first_pipeline_stage must be larger than 0"',
    says="first_stage_layers {first_stage_layers}, last_stage_layers {last_stage_layers}",
)
def ends_hold_layers(k: Knobs) -> bool:
    """A stage for the embedding alone is made by a layout, or by counting it as a layer.

    Fails: megatron-lm 0.19: --decoder-first-pipeline-num-layers 0 --num-layers 22
        --pipeline-model-parallel-size 3
    Passes: megatron-lm 0.19: --decoder-first-pipeline-num-layers 2 --num-layers 22
        --pipeline-model-parallel-size 3
    """
    ends = ("first_stage_layers", "last_stage_layers")
    return any(k.is_stated(end) and k.get(end, 1) <= 0 for end in ends)


@demand(
    "MOD118",
    "More than one way to state virtual stages",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.13",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "No more than one of the following arguments can be set at the '
    "same time: --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank, "
    '--pipeline-model-parallel-layout"',
    says="virtual stages are stated {n_vpp_specs} times",
)
def virtual_stages_are_stated_twice(k: Knobs) -> bool:
    """Layers a virtual stage, virtual stages a rank and a layout all fix the number of chunks.

    Fails: megatron-lm 0.19: --num-layers-per-virtual-pipeline-stage 2
        --num-virtual-stages-per-pipeline-rank 2
    Passes: megatron-lm 0.19: --num-virtual-stages-per-pipeline-rank 2
    """
    return bool(k.n_vpp_specs > 1)


@demand(
    "MOD122",
    "Uneven pipeline with layers-per-virtual-stage",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.11",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "please use --num-virtual-stages-per-pipeline-rank to specify '
    'virtual pipeline parallel degree when enable uneven pipeline parallelism"',
    says="num_layers_per_virtual_stage {num_layers_per_virtual_stage} with first_stage_layers "
    "{first_stage_layers} and last_stage_layers {last_stage_layers}",
)
def chunk_length_of_uneven_stages(k: Knobs) -> bool:
    """One length of all virtual stages contradicts first or last stages of another length.

    Fails: megatron-lm 0.19: --num-layers-per-virtual-pipeline-stage 2
        --decoder-first-pipeline-num-layers 6
    Passes: megatron-lm 0.19: --decoder-first-pipeline-num-layers 6
    """
    uneven = k.get("first_stage_layers") or k.get("last_stage_layers")
    return bool(k.get("num_layers_per_virtual_stage") is not None and uneven)


@demand(
    "MOD128",
    "MTP layers missing or misplaced in the layout",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.14",
    source="Megatron-LM megatron/core/transformer/pipeline_parallel_layer_layout.py "
    "PipelineParallelLayerLayout (0.19.2)",
    consequence='AssertionError: "Number of mtp layers in layout must match mtp_num_layers"',
    says="{layout_mtp_layers} MTP layers in the layout, mtp_num_layers {mtp_num_layers}",
)
def layout_forgets_mtp(k: Knobs) -> bool:
    """The prediction layers need the last decoder layer's output and stand in one late stage.

    That is the last virtual stage of its rank, and not the first rank; write them as 'm'.

    Fails: megatron-lm 0.19: --pipeline-model-parallel-layout "Et*15|t*15L" --mtp-num-layers 1
    Passes: megatron-lm 0.19: --pipeline-model-parallel-layout "Et*15|t*15mL" --mtp-num-layers 1
    Fails: knobs(pipeline_layout="Etm|tL", layout_mtp_layers=1, mtp_num_layers=1,
        mtp_on_first_rank=True)
    """
    if k.get("pipeline_layout") is None:
        return False
    misplaced = k.get("mtp_on_first_rank") or not k.get("mtp_in_last_virtual_stage", True)
    return bool(k.layout_mtp_layers != (k.get("mtp_num_layers") or 0) or misplaced)


@demand(
    "MOD139",
    "Pipeline dtype not given",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core",
    source=sources.PARALLEL_CONFIG,
    consequence='ValueError: "When using pipeline parallelism, pipeline_dtype must be specified"',
    says="pp {pp} and no pipeline_dtype",
    suggest={"pipeline_dtype": "bf16"},
)
def stages_do_not_know_the_type(k: Knobs) -> bool:
    """A stage allocates what it will receive, so it must know the type beforehand.

    The command line fills it in from the parameters' type; those who build the config forget it.

    Fails: knobs(pp=4, pipeline_dtype="none")
    Passes: knobs(pp=4, pipeline_dtype="bf16")
    """
    return bool(k.pp > 1 and k.pipeline_dtype == "none")


@demand(
    "MOD155",
    "Sequence parallelism without TP",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-bridge; colossalai",
    source=f"{sources.PARALLEL_CONFIG}",
    consequence='ValueError: "Cannot use sequence parallelism without tensor parallelism"',
    says="sequence_parallel with tp {tp}",
    suggest={"sequence_parallel": False},
    safe=True,
)
def nothing_to_split_over(k: Knobs) -> bool:
    """Sequence parallelism splits over the tensor-parallel group, which has one rank.

    The library refuses the pair; nothing changes when the setting goes.

    Fails: megatron-bridge 0.6: model.sequence_parallel=true model.tensor_model_parallel_size=1
    Passes: megatron-bridge 0.6: model.sequence_parallel=true model.tensor_model_parallel_size=2
    """
    return bool(k.is_stated("sequence_parallel") and k.sequence_parallel and k.tp == 1)


@demand(
    "MOD155",
    "Sequence parallelism turned off without TP",
    severity=Severity.INFO,
    section="5.1",
    scope="megatron-lm",
    source=sources.ARGUMENTS,
    consequence='a warning, then it is off: "Disabling sequence parallelism because tensor model '
    'parallelism is disabled"',
    says="sequence_parallel with tp {tp}",
    suggest={"sequence_parallel": None},
    safe=True,
)
def sequence_parallelism_is_turned_off(k: Knobs) -> bool:
    """The command line drops --sequence-parallel where there is one tensor-parallel rank.

    Fails: megatron-lm 0.19: --sequence-parallel --tensor-model-parallel-size 1
    Passes: megatron-lm 0.19: --sequence-parallel --tensor-model-parallel-size 2
    """
    return bool(k.is_stated("sequence_parallel") and k.sequence_parallel and k.tp == 1)


@demand(
    "MOD171",
    "BF16 edge layers too many or with delayed scaling",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.12",
    source=sources.CONFIG,
    consequence='ValueError: "num_layers_at_start_in_bf16 (5) must be between 0 and number of '
    'layers per pipeline stage", or "Delayed scaling does not support first / last layer in BF16."',
    says="first_last_layers_bf16 with fp8_recipe {fp8_recipe}, {num_layers_at_start_in_bf16} and "
    "{num_layers_at_end_in_bf16} layers of {num_hidden_layers} over pp {pp}",
)
def edge_layers_leave_their_stage(k: Knobs) -> bool:
    """Layers kept in bf16 at either end must lie in the first and the last stage.

    Delayed scaling shares its history over all layers and cannot leave some out.

    Fails: megatron-lm 0.19: --first-last-layers-bf16 --fp8-format hybrid --fp8-recipe tensorwise
        --num-layers-at-start-in-bf16 5 --num-layers-at-end-in-bf16 1 --num-layers 8
        --pipeline-model-parallel-size 2
    Fails: megatron-lm 0.19: --first-last-layers-bf16 --fp8-format hybrid --fp8-recipe delayed
        --num-layers 8 --pipeline-model-parallel-size 1
    Passes: megatron-lm 0.19: --first-last-layers-bf16 --fp8-format hybrid --fp8-recipe tensorwise
        --num-layers-at-start-in-bf16 1 --num-layers-at-end-in-bf16 1 --num-layers 8
        --pipeline-model-parallel-size 2
    """
    if not (k.first_last_layers_bf16 and k.fp8):
        return False
    edges = (k.get("num_layers_at_start_in_bf16") or 0, k.get("num_layers_at_end_in_bf16") or 0)
    return bool(k.fp8_recipe == "delayed" or max(edges) > k.num_hidden_layers // k.pp)


@demand(
    "MOD177",
    "cp_comm_type list of the wrong length",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.10",
    source=sources.CONFIG,
    consequence='AssertionError: "Length of cp_comm_type (1) should equal to the total number of '
    'transformer layers (8)!"',
    says="{cp_comm_type} for {num_hidden_layers} layers under cp {cp}",
)
def algorithms_do_not_match_layers(k: Knobs) -> bool:
    """One algorithm serves all layers; a list must name one for each.

    Fails: megatron-lm 0.19: --context-parallel-size 2 --cp-comm-type p2p a2a --num-layers 8
    Passes: megatron-lm 0.19: --context-parallel-size 2 --cp-comm-type p2p --num-layers 8
    Passes: megatron-lm 0.19: --context-parallel-size 2 --cp-comm-type p2p a2a --num-layers 2
    """
    kinds = k.cp_comm_type
    several = isinstance(kinds, list | tuple) and len(kinds) > 1
    return bool(k.cp > 1 and several and len(kinds) != k.num_hidden_layers)


@demand(
    "MOD182",
    "Linear-attention heads not divisible by tp*cp",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.16",
    source=f"{sources.CONFIG}, branch of the gated delta net",
    confidence="read",
    consequence="AssertionError: the heads must be a multiple of tensor*context parallel size",
    says="linear_num_key_heads {linear_num_key_heads}, linear_num_value_heads "
    "{linear_num_value_heads} over tp {tp} * cp {cp}",
)
def linear_heads_are_cut(k: Knobs) -> bool:
    """A linear-attention head keeps one recurrent state, so a rank needs whole heads.

    Context parallelism moves heads here, not tokens, and therefore counts as well.

    Fails: megatron-lm 0.19: --linear-num-key-heads 16 --linear-num-value-heads 32
        --tensor-model-parallel-size 8 --context-parallel-size 4
    Passes: megatron-lm 0.19: --linear-num-key-heads 16 --linear-num-value-heads 32
        --tensor-model-parallel-size 4 --context-parallel-size 4
    """
    if not (k.get("linear_attention") or k.is_stated("linear_num_key_heads")):
        return False
    ways = degree(k, "tp") * degree(k, "cp")
    return bool(k.linear_num_key_heads % ways or k.linear_num_value_heads % ways)


@demand(
    "MOD187",
    "MLA together with GQA",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.16",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Group query attention is mutually exclusive with multi latent '
    'attention."',
    says="multi_latent_attention with group_query_attention",
    suggest={"group_query_attention": None},
    safe=True,
)
def two_kinds_of_attention(k: Knobs) -> bool:
    """Latent attention projects every head's keys from one latent; it has no groups.

    Fails: megatron-lm 0.19: --multi-latent-attention --group-query-attention
    Passes: megatron-lm 0.19: --multi-latent-attention
    """
    return bool(k.multi_latent_attention and k.group_query_attention)


@demand(
    "MOD188",
    "Hybrid (dynamic) context parallelism limits",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.16",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Hybrid context parallelism not supported with pipeline '
    'parallelism" (CUDA Graph, Megatron FSDP); "must be used with --calculate-per-token-loss"',
    says="hybrid_context_parallel with pp {pp}, dataloader_type {dataloader_type}, per_token_loss "
    "{per_token_loss}",
)
def dynamic_groups_are_limited(k: Knobs) -> bool:
    """Groups that change with every batch leave neither stages, graphs nor shards in place.

    Ranks then hold different numbers of tokens, so the loss must be counted by token.

    Fails: megatron-lm 0.19: --hybrid-context-parallel --pipeline-model-parallel-size 2
        --dataloader-type single --calculate-per-token-loss
    Fails: megatron-lm 0.19: --hybrid-context-parallel --pipeline-model-parallel-size 1
        --dataloader-type single
    Passes: megatron-lm 0.19: --hybrid-context-parallel --pipeline-model-parallel-size 1
        --dataloader-type single --calculate-per-token-loss
    """
    if not k.hybrid_context_parallel:
        return False
    graph = k.get("cuda_graph") or k.get("cuda_graph_impl", "none") != "none"
    refused = k.pp > 1 or k.get("use_megatron_fsdp") or graph
    loader = k.get("dataloader_type") or "single"
    return bool(refused or loader != "single" or not k.per_token_loss)


@demand(
    "MOD193",
    "MTP with unsupported positions",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-lm>=0.12",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Multi-Token Prediction (MTP) is not supported with '
    'learned_absolute position embedding type."',
    says="mtp_num_layers {mtp_num_layers} with position_embedding_type {position_embedding_type}",
    suggest={"position_embedding_type": "rope"},
)
def prediction_layers_shift_positions(k: Knobs) -> bool:
    """A prediction layer sees the sequence shifted by one; learned positions do not shift with it.

    A later check of the same function would let learned_absolute and mrope pass; the first wins.

    Fails: megatron-lm 0.19: --mtp-num-layers 1 --position-embedding-type learned_absolute
    Passes: megatron-lm 0.19: --mtp-num-layers 1 --position-embedding-type rope
    """
    meant = is_meant(k, "position_embedding_type")
    return bool(meant and k.mtp_num_layers and k.position_embedding_type not in ("rope", "none"))
