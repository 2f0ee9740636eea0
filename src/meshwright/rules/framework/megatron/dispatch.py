"""Communication of the model: which dispatcher moves the experts' tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.megatron import sources

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


@demand(
    "MOD314",
    "DeepEP without the flex dispatcher",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.12",
    source=sources.CONFIG,
    consequence='ValueError: "DeepEP backend is only supported with flex token dispatcher."',
    says="moe_enable_deepep with moe_token_dispatcher_type {moe_token_dispatcher_type}",
    suggest={"moe_token_dispatcher_type": "flex"},
)
def deepep_is_a_flex_backend(k: Knobs) -> bool:
    """DeepEP is one of the back ends of the flex dispatcher, and none of any other.

    Fails: megatron-lm 0.19: --moe-enable-deepep --moe-token-dispatcher-type alltoall
    Passes: megatron-lm 0.19: --moe-enable-deepep --moe-token-dispatcher-type flex
    """
    return bool(k.moe_enable_deepep and k.moe_token_dispatcher_type != "flex")


@demand(
    "MOD315",
    "Flex backend chosen but dispatcher not switched",
    severity=Severity.WARNING,
    section="5.3",
    scope="megatron-core; megatron-bridge",
    source="Megatron-Bridge docs/training/communication-overlap.md (067f987d)",
    confidence="doc",
    consequence="the back end is ignored and the plain dispatcher moves the tokens",
    says="moe_flex_dispatcher_backend {moe_flex_dispatcher_backend} with moe_token_dispatcher_type "
    "{moe_token_dispatcher_type}",
    suggest={"moe_token_dispatcher_type": "flex"},
)
def backend_is_not_in_use(k: Knobs) -> bool:
    """A back end belongs to the flex dispatcher, which has to be chosen as well.

    Fails: megatron-lm 0.19: --moe-flex-dispatcher-backend hybridep
        --moe-token-dispatcher-type alltoall
    Passes: megatron-lm 0.19: --moe-flex-dispatcher-backend hybridep
        --moe-token-dispatcher-type flex
    """
    stated = k.is_stated("moe_flex_dispatcher_backend")
    return bool(stated and k.moe_token_dispatcher_type != "flex")


@demand(
    "MOD316",
    "DeepEP with padding to capacity",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.16",
    source=sources.CONFIG,
    consequence='ValueError: "Flex token dispatcher with deepep backend does not support '
    'moe_pad_expert_input_to_capacity"',
    says="moe_pad_expert_input_to_capacity with moe_flex_dispatcher_backend "
    "{moe_flex_dispatcher_backend}",
    suggest={"moe_flex_dispatcher_backend": "hybridep"},
)
def deepep_does_not_pad(k: Knobs) -> bool:
    """DeepEP sends exactly the routed tokens, and has no padded form.

    Fails: megatron-lm 0.19: --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep
        --moe-pad-expert-input-to-capacity
    Passes: megatron-lm 0.19: --moe-token-dispatcher-type flex
        --moe-flex-dispatcher-backend hybridep --moe-pad-expert-input-to-capacity
    """
    deep = k.get("moe_flex_dispatcher_backend", "deepep") == "deepep"
    pads = k.moe_pad_expert_input_to_capacity
    return bool(k.moe_token_dispatcher_type == "flex" and deep and pads)


@demand(
    "MOD317",
    "Allgather dispatcher with variable sequence length",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.10",
    source=sources.CONFIG,
    consequence='ValueError: "Token dispatcher type: allgather does not support variable sequence '
    'length, please use alltoall dispatcher instead."',
    says="moe_token_dispatcher_type allgather with variable_seq_lengths",
    suggest={"moe_token_dispatcher_type": "alltoall"},
)
def gather_of_unequal_lengths(k: Knobs) -> bool:
    """An all-gather needs the same number of tokens from every rank.

    Fails: megatron-lm 0.19: --moe-token-dispatcher-type allgather --variable-seq-lengths
    Passes: megatron-lm 0.19: --moe-token-dispatcher-type alltoall --variable-seq-lengths
    """
    return bool(k.moe_token_dispatcher_type == "allgather" and k.variable_seq_lengths)


@demand(
    "MOD325",
    "1F1B EP overlap with Megatron-FSDP",
    severity=Severity.ERROR,
    section="5.3",
    scope="megatron-core>=0.19",
    source="Megatron-LM megatron/core/distributed/fsdp/mcore_fsdp_adapter.py (d98e8a64)",
    confidence="read",
    consequence="AssertionError: 1F1B overlap with FSDP does not support double buffer or "
    "per-layer CUDA graphs",
    says="overlap_ep with use_megatron_fsdp, fsdp_double_buffer {fsdp_double_buffer}, "
    "cuda_graph_impl {cuda_graph_impl}",
)
def overlapped_layers_share_buffers(k: Knobs) -> bool:
    """Two layers are in flight at once, so buffers handed from layer to layer are still in use.

    Fails: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --use-megatron-fsdp
        --fsdp-double-buffer
    Passes: megatron-lm 0.19: --overlap-moe-expert-parallel-comm --use-megatron-fsdp
    """
    layered = k.get("cuda_graph_impl", "none") not in ("none", "full_iteration")
    reuses = k.get("fsdp_double_buffer") or layered
    return bool(k.overlap_ep and k.use_megatron_fsdp and reuses)


@demand(
    "CMP219",
    "Fake process group with the flex dispatcher",
    severity=Severity.ERROR,
    section="6.2",
    scope="megatron-lm>=0.16",
    source=sources.ARGUMENTS,
    consequence='AssertionError: "Fake process group is not supported with flex token dispatcher."',
    says="fake_process_group with moe_token_dispatcher_type {moe_token_dispatcher_type}",
    suggest={"moe_token_dispatcher_type": "alltoall"},
)
def dry_run_of_real_transfers(k: Knobs) -> bool:
    """A dry run has no peers, and the flex dispatcher's kernels write into theirs.

    Fails: megatron-lm 0.19: --fake-process-group --moe-token-dispatcher-type flex
    Passes: megatron-lm 0.19: --fake-process-group --moe-token-dispatcher-type alltoall
    """
    return bool(k.fake_process_group and k.moe_token_dispatcher_type == "flex")
