"""Every weight of a model as transformers holds it: rows, columns, and which of them tp cuts.

FSDP2 cuts rows (dim 0) and pads them to a multiple of the ranks, so that what it sends depends on
the shape of every single weight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.model.architecture import Mlp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.model.architecture import Attention, Block, Experts, Model

ROWS, COLUMNS, WHOLE = "rows", "columns", "whole"  # how tp cuts a weight
SLICED, SUMMED = "sliced", "summed"  # whole ones: see Weight
FUSED = ("phi3",)  # q, k and v in one weight, gate and up in another


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter: `rows` of `columns` elements, and how tp cuts it.

    `cut` is "rows", "columns" or "whole". Of a weight that is whole on every rank each may have one
    summand of its gradient: always where it saw its own heads alone ("summed"), under sequence
    parallelism where it saw its own tokens ("sliced"). A weight of routed experts has one row an
    expert, and `cut` is over etp, of its columns.
    """

    name: str
    rows: int
    columns: int
    cut: str = WHOLE

    def on_rank(self, size: int) -> Weight:
        """This rank's part where `size` ranks cut it, the first rank's where it does not divide."""
        if self.cut == ROWS:
            return replace(self, rows=-(-self.rows // size))
        if self.cut == COLUMNS:
            return replace(self, columns=-(-self.columns // size))
        return self

    def padded(self, ranks: int) -> int:
        """Elements with rows padded to a multiple of `ranks`."""
        return -(-self.rows // ranks) * ranks * self.columns


def dense_weights(block: Block, model: Model) -> list[Weight]:
    """Weights of a block but those of its routed experts."""
    fused = model.family in FUSED
    found = _attention(block.attention, model.hidden_size, fused=fused)
    ff = block.feed_forward
    if isinstance(ff, Mlp):
        found += _mlp(ff, model.hidden_size, fused=fused)
    else:
        found += _beside_experts(ff, model.hidden_size)
    norms = block.norms * ((1 if block.norm_weight else 0) + (1 if block.norm_bias else 0))
    return found + [_vector("norm", model.hidden_size, SLICED)] * norms


def expert_weights(block: Block, hidden_size: int) -> list[Weight]:
    """Weights of a block's routed experts, one row an expert; none of a dense block."""
    ff = block.feed_forward
    if isinstance(ff, Mlp):
        return []
    width = ff.intermediate_size * (2 if ff.gated else 1)

    def weight(name: str, columns: int, cut: str = COLUMNS) -> Weight:
        return Weight(name=name, rows=ff.num_experts, columns=columns, cut=cut)

    found = [
        weight("up_proj", width * hidden_size),
        weight("down_proj", ff.intermediate_size * hidden_size),
    ]
    if ff.bias:
        found += [weight("up_bias", width), weight("down_bias", hidden_size, WHOLE)]
    return found


def embedding_weights(model: Model, *, vocab_parallel: bool) -> list[Weight]:
    """The embedding."""
    cut = ROWS if vocab_parallel else SLICED
    return [Weight(name="embedding", rows=model.vocab_size, columns=model.hidden_size, cut=cut)]


def final_weights(model: Model, *, vocab_parallel: bool) -> list[Weight]:
    """Final norm and head; a tied head counts here too, as a stage of its own holds one."""
    cut = ROWS if vocab_parallel else SLICED
    norms = [_vector("final_norm", model.hidden_size, SLICED)] if model.final_norm else []
    head = Weight(name="head", rows=model.vocab_size, columns=model.hidden_size, cut=cut)
    return [*norms, head]


def elements(weights: Iterable[Weight]) -> int:
    """Elements of weights, without padding."""
    return sum(weight.rows * weight.columns for weight in weights)


def _vector(name: str, length: int, cut: str = WHOLE) -> Weight:
    return Weight(name=name, rows=length, columns=1, cut=cut)


def _linear(name: str, rows: int, columns: int, cut: str, *, bias: bool = False) -> list[Weight]:
    """A product's weight [out, in], and its bias, which an input cut leaves whole."""
    weight = Weight(name=name, rows=rows, columns=columns, cut=cut)
    return [weight, _vector(f"{name}.bias", rows, WHOLE if cut == COLUMNS else cut)][: 1 + bias]


def _attention(a: Attention, hidden_size: int, *, fused: bool) -> list[Weight]:
    output = _linear(
        "o_proj", hidden_size, a.num_attention_heads * a.v_head_dim, COLUMNS, bias=a.output_bias
    )
    sinks = [_vector("sinks", a.num_attention_heads, ROWS)] if a.sinks else []
    if a.is_latent:
        return [*_latent(a, hidden_size), *output, *sinks]
    queries = a.num_attention_heads * a.head_dim
    keys, values = a.num_key_value_heads * a.head_dim, a.num_key_value_heads * a.v_head_dim
    parts = [("qkv_proj", queries + keys + values)]
    if not fused:
        parts = [("q_proj", queries), ("k_proj", keys), ("v_proj", values)]
    found = [w for n, rows in parts for w in _linear(n, rows, hidden_size, ROWS, bias=a.qkv_bias)]
    return [*found, *_head_norms(a), *output, *sinks]


def _head_norms(a: Attention) -> list[Weight]:
    """Norms of queries and keys: one of a head's width for all, or one over all heads."""
    if a.qk_norm == "head":
        return [_vector(name, a.head_dim, SUMMED) for name in ("q_norm", "k_norm")]
    if a.qk_norm == "full":
        return [
            _vector("q_norm", a.num_attention_heads * a.head_dim, ROWS),
            _vector("k_norm", a.num_key_value_heads * a.head_dim, ROWS),
        ]
    return []


def _latent(a: Attention, hidden_size: int) -> list[Weight]:
    """Down projections and norms are whole, up projections are cut by heads."""
    heads, rank = a.num_attention_heads, a.kv_lora_rank or 0
    queries = heads * a.head_dim
    found = _linear("q_proj", queries, hidden_size, ROWS)
    if a.q_lora_rank:
        found = _linear("q_a_proj", a.q_lora_rank, hidden_size, SUMMED, bias=a.qkv_bias)
        found += [_vector("q_a_norm", a.q_lora_rank, SUMMED)]
        found += _linear("q_b_proj", queries, a.q_lora_rank, ROWS)
    down = rank + a.qk_rope_head_dim
    found += _linear("kv_a_proj", down, hidden_size, SUMMED, bias=a.qkv_bias)
    up = heads * (a.head_dim - a.qk_rope_head_dim + a.v_head_dim)
    return [*found, _vector("kv_a_norm", rank, SUMMED), *_linear("kv_b_proj", up, rank, ROWS)]


def _mlp(ff: Mlp, hidden_size: int, *, fused: bool) -> list[Weight]:
    width = ff.intermediate_size
    if ff.gated and fused:
        up = _linear("gate_up_proj", 2 * width, hidden_size, ROWS, bias=ff.bias)
    else:
        names = ("gate_proj", "up_proj") if ff.gated else ("up_proj",)
        up = [w for n in names for w in _linear(n, width, hidden_size, ROWS, bias=ff.bias)]
    return [*up, *_linear("down_proj", hidden_size, width, COLUMNS, bias=ff.bias)]


def _beside_experts(ff: Experts, hidden_size: int) -> list[Weight]:
    """Router, shared experts and their gate."""
    found = _linear("router", ff.num_experts, hidden_size, SLICED, bias=ff.router_bias)
    if ff.shared_intermediate_size:
        shared = Mlp(intermediate_size=ff.shared_intermediate_size, gated=ff.gated)
        found += _mlp(shared, hidden_size, fused=False)
    if ff.shared_gate:
        found += _linear("shared_gate", 1, hidden_size, WHOLE)
    return found
