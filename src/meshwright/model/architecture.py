"""What is trained: the nouns of a decoder-only transformer, layer by layer.

A `Model` is a list of blocks. Blocks may differ (dense first layers, sliding windows, experts every
other layer), so nothing here assumes that all are equal. Field names follow Hugging Face's
configurations where those have a name for the thing.
"""

from __future__ import annotations

from dataclasses import field

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention (multi-head and multi-query are its ends), optionally windowed.

    `head_dim` is the query/key width of a head, `v_head_dim` the value width (equal unless MLA).
    `window` is the number of keys a query may see (sliding or chunked); None is full causal.
    The `*_lora_rank` fields are set for multi-head latent attention (DeepSeek-V2, arXiv 2405.04434,
    section 2.1), where keys and values are projected up from one latent of `kv_lora_rank`.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str = ""  # "" none, "head" a norm of head_dim, "full" a norm over all heads
    qk_norm_bias: bool = False
    sinks: bool = False
    window: int | None = None
    chunked: bool = False  # the window is a block-diagonal chunk (Llama 4), not sliding
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int = 0
    softmax_dropout: bool = False
    shared_kv: bool = False  # uses an earlier layer's keys and values (Hunyuan-Large)

    @property
    def is_latent(self) -> bool:
        """True for multi-head latent attention."""
        return self.kv_lora_rank is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A dense feed-forward network: two matrices, or three when gated."""

    intermediate_size: int
    gated: bool = True
    activation: str = "silu"
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A routed mixture of experts, with optional shared experts beside it.

    `intermediate_size` is that of one expert; `shared_intermediate_size` is the total over the
    shared experts (0 for none).
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False  # DeepSeek-V3's e_score_correction_bias: a buffer, not trained
    shared_intermediate_size: int = 0
    shared_gate: bool = False  # Qwen2-MoE's sigmoid gate on the shared expert
    n_group: int = 0  # router groups, 0 = none (DeepSeek's node-limited routing)
    topk_group: int = 0  # groups that a token may use
    scoring_func: str = ""  # "softmax", "softmax_top_k" (over the chosen ones), "sigmoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One transformer layer: attention, then a dense or a routed feed-forward network.

    `norms` counts the full-width norms of the layer (2 for pre-norm, 4 for Gemma's sandwich).
    `parallel` marks attention and MLP reading the same input (Falcon, Phi, GPT-J).
    """

    attention: Attention
    feed_forward: Mlp | Experts
    norms: int = 2
    norm_bias: bool = False  # LayerNorm carries a bias, RMSNorm does not
    norm_weight: bool = True  # False for OLMo 1's non-parametric LayerNorm
    parallel: bool = False

    @property
    def is_moe(self) -> bool:
        """True when the feed-forward network is routed."""
        return isinstance(self.feed_forward, Experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    """`count` consecutive equal blocks."""

    block: Block
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only language model.

    `runs` lists the blocks in order, equal neighbours merged. `mtp` holds multi-token-prediction
    blocks that follow the last layer (DeepSeek-V3, arXiv 2412.19437, section 2.2); each brings a
    projection of 2*hidden_size to hidden_size and three more norms, and shares embedding and head.
    `source` says where the facts came from.
    """

    name: str
    hidden_size: int
    vocab_size: int
    runs: tuple[BlockRun, ...]
    tie_word_embeddings: bool = False
    position_embeddings: int = 0  # rows of a learned position table; 0 for rotary or ALiBi
    embedding_norm: bool = False  # BLOOM's norm after the embedding
    final_norm: bool = True
    final_norm_bias: bool = False
    head_bias: bool = False
    embedding_size: int | None = None  # OPT-350M's word_embed_proj_dim, where it is not hidden_size
    mtp: tuple[BlockRun, ...] = ()
    max_position_embeddings: int | None = None
    family: str = ""
    source: str = ""
    extra_parameters: tuple[tuple[str, int], ...] = field(default=())
    assumptions: tuple[str, ...] = ()  # what the configuration did not say and was taken as usual

    @property
    def num_hidden_layers(self) -> int:
        """Number of blocks, multi-token-prediction blocks not counted."""
        return sum(run.count for run in self.runs)

    @property
    def kinds(self) -> tuple[Block, ...]:
        """The distinct blocks in order of first appearance, MTP blocks included."""
        seen: dict[Block, None] = {}
        for run in (*self.runs, *self.mtp):
            seen.setdefault(run.block)
        return tuple(seen)

    @property
    def layers(self) -> tuple[Block, ...]:
        """All blocks in order, one entry a layer."""
        return tuple(run.block for run in self.runs for _ in range(run.count))

    @property
    def is_moe(self) -> bool:
        """True when any block is routed."""
        return any(run.block.is_moe for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """One weight matrix and how the parallel axes cut it.

    `shard` is "column" (outputs split over tp), "row" (inputs split over tp) or "none" (replicated
    over tp). `group` is "attention", "mlp", "router", "expert" (one of `copies` experts, split over
    ep and etp; each token passes `top_k` of them) or "shared".
    """

    name: str
    in_features: int
    out_features: int
    shard: str
    group: str
    bias: bool = False
    copies: int = 1


def attention_matmuls(attention: Attention, hidden_size: int) -> tuple[Matmul, ...]:
    """Weight matrices of an attention layer; Q, K and V are one product, as stacks fuse them."""
    a = attention
    out = Matmul(
        name="o_proj",
        in_features=a.num_attention_heads * a.v_head_dim,
        out_features=hidden_size,
        shard="row",
        group="attention",
        bias=a.output_bias,
    )
    if a.kv_lora_rank is None:
        kv_width = 0 if a.shared_kv else a.num_key_value_heads * (a.head_dim + a.v_head_dim)
        qkv = Matmul(
            name="qkv_proj",
            in_features=hidden_size,
            out_features=a.num_attention_heads * a.head_dim + kv_width,
            shard="column",
            group="attention",
            bias=a.qkv_bias,
        )
        return (qkv, out)
    return (*_latent_matmuls(a, a.kv_lora_rank, hidden_size), out)


def _latent_matmuls(a: Attention, kv_lora_rank: int, hidden_size: int) -> tuple[Matmul, ...]:
    """Down and up projections of multi-head latent attention."""
    q_width = a.num_attention_heads * a.head_dim
    nope = a.head_dim - a.qk_rope_head_dim
    kv_up = a.num_attention_heads * (nope + a.v_head_dim)

    def matmul(name: str, rows: int, columns: int, shard: str) -> Matmul:
        return Matmul(
            name=name,
            in_features=rows,
            out_features=columns,
            shard=shard,
            group="attention",
            bias=a.qkv_bias and shard == "none",  # only the down projections carry one
        )

    if a.q_lora_rank is None:
        query: tuple[Matmul, ...] = (matmul("q_proj", hidden_size, q_width, "column"),)
    else:
        query = (
            matmul("q_a_proj", hidden_size, a.q_lora_rank, "none"),
            matmul("q_b_proj", a.q_lora_rank, q_width, "column"),
        )
    return (
        *query,
        matmul("kv_a_proj", hidden_size, kv_lora_rank + a.qk_rope_head_dim, "none"),
        matmul("kv_b_proj", kv_lora_rank, kv_up, "column"),
    )


def feed_forward_matmuls(feed_forward: Mlp | Experts, hidden_size: int) -> tuple[Matmul, ...]:
    """Weight matrices of a feed-forward layer; gate and up are one product."""
    ff = feed_forward
    if isinstance(ff, Mlp):
        return _mlp_pair(ff.intermediate_size, hidden_size, gated=ff.gated, bias=ff.bias)
    router = Matmul(
        name="router",
        in_features=hidden_size,
        out_features=ff.num_experts,
        shard="none",
        group="router",
        bias=ff.router_bias,
    )
    experts = _mlp_pair(
        ff.intermediate_size,
        hidden_size,
        gated=ff.gated,
        bias=ff.bias,
        group="expert",
        copies=ff.num_experts,
    )
    if not ff.shared_intermediate_size:
        return (router, *experts)
    shared = _mlp_pair(ff.shared_intermediate_size, hidden_size, gated=ff.gated, group="shared")
    gate = Matmul(
        name="shared_gate", in_features=hidden_size, out_features=1, shard="none", group="router"
    )
    return (router, *experts, *shared, *((gate,) if ff.shared_gate else ()))


def _mlp_pair(
    intermediate_size: int,
    hidden_size: int,
    *,
    gated: bool,
    bias: bool = False,
    group: str = "mlp",
    copies: int = 1,
) -> tuple[Matmul, Matmul]:
    """The up (with gate) and down matrices of one feed-forward network."""
    up = Matmul(
        name="up_proj",
        in_features=hidden_size,
        out_features=intermediate_size * (2 if gated else 1),
        shard="column",
        group=group,
        bias=bias,
        copies=copies,
    )
    down = Matmul(
        name="down_proj",
        in_features=intermediate_size,
        out_features=hidden_size,
        shard="row",
        group=group,
        bias=bias,
        copies=copies,
    )
    return up, down


def block_matmuls(block: Block, hidden_size: int) -> tuple[Matmul, ...]:
    """Every weight matrix of a block, in the order of the forward pass."""
    return (
        *attention_matmuls(block.attention, hidden_size),
        *feed_forward_matmuls(block.feed_forward, hidden_size),
    )
