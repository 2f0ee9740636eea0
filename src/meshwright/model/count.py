"""Parameters of a model, exact, split as parallelism splits them."""

from __future__ import annotations

from dataclasses import fields
from itertools import chain, repeat
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.model.architecture import (
    Attention,
    Block,
    Experts,
    Matmul,
    Model,
    block_matmuls,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockParameters:
    """Parameter counts of one block, disjoint, by how tensor and expert parallelism cut them.

    "sharded" parts divide by tp (experts: by ep and etp), "replicated" parts are whole on every
    tp rank. `experts_*` are totals over all experts; replicated there means over etp only.
    """

    attention_sharded: int = 0  # head-wise projections, their column biases, sinks
    attention_replicated: int = 0  # latent down projections, row biases
    attention_norms: int = 0  # query/key norms, norms of the latents; replicated
    mlp_sharded: int = 0
    mlp_replicated: int = 0  # row biases
    router: int = 0  # router and shared-expert gate; replicated
    experts_sharded: int = 0
    experts_replicated: int = 0  # row biases
    shared_sharded: int = 0
    norms: int = 0  # full-width norms; replicated

    @property
    def total(self) -> int:
        """All parameters of the block."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def experts(self) -> int:
        """Parameters of all routed experts."""
        return self.experts_sharded + self.experts_replicated

    @property
    def dense(self) -> int:
        """Everything but the routed experts."""
        return self.total - self.experts

    @property
    def sharded(self) -> int:
        """What tp divides, routed experts not counted."""
        return self.attention_sharded + self.mlp_sharded + self.shared_sharded

    @property
    def replicated(self) -> int:
        """What every tp rank holds whole, routed experts not counted."""
        return self.dense - self.sharded


@dataclass(frozen=True, slots=True, kw_only=True)
class EndParameters:
    """Parameters outside the blocks, disjoint.

    `embedding` and `head` are vocabulary-wide and cut by tp; a tied head is 0 here and lives in
    `embedding` (a pipeline's last stage holds a copy of it). The rest is whole on every tp rank.
    """

    embedding: int = 0
    position_embedding: int = 0
    embedding_norm: int = 0
    embedding_projection: int = 0  # between embedding width and hidden_size (OPT-350M)
    final_norm: int = 0
    head: int = 0
    head_projection: int = 0
    head_bias: int = 0
    mtp_projection: int = 0  # of all MTP layers: 2*hidden_size to hidden_size each
    mtp_norms: int = 0
    extra: int = 0

    @property
    def total(self) -> int:
        """All parameters outside the blocks."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a whole model.

    `active` are those one token passes: all but the experts it is not routed to. `by_layer` has
    one entry a block, MTP blocks last; `by_group` sums the fields of `BlockParameters` and
    `EndParameters` over the model.
    """

    total: int
    active: int
    embedding: int
    head: int
    by_layer: tuple[int, ...]
    by_group: Mapping[str, int]


def matmul_parameters(matmul: Matmul) -> tuple[int, int]:
    """(parameters cut by tp, parameters whole on every tp rank) of one matrix, all copies."""
    weight = matmul.in_features * matmul.out_features * matmul.copies
    bias = matmul.out_features * matmul.copies if matmul.bias else 0
    if matmul.shard == "column":
        return weight + bias, 0
    if matmul.shard == "row":
        return weight, bias
    return 0, weight + bias


def attention_norm_parameters(attention: Attention) -> int:
    """Weights (and biases) of query/key norms and of the norms on MLA's latents."""
    a = attention
    latents = (a.q_lora_rank or 0) + (a.kv_lora_rank or 0)
    width = {
        "": 0,
        "head": 2 * a.head_dim,
        "full": (a.num_attention_heads + a.num_key_value_heads) * a.head_dim,
    }[a.qk_norm]
    return latents + width * (2 if a.qk_norm_bias else 1)


def block_parameters(block: Block, hidden_size: int) -> BlockParameters:
    """Parameter counts of one block, by group and by how tp and ep cut them."""
    cut: dict[str, int] = {}
    whole: dict[str, int] = {}
    for matmul in block_matmuls(block, hidden_size):
        sharded, replicated = matmul_parameters(matmul)
        cut[matmul.group] = cut.get(matmul.group, 0) + sharded
        whole[matmul.group] = whole.get(matmul.group, 0) + replicated
    a = block.attention
    norm_width = (hidden_size if block.norm_weight else 0) + (hidden_size if block.norm_bias else 0)
    return BlockParameters(
        attention_sharded=cut["attention"] + (a.num_attention_heads if a.sinks else 0),
        attention_replicated=whole["attention"],
        attention_norms=attention_norm_parameters(a),
        mlp_sharded=cut.get("mlp", 0),
        mlp_replicated=whole.get("mlp", 0),
        router=whole.get("router", 0),
        experts_sharded=cut.get("expert", 0),
        experts_replicated=whole.get("expert", 0),
        shared_sharded=cut.get("shared", 0),
        norms=block.norms * norm_width,
    )


def key_value_parameters(attention: Attention, hidden_size: int) -> int:
    """The part of the fused QKV product that makes keys and values, biases included.

    Where tp exceeds the number of key/value heads, stacks that allow it hold this part
    tp / num_key_value_heads times over. 0 for latent attention, whose heads are all full,
    and for layers that use another's.
    """
    if attention.is_latent or attention.shared_kv:
        return 0
    width = attention.num_key_value_heads * (attention.head_dim + attention.v_head_dim)
    return width * (hidden_size + (1 if attention.qkv_bias else 0))


def active_block_parameters(block: Block, hidden_size: int) -> int:
    """Parameters of a block that one token passes: top_k of the routed experts, all the rest."""
    count = block_parameters(block, hidden_size)
    ff = block.feed_forward
    if not isinstance(ff, Experts):
        return count.total
    return count.dense + count.experts * ff.top_k // ff.num_experts


def end_parameters(model: Model, *, mtp: bool = True) -> EndParameters:
    """Parameter counts outside the blocks: embeddings, head, final norm, MTP's own layers.

    An MTP layer has a projection of 2*hidden_size to hidden_size and three norms: of the hidden
    state, of the embedding and before the shared head (DeepSeek-V3, arXiv 2412.19437, section 2.2
    and the published checkpoint's enorm, hnorm, shared_head.norm).
    """
    h = model.hidden_size
    width = model.embedding_size or h
    projection = width * h if width != h else 0
    norm = h * (2 if model.final_norm_bias else 1) if model.final_norm else 0
    mtp_layers = sum(run.count for run in model.mtp) if mtp else 0
    return EndParameters(
        embedding=model.vocab_size * width,
        position_embedding=model.position_embeddings * h,
        embedding_norm=2 * h if model.embedding_norm else 0,
        embedding_projection=projection,
        final_norm=norm,
        head=0 if model.tie_word_embeddings else model.vocab_size * width,
        head_projection=projection,
        head_bias=model.vocab_size if model.head_bias else 0,
        mtp_projection=mtp_layers * 2 * h * h,
        mtp_norms=mtp_layers * 3 * h,
        extra=sum(count for _, count in model.extra_parameters),
    )


def parameters(model: Model, *, mtp: bool = True) -> ParameterCount:
    """Parameters of a model; `mtp=False` leaves multi-token-prediction layers out.

    transformers drops MTP weights, so its own count equals `parameters(model, mtp=False).total`.
    """
    runs = (*model.runs, *(model.mtp if mtp else ()))
    counts = {run.block: block_parameters(run.block, model.hidden_size) for run in runs}
    active = {run.block: active_block_parameters(run.block, model.hidden_size) for run in runs}
    ends = end_parameters(model, mtp=mtp)
    weighted = [(counts[run.block], run.count) for run in runs]
    return ParameterCount(
        total=ends.total + sum(count.total * n for count, n in weighted),
        active=ends.total + sum(active[run.block] * run.count for run in runs),
        embedding=ends.embedding + ends.position_embedding,
        head=ends.head + ends.head_bias,
        by_layer=tuple(chain.from_iterable(repeat(count.total, n) for count, n in weighted)),
        by_group=_by_group(ends, weighted),
    )


def _by_group(
    ends: EndParameters, weighted: Iterable[tuple[BlockParameters, int]]
) -> dict[str, int]:
    """Sums of every field of the block and end counts over a model."""
    groups = {field.name: getattr(ends, field.name) for field in fields(ends)}
    for count, n in weighted:
        for field in fields(count):
            groups[field.name] = groups.get(field.name, 0) + getattr(count, field.name) * n
    return groups


def matmul_parameters_per_token(model: Model, *, mtp: bool = True) -> int:
    """Weights in matrix products that one token passes, the head once and no input embedding.

    Each MTP layer passes the head again.
    """
    runs = (*model.runs, *(model.mtp if mtp else ()))
    blocks = sum(run.count * passed_weights(run.block, model.hidden_size) for run in runs)
    mtp_layers = sum(run.count for run in model.mtp) if mtp else 0
    heads = (1 + mtp_layers) * head_weights(model)
    return blocks + heads + mtp_layers * 2 * model.hidden_size**2


def passed_weights(block: Block, hidden_size: int) -> int:
    """Weights of a block that one token is multiplied with: top_k of the routed experts."""
    ff = block.feed_forward
    top_k = ff.top_k if isinstance(ff, Experts) else 1
    return sum(
        m.in_features * m.out_features * (top_k if m.group == "expert" else 1)
        for m in block_matmuls(block, hidden_size)
    )


def head_weights(model: Model) -> int:
    """Weights of the projection to the vocabulary, with what widens or narrows its input."""
    width = model.embedding_size or model.hidden_size
    projection = width * model.hidden_size if width != model.hidden_size else 0
    return model.vocab_size * width + projection
