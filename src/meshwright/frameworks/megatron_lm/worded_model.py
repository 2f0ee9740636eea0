"""The shape of a model as Megatron's settings give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.model.architecture import Experts, Mlp

if TYPE_CHECKING:
    from meshwright.model.architecture import Attention, Block, Model

_GATES = {"silu": {"gated_mlp": True}, "quick_gelu": {"quick_geglu": True}}
_PLAIN = {"relu2": {"squared_relu": True}, "relu_squared": {"squared_relu": True}}


def model_words(model: Model) -> dict[str, Any]:
    """Raw values by variable; what Megatron cannot say is seen when they are read back."""
    blocks = model.layers
    dense = next((b for b in blocks if isinstance(b.feed_forward, Mlp)), None)
    routed = next((b for b in blocks if isinstance(b.feed_forward, Experts)), None)
    first = blocks[0]
    words: dict[str, Any] = {
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "tie_word_embeddings": model.tie_word_embeddings,
        "normalization": "LayerNorm" if first.norm_bias else "RMSNorm",
    }
    words |= _attention(first.attention, model)
    words |= _feed_forward(dense or routed or first)
    words |= _positions(model)
    if routed is not None and isinstance(routed.feed_forward, Experts):
        words |= _experts(routed.feed_forward)
        words |= _pattern(blocks)
    if model.mtp:
        words["mtp_num_layers"] = sum(run.count for run in model.mtp)
    return words


def _attention(attention: Attention, model: Model) -> dict[str, Any]:
    heads = attention.num_attention_heads
    words: dict[str, Any] = {"num_attention_heads": heads, "qk_norm": bool(attention.qk_norm)}
    if attention.is_latent:
        return words | _latent(attention)
    if attention.num_key_value_heads != heads:
        words["group_query_attention"] = True
        words["num_query_groups"] = attention.num_key_value_heads
    if attention.head_dim * heads != model.hidden_size:
        words["head_dim"] = attention.head_dim
    if attention.qkv_bias and not attention.output_bias:
        words["qkv_bias"] = True
    if attention.window and len({b.attention.window for b in model.layers}) == 1:
        words["window_size"] = f"({attention.window},0)"
    return words


def _latent(attention: Attention) -> dict[str, Any]:
    """Multi-head latent attention."""
    rope = attention.qk_rope_head_dim
    words = {
        "multi_latent_attention": True,
        "kv_lora_rank": attention.kv_lora_rank,
        "qk_nope_head_dim": attention.head_dim - rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": attention.v_head_dim,
    }
    return (
        words if attention.q_lora_rank is None else words | {"q_lora_rank": attention.q_lora_rank}
    )


def _feed_forward(block: Block) -> dict[str, Any]:
    """Width, gate and bias of the dense network, or of the experts where there is none."""
    ff = block.feed_forward
    words: dict[str, Any] = {
        "intermediate_size": ff.intermediate_size,
        "add_bias_linear": ff.bias or block.attention.output_bias,
    }
    named = _GATES.get(ff.activation) if ff.gated else _PLAIN.get(ff.activation)
    return words | (named or ({"gated_mlp": True} if ff.gated else {}))


def _positions(model: Model) -> dict[str, Any]:
    """Kind of positions; the table must reach as far as the model's longest sequence."""
    learned = model.position_embeddings > 0
    words: dict[str, Any] = {"position_embedding_type": "learned_absolute" if learned else "rope"}
    longest = model.position_embeddings or model.max_position_embeddings
    return words | ({"max_position_embeddings": longest} if longest else {})


def _experts(experts: Experts) -> dict[str, Any]:
    words: dict[str, Any] = {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.intermediate_size,
    }
    if experts.shared_intermediate_size:
        words["shared_expert_intermediate_size"] = experts.shared_intermediate_size
        if experts.shared_gate:
            words["shared_expert_gate"] = True
    if experts.n_group > 1 and experts.topk_group:
        words["moe_router_num_groups"] = experts.n_group
        words["moe_router_group_topk"] = experts.topk_group
    if experts.scoring_func == "sigmoid":
        words["router_score_function"] = "sigmoid"
    elif experts.top_k == 1:  # a softmax over one score teaches the router nothing
        words["moe_router_pre_softmax"] = True
    if experts.correction_bias:
        words |= {"expert_bias": True, "router_score_function": "sigmoid"}
    return words


def _pattern(blocks: tuple[Block, ...]) -> dict[str, Any]:
    """Which layers are routed, as a list expression, unless all are."""
    bits = [int(block.is_moe) for block in blocks]
    if all(bits):
        return {}
    runs: list[list[int]] = []
    for bit in bits:
        if runs and runs[-1][0] == bit:
            runs[-1][1] += 1
        else:
            runs.append([bit, 1])
    if len(runs) > 8:
        return {"moe_layer_freq": "[" + ",".join(map(str, bits)) + "]"}
    return {"moe_layer_freq": "(" + "+".join(f"[{bit}]*{n}" for bit, n in runs) + ")"}
