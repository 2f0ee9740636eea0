"""What most families' configurations have in common, read once and checked against itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.model.architecture import Attention, Block, Experts, Mlp, Model
from meshwright.model.fields import MAX_LAYERS, MAX_LENGTH, MAX_VOCABULARY
from meshwright.model.generic import merge_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.model.fields import Fields

LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """Sizes that every family has."""

    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int

    def attention(self, **changes: Any) -> Attention:
        """Grouped-query attention of these sizes; `changes` are further fields of `Attention`."""
        sizes = {
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "v_head_dim": self.head_dim,
        }
        return Attention(**{**sizes, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """How a family spells the common sizes."""

    hidden_size: tuple[str, ...] = ("hidden_size",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)
    positions: tuple[str, ...] = ("max_position_embeddings",)


HF_KEYS = Keys()
GPT_KEYS = Keys(
    hidden_size=("n_embd", "hidden_size"),
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    positions=("n_positions", "max_position_embeddings"),
)


def read_dims(
    f: Fields,
    *,
    hidden_size: int,
    layers: int,
    heads: int,
    vocab_size: int,
    positions: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    keys: Keys = HF_KEYS,
) -> Dims:
    """The common sizes; numbers given are the family's defaults.

    `kv_heads` None means as many as heads, `head_dim` None means hidden_size / heads.
    """
    h = f.required(*keys.hidden_size, default=hidden_size)
    n = f.required(*keys.heads, default=heads)
    kv = _read_kv_heads(f, keys, heads=n, default=kv_heads)
    width = f.optional_size(*keys.head_dim, default=head_dim)
    if width is None:
        width = _derived_head_dim(f, keys, hidden_size=h, heads=n)
    return Dims(
        hidden_size=h,
        layers=f.required(*keys.layers, default=layers, maximum=MAX_LAYERS),
        heads=n,
        kv_heads=kv,
        head_dim=width,
        vocab_size=f.required("vocab_size", default=vocab_size, maximum=MAX_VOCABULARY),
        max_position_embeddings=f.size(*keys.positions, default=positions, maximum=MAX_LENGTH),
    )


def _read_kv_heads(f: Fields, keys: Keys, *, heads: int, default: int | None) -> int:
    """Key/value heads, checked against the query heads."""
    key = f.spelling(*keys.kv_heads)
    if f.config.get(key) is None and default is not None and key not in f.config:
        f.assume(f"{f.located(key)} = {default} (the default of {f.owner})")
    kv = f.optional_size(*keys.kv_heads, default=default)
    if kv is None:
        return heads
    check_kv_heads(f, key, kv, heads=heads, heads_key=f.spelling(*keys.heads))
    return kv


def check_kv_heads(f: Fields, key: str, kv: int, *, heads: int, heads_key: str) -> None:
    """Note key/value heads that do not divide the query heads."""
    if heads % kv == 0:
        return
    legal = [d for d in range(1, min(heads, 1024) + 1) if heads % d == 0]
    more = "exceeds" if kv > heads else "does not divide"
    hint = f"divisors of {heads}: {', '.join(map(str, legal[-8:]))}"
    f.conflict(key, f"{more} {heads_key} = {heads}", beside=(heads_key,), hint=hint)


def _derived_head_dim(f: Fields, keys: Keys, *, hidden_size: int, heads: int) -> int:
    """Width of a head as hidden_size / heads; a remainder is a problem."""
    if hidden_size % heads:
        hidden_key, heads_key = f.spelling(*keys.hidden_size), f.spelling(*keys.heads)
        f.conflict(
            heads_key,
            f"does not divide {hidden_key} = {hidden_size}, and no {keys.head_dim[0]} is given",
            beside=(hidden_key,),
            hint=f"give {keys.head_dim[0]}, or make {hidden_key} a multiple of {heads_key}",
        )
    return max(hidden_size // heads, 1)


def read_intermediate(f: Fields, *keys: str, default: int) -> int:
    """Width of the feed-forward network, which a top-level configuration must give."""
    return f.required(*(keys or ("intermediate_size",)), default=default)


def check_top_k(f: Fields, top_k: int, num_experts: int, *, keys: tuple[str, str]) -> None:
    """Note a top-k larger than the number of experts; `keys` are their two spellings."""
    if top_k > num_experts:
        hint = f"at most {num_experts}"
        f.conflict(keys[0], f"exceeds {keys[1]} = {num_experts}", beside=(keys[1],), hint=hint)


def read_windows(
    f: Fields,
    layers: int,
    *,
    window: int | None,
    windowed: Callable[[int], bool] = lambda _: True,
    window_key: str = "sliding_window",
) -> tuple[int | None, ...]:
    """The window of each layer, None where attention is full.

    `layer_types` decides where it is given; else `windowed` says which layers have the window.
    `window` is the family's default for an absent key.
    """
    size = f.optional_size(window_key, default=window, maximum=MAX_LENGTH, minimum=0) or None
    kinds = f.choices("layer_types", length=layers, allowed=LAYER_TYPES)
    if kinds is None:
        return tuple(size if windowed(i) else None for i in range(layers))
    if size is None and any(kind != "full_attention" for kind in kinds):
        reason = f"names windowed layers, but {window_key} is not given"
        f.conflict("layer_types", reason, beside=(window_key,), hint=f"give {window_key}")
    return tuple(None if kind == "full_attention" else size for kind in kinds)


def optional_windows(f: Fields, layers: int, *, default: int = 4096) -> tuple[int | None, ...]:
    """Windows of the Qwen families: off unless use_sliding_window, then above max_window_layers."""
    if not f.flag("use_sliding_window", default=False):
        return (None,) * layers
    first = f.size("max_window_layers", default=28, minimum=0)
    return read_windows(f, layers, window=default, windowed=lambda i: i >= first)


def assemble(
    f: Fields,
    dims: Dims,
    blocks: Sequence[Block],
    *,
    tied: bool,
    mtp: Sequence[Block] = (),
    **changes: Any,
) -> Model:
    """The model of these blocks; `tied` is the family's default for tie_word_embeddings."""
    return Model(
        name=f.name,
        hidden_size=dims.hidden_size,
        vocab_size=dims.vocab_size,
        runs=merge_runs(blocks),
        tie_word_embeddings=f.flag("tie_word_embeddings", default=tied),
        mtp=merge_runs(mtp),
        max_position_embeddings=dims.max_position_embeddings,
        family=f.owner,
        source=f.source,
        **changes,
    )


def uniform(
    attentions: Sequence[Attention], feed_forward: Mlp | Experts, **changes: Any
) -> list[Block]:
    """Blocks that differ in attention alone; `changes` are further fields of `Block`."""
    return [
        Block(attention=attention, feed_forward=feed_forward, **changes) for attention in attentions
    ]
