"""DeepSeek V2 and V3 and Kimi K2: latent attention, many small experts, shared experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.model.architecture import Attention, Block, Experts, Mlp
from meshwright.model.fields import MAX_LAYERS
from meshwright.model.reading import assemble, check_top_k, read_dims, read_intermediate

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields
    from meshwright.model.reading import Dims


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What the two generations default to."""

    intermediate_size: int
    experts: int
    shared_experts: int
    expert_size: int
    top_k: int | None
    dense_first: int
    correction_bias: bool
    groups: int | None = None  # router groups, and how many of them a token may use
    used_groups: int | None = None


_V2 = _Defaults(
    intermediate_size=11008,
    experts=64,
    shared_experts=2,
    expert_size=1407,
    top_k=None,
    dense_first=0,
    correction_bias=False,
)
_V3 = _Defaults(
    intermediate_size=18432,
    experts=256,
    shared_experts=1,
    expert_size=2048,
    top_k=8,
    dense_first=3,
    correction_bias=True,
    groups=8,
    used_groups=4,
)


def deepseek_v2(f: Fields) -> Model:
    """DeepSeek-V2 (arXiv 2405.04434)."""
    dims = read_dims(f, hidden_size=4096, layers=32, heads=32, vocab_size=102400, positions=2048)
    return _deepseek(f, dims, _V2)


def deepseek_v3(f: Fields) -> Model:
    """DeepSeek-V3 (arXiv 2412.19437), with multi-token prediction where the file says so."""
    dims = read_dims(f, hidden_size=7168, layers=61, heads=128, vocab_size=129280, positions=4096)
    return _deepseek(f, dims, _V3)


def _deepseek(f: Fields, dims: Dims, defaults: _Defaults) -> Model:
    """Dense layers first, then routed ones; MTP blocks are routed ones."""
    attention = _latent_attention(f, dims)
    activation = f.text("hidden_act", default="silu")
    width = read_intermediate(f, default=defaults.intermediate_size)
    dense = Mlp(
        intermediate_size=width, activation=activation, bias=f.flag("mlp_bias", default=False)
    )
    routed = _experts(f, defaults, activation)
    first = read_dense_first(f, dims, default=defaults.dense_first)
    step = f.optional_size("moe_layer_freq", default=1) or 1
    blocks = [
        Block(attention=attention, feed_forward=routed if i >= first and i % step == 0 else dense)
        for i in range(dims.layers)
    ]
    return assemble(f, dims, blocks, tied=False, mtp=read_mtp(f, blocks[-1]))


def read_dense_first(f: Fields, dims: Dims, *, default: int) -> int:
    """How many of the first blocks are dense; a stated number is at most that of the layers."""
    key = "first_k_dense_replace"
    first = f.size(key, default=default, minimum=0, maximum=MAX_LAYERS)
    if f.config.get(key) is not None and first > dims.layers:
        reason = f"is more than the {dims.layers} layers there are"
        f.conflict(key, reason, beside=("num_hidden_layers",), hint=f"at most {dims.layers}")
    return first


def read_mtp(f: Fields, block: Block) -> list[Block]:
    """Multi-token-prediction blocks, equal to the last block; none where the key is absent."""
    keys = ("num_nextn_predict_layers", "num_mtp_layers")
    count = f.optional_size(*keys, default=0, minimum=0, maximum=64)
    return [block] * (count or 0)


def _latent_attention(f: Fields, dims: Dims) -> Attention:
    """Multi-head latent attention; q_lora_rank null projects queries directly."""
    rope = f.size("qk_rope_head_dim", default=64)
    bias = f.flag("attention_bias", default=False)
    return Attention(
        num_attention_heads=dims.heads,
        num_key_value_heads=dims.heads,
        head_dim=f.size("qk_nope_head_dim", default=128) + rope,
        v_head_dim=f.size("v_head_dim", default=128),
        qkv_bias=bias,
        output_bias=bias,
        q_lora_rank=f.optional_size("q_lora_rank", default=1536),
        kv_lora_rank=f.size("kv_lora_rank", default=512),
        qk_rope_head_dim=rope,
    )


def _experts(f: Fields, defaults: _Defaults, activation: str) -> Experts:
    """Routed and shared experts of moe_intermediate_size."""
    width = f.size("moe_intermediate_size", default=defaults.expert_size)
    experts = f.size("n_routed_experts", default=defaults.experts)
    top_k = f.size("num_experts_per_tok", default=defaults.top_k)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "n_routed_experts"))
    keys = ("n_shared_experts",)
    shared = f.optional_size(*keys, default=defaults.shared_experts, minimum=0) or 0
    groups = f.optional_size("n_group", default=defaults.groups, minimum=0) or 0
    used = f.optional_size("topk_group", default=defaults.used_groups, minimum=0) or 0
    limited = groups > 1 and used != groups  # all groups is no limit
    return Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=width,
        activation=activation,
        correction_bias=defaults.correction_bias,
        n_group=groups if limited else 0,
        topk_group=used if limited else 0,
        shared_intermediate_size=shared * width,
    )


FAMILIES = {"deepseek_v2": deepseek_v2, "deepseek_v3": deepseek_v3, "kimi_k2": deepseek_v3}
