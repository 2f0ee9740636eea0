"""Experts: their tensor parallelism, widths, routing and capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources
from meshwright.rules.framework.megatron.sources import degree, is_meant, is_moe

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

CAPACITY_BALANCERS = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")


@demand(
    "MOD143",
    "ETP left at its default",
    severity=Severity.WARNING,
    section="5.1",
    scope="megatron-core>=0.12",
    source=sources.GROUPS,
    consequence="experts are split over tp as well, so ep*tp*pp must divide the GPUs: "
    '"world_size (1024) is not divisible by expert_tensor_model_pipeline_parallel size (2048)"',
    says="num_experts {num_experts}, tp {tp}, ep {ep}, and no expert tensor parallelism stated: it "
    "becomes {tp}",
    suggest={"etp": 1},
)
def experts_inherit_tensor_parallelism(k: Knobs) -> bool:
    """A plan from a paper means whole experts (ETP 1); Megatron takes ETP = TP unless told.

    The documented mapping of DeepSeek-V3, TP 2, PP 16 and EP 64 on 1024 GPUs, is refused that way.

    Fails: megatron-lm 0.19: --num-experts 64 --tensor-model-parallel-size 2
        --expert-model-parallel-size 8
    Passes: megatron-lm 0.19: --num-experts 64 --tensor-model-parallel-size 2
        --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
    Passes: megatron-lm 0.19: --num-experts 64 --tensor-model-parallel-size 1
        --expert-model-parallel-size 8
    Passes: megatron-lm 0.19: --tensor-model-parallel-size 2 --expert-model-parallel-size 1
    """
    implied = k.get("etp_explicit") is None and k.get("etp", k.tp) == k.tp
    return bool(is_moe(k) and k.tp > 1 and k.ep > 1 and implied)


@demand(
    "MOD156",
    "Biased experts under expert TP",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.15",
    source=sources.CONFIG,
    consequence='AssertionError: "Bias in Moe is only supported when ETP==1"',
    says="add_bias_linear with num_experts {num_experts} and etp {etp}",
    suggest={"add_bias_linear": False},
)
def expert_bias_is_split(k: Knobs) -> bool:
    """Each rank of a row-parallel expert would add the bias, and the sum has it etp times.

    Fails: megatron-lm 0.19: --hidden-size 4096 --num-experts 8 --expert-tensor-parallel-size 2
    Passes: megatron-lm 0.19: --hidden-size 4096 --num-experts 8 --expert-tensor-parallel-size 1
    """
    biased = k.add_bias_linear and is_meant(k, "add_bias_linear")
    return bool(is_moe(k) and biased and k.etp > 1)


@demand(
    "MOD156",
    "Biased experts (older Megatron)",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.12,<=0.14",
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.14.0)",
    consequence='AssertionError: "Bias is not supported for MoE"',
    says="add_bias_linear with num_experts {num_experts}",
    suggest={"add_bias_linear": False},
)
def expert_bias_is_refused(k: Knobs) -> bool:
    """Up to 0.14 no expert layer may carry biases, split or not.

    Fails: megatron-lm 0.14: --hidden-size 4096 --num-experts 8
    Passes: megatron-lm 0.14: --num-experts 8 --disable-bias-linear
    """
    return bool(is_moe(k) and k.add_bias_linear and is_meant(k, "add_bias_linear"))


@demand(
    "MOD191",
    "Expert width without experts",
    severity=Severity.ERROR,
    section="5.1",
    scope="megatron-core>=0.13",
    source=sources.CONFIG,
    consequence='ValueError: "moe_ffn_hidden_size is set but num_moe_experts is None."',
    says="moe_intermediate_size {moe_intermediate_size} and no num_experts",
    suggest={"moe_intermediate_size": None},
    safe=True,
)
def width_of_no_expert(k: Knobs) -> bool:
    """A width for experts is left over from another model, or the number of experts is missing.

    Fails: megatron-lm 0.19: --hidden-size 4096 --moe-ffn-hidden-size 768
    Passes: megatron-lm 0.19: --moe-ffn-hidden-size 768 --num-experts 64
    """
    meant = k.is_stated("moe_intermediate_size") and is_meant(k, "num_experts")
    return bool(meant and k.moe_intermediate_size and not is_moe(k))


@demand(
    "CMP305",
    "Aux loss coefficients do not match the types",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.14",
    source=sources.CONFIG,
    consequence='AssertionError: "moe_aux_loss_coeff must be a list of the same length as '
    'moe_router_load_balancing_type"',
    says="load_balancing {load_balancing} with aux_loss_coeff {aux_loss_coeff}",
)
def losses_lack_coefficients(k: Knobs) -> bool:
    """Several balancing losses are summed, each with a coefficient of its own.

    Fails: megatron-lm 0.19: --moe-router-load-balancing-type aux_loss seq_aux_loss
        --moe-aux-loss-coeff 0.01
    Passes: megatron-lm 0.19: --moe-router-load-balancing-type aux_loss seq_aux_loss
        --moe-aux-loss-coeff 0.01 0.001
    Passes: megatron-lm 0.19: --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.01
    """
    kinds, weights = k.load_balancing, k.aux_loss_coeff
    if not isinstance(kinds, list | tuple) or len(kinds) < 2:
        return False
    return not isinstance(weights, list | tuple) or len(weights) != len(kinds)


@demand(
    "CMP306",
    "Capacity factor with an incompatible balancer or backend",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.12",
    source=sources.CONFIG,
    consequence='ValueError: "moe_expert_capacity_factor only works with aux_loss or none load '
    'balancing", or "must be set to use moe_pad_expert_input_to_capacity"',
    says="expert_capacity_factor {expert_capacity_factor} with load_balancing {load_balancing}, "
    "moe_pad_expert_input_to_capacity {moe_pad_expert_input_to_capacity}",
)
def capacity_does_not_fit_the_balancer(k: Knobs) -> bool:
    """Sinkhorn already gives every expert its share; padding to a capacity needs a capacity.

    Fails: megatron-lm 0.19: --moe-expert-capacity-factor 1.0
        --moe-router-load-balancing-type sinkhorn
    Fails: megatron-lm 0.19: --moe-pad-expert-input-to-capacity
    Passes: megatron-lm 0.19: --moe-pad-expert-input-to-capacity --moe-expert-capacity-factor 1.25
        --moe-router-load-balancing-type aux_loss
    """
    factor = k.get("expert_capacity_factor")
    if k.get("moe_pad_expert_input_to_capacity") and factor is None:
        return True
    kinds = k.get("load_balancing", "aux_loss")
    kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
    return factor is not None and factor >= 0 and not set(kinds) <= set(CAPACITY_BALANCERS)


@demand(
    "CMP306",
    "Rank capacity with an incompatible backend",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.18",
    source=sources.CONFIG,
    consequence='ValueError: "moe_expert_rank_capacity_factor requires '
    "moe_flex_dispatcher_backend to be 'hybridep' or 'ncclep'\" (0.18 words it otherwise)",
    says="expert_rank_capacity_factor {expert_rank_capacity_factor} with "
    "moe_flex_dispatcher_backend {moe_flex_dispatcher_backend}",
    suggest={"moe_flex_dispatcher_backend": "hybridep"},
)
def rank_capacity_needs_its_backend(k: Knobs) -> bool:
    """Only HybridEP and NCCL-EP bound the tokens that all experts of a rank take together.

    Fails: megatron-lm 0.19: --moe-expert-rank-capacity-factor 1.5
        --moe-flex-dispatcher-backend deepep
    Passes: megatron-lm 0.19: --moe-expert-rank-capacity-factor 1.5
        --moe-flex-dispatcher-backend hybridep
    """
    backend = k.get("moe_flex_dispatcher_backend")
    return k.get("expert_rank_capacity_factor") is not None and backend not in (
        "hybridep",
        "ncclep",
    )


@demand(
    "CMP308",
    "Expert bias with softmax scores",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.18",
    source=sources.CONFIG,
    consequence="ValueError: \"Expert bias for aux-loss-free routing only supports 'sigmoid' and "
    "'sqrtsoftplus' score functions\"",
    says="expert_bias with router_score_function {router_score_function}",
    suggest={"router_score_function": "sigmoid"},
)
def bias_shifts_a_softmax(k: Knobs) -> bool:
    """The bias is added to each expert's own score; a softmax couples the scores of all.

    Fails: megatron-lm 0.19: --moe-router-enable-expert-bias --moe-router-score-function softmax
    Passes: megatron-lm 0.19: --moe-router-enable-expert-bias
        --moe-router-score-function sqrtsoftplus
    """
    return bool(k.expert_bias and k.router_score_function not in ("sigmoid", "sqrtsoftplus"))


@demand(
    "CMP308",
    "Expert bias with other scores than sigmoid (up to 0.17)",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.11,<=0.17",
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.17.1)",
    consequence='ValueError: "Expert bias for aux-loss-free routing only supports sigmoid score '
    'function."',
    says="expert_bias with router_score_function {router_score_function}",
    suggest={"router_score_function": "sigmoid"},
)
def bias_needs_sigmoid(k: Knobs) -> bool:
    """Up to 0.17 sigmoid is the one score function that the bias is defined for.

    Fails: megatron-lm 0.17: --moe-router-enable-expert-bias --moe-router-score-function softmax
    Passes: megatron-lm 0.17: --moe-router-enable-expert-bias --moe-router-score-function sigmoid
    """
    return bool(k.expert_bias and k.router_score_function != "sigmoid")


@demand(
    "CMP311",
    "Routing padded for quantisation without FP8/FP4",
    severity=Severity.ERROR,
    section="6.3",
    scope="megatron-core>=0.16",
    source=sources.CONFIG,
    consequence='ValueError: "fp8/fp4 must be specified when moe_router_padding_for_quantization '
    'is True."',
    says="router_padding with precision {precision} and moe_token_dispatcher_type "
    "{moe_token_dispatcher_type}",
    suggest={"router_padding": None},
)
def padding_for_no_quantizer(k: Knobs) -> bool:
    """Tokens of an expert are padded to the block that FP8 and FP4 products need, no others.

    The allgather dispatcher has no place for the padding.

    Fails: megatron-lm 0.19: --bf16 --moe-router-padding-for-quantization --num-experts 8
    Passes: megatron-lm 0.19: --bf16 --moe-router-padding-for-quantization --num-experts 8
        --fp8-format hybrid --moe-token-dispatcher-type alltoall
    Fails: knobs(router_padding=True, precision="bf16")
    Fails: knobs(router_padding=True, precision="fp8", moe_token_dispatcher_type="allgather")
    Passes: knobs(router_padding=True, precision="fp8", moe_token_dispatcher_type="alltoall")
    """
    if not (k.get("router_padding") or k.get("moe_router_padding")):
        return False
    return bool(
        k.precision in ("bf16", "fp16", "fp32") or k.get("moe_token_dispatcher_type") == "allgather"
    )


@demand(
    "CMP222",
    "Upcycling without a save path",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-lm>=0.9",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "When using upcycling, the --save option must be specified."',
    says="moe_use_upcycling without a directory to save to",
)
def upcycled_model_is_lost(k: Knobs) -> bool:
    """Upcycling turns a dense checkpoint into one with experts, and must write it somewhere.

    Fails: megatron-lm 0.19: --moe-use-upcycling
    Passes: megatron-lm 0.19: --moe-use-upcycling --save checkpoints
    """
    return bool(k.moe_use_upcycling and k.get("ckpt_dir") is None)


@demand(
    "MOD219",
    "Activation of shared experts overlap with latent projections",
    severity=Severity.ERROR,
    section="5.2",
    scope="megatron-core>=0.16",
    source="Megatron-LM megatron/core/transformer/moe/moe_layer.py (0.16.0, 0.19.2)",
    confidence="read",
    consequence="AssertionError in the first step: shared expert overlap with latent projections "
    "is not supported",
    says="moe_shared_expert_overlap with moe_latent_size {moe_latent_size}",
    suggest={"moe_shared_expert_overlap": False},
)
def shared_experts_see_another_width(k: Knobs) -> bool:
    """Routed experts work in the latent width, shared ones in the full one; their kernels differ.

    Fails: megatron-lm 0.19: --moe-latent-size 1024 --moe-shared-expert-overlap
    Passes: megatron-lm 0.19: --moe-latent-size 1024
    """
    return bool(k.get("moe_latent_size") is not None and k.moe_shared_expert_overlap)


@demand(
    "COM114",
    "Flex dispatcher on a single rank",
    severity=Severity.ERROR,
    section="7.1",
    scope="megatron-core>=0.12",
    source="Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher "
    "(0.19.2)",
    confidence="read",
    consequence="AssertionError: the DeepEP dispatcher requires TPxEP > 1",
    says="moe_token_dispatcher_type flex with etp {etp} * ep {ep} = 1",
    suggest={"moe_token_dispatcher_type": "alltoall"},
)
def nobody_to_dispatch_to(k: Knobs) -> bool:
    """DeepEP moves tokens between ranks; a group of one has nobody to send to.

    Fails: megatron-lm 0.19: --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep
        --expert-tensor-parallel-size 1 --expert-model-parallel-size 1
    Passes: megatron-lm 0.19: --moe-token-dispatcher-type flex
        --moe-flex-dispatcher-backend deepep --expert-tensor-parallel-size 1
        --expert-model-parallel-size 8
    """
    deep = k.get("moe_flex_dispatcher_backend", "deepep") == "deepep"
    alone = degree(k, "etp") * degree(k, "ep") == 1
    return bool(k.moe_token_dispatcher_type == "flex" and deep and alone)
