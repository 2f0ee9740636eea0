"""How layers are dealt out to pipeline stages: written, or by the framework's own rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.evidence.row import CannotExpress
from meshwright.frameworks.nanotron.placing import block_costs, cost_balanced
from meshwright.model.architecture import Mlp

if TYPE_CHECKING:
    from meshwright.evidence.habits import Habits
    from meshwright.evidence.row import Row
    from meshwright.model.architecture import Model


def stage_fields(row: Row, habits: Habits, model: Model, chunks: int) -> dict[str, Any]:
    """Plan fields that say which of `chunks` (pp * vpp) hold how many layers.

    Raises CannotExpress where there are fewer layers than chunks need.
    """
    layers = model.num_hidden_layers
    if chunks == 1:
        return {}
    if chunks > layers + 4:  # embedding, norm, head and loss may each fill one
        raise CannotExpress(f"{layers} layers are too few for pp*vpp = {chunks}")
    written = _written_layout(row, layers, chunks)
    if written:
        return {"layout": written}
    if row.says("notes", r"first and last stage hold one layer fewer"):
        return {"embedding_in_split": True, "loss_in_split": True}
    if row.says("pp_schedule", r"redistribut"):
        return _layout(
            redistributed(layers, chunks, head=_head_in_layers(model, row.needed("seq_len")))
        )
    if habits.cost_balanced_stages:
        return _layout(_cost_balanced(layers, chunks, model))
    if layers % chunks == 0:
        return {}
    return _uneven(layers, chunks, slots=habits.slot_balanced_stages)


def _layout(counts: tuple[int, ...]) -> dict[str, Any]:
    """Nothing to say for an even split, else the layout."""
    return {} if len(set(counts)) == 1 else {"layout": counts}


def _written_layout(row: Row, layers: int, chunks: int) -> tuple[int, ...] | None:
    """The layout that the notes spell out, None when they do not or it does not add up."""
    listed = re.search(r"layers per stage \[?([\d, ]+)", row.text("notes"))
    pattern = re.search(r"pp_layout ([^;\s]+)", row.text("notes"))
    if listed:
        counts = tuple(int(n) for n in re.findall(r"\d+", listed.group(1)))
    elif pattern:
        counts = pattern_layout(pattern.group(1))
    else:
        return None
    return counts if len(counts) == chunks and sum(counts) == layers else None


def pattern_layout(text: str) -> tuple[int, ...]:
    """Layers per chunk of a Megatron layout such as `Et*4|(t*4|)*14tmL`.

    `|` ends a chunk, `t` is a layer, `E`, `m` and `L` embedding, multi-token prediction and loss;
    `x*n` repeats the letter or bracket before it. Raises CannotExpress where it does not parse.
    """
    flat = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m.group(1) * int(m.group(2)), _letters(text))
    if re.search(r"[^EtmL|]", flat):
        raise CannotExpress(f"pipeline layout {text!r} does not parse")
    return tuple(chunk.count("t") for chunk in flat.split("|"))


def _letters(text: str) -> str:
    """The pattern with repeated letters written out."""
    return re.sub(r"([EtmL])\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text)


def _cost_balanced(layers: int, chunks: int, model: Model) -> tuple[int, ...]:
    """Layers per chunk as nanotron deals them out; CannotExpress where a chunk holds nothing."""
    block = model.layers[0]
    width = block.attention.num_attention_heads * block.attention.head_dim
    ff = block.feed_forward
    ffn = ff.intermediate_size if isinstance(ff, Mlp) else ff.intermediate_size * ff.top_k
    costs = block_costs(hidden=model.hidden_size, width=width, ffn=ffn, vocab=model.vocab_size)
    counts = cost_balanced(layers, chunks, costs)
    if counts is None:
        raise CannotExpress(f"{layers} layers leave one of {chunks} stages empty")
    return counts


def _head_in_layers(model: Model, seq_len: int) -> float:
    """The head's forward FLOPs as a multiple of one layer's (arXiv 2205.05198, appendix A)."""
    layer = 24 * model.hidden_size**2 + 4 * seq_len * model.hidden_size
    return 2 * model.hidden_size * model.vocab_size / layer


def redistributed(layers: int, chunks: int, *, head: float) -> tuple[int, ...]:
    """Layers per chunk that make the longest chunk shortest, the last one also bearing the head.

    `head` is its cost in layers (arXiv 2411.05288, section 6.1, baseline "Redis"). What the last
    chunk gives up goes to the chunks just before it: the paper's peak memory, that of the first
    stage, is the same as without redistribution.
    """
    best = min(
        range(layers + 1),
        key=lambda last: (max(-(-(layers - last) // (chunks - 1)), last + head), -last),
    )
    return (*reversed(_spread(layers - best, chunks - 1)), best)


def _spread(layers: int, chunks: int) -> tuple[int, ...]:
    """As even as can be, the longer chunks first."""
    short, longer = divmod(layers, chunks)
    return (short + 1,) * longer + (short,) * (chunks - longer)


def _uneven(layers: int, chunks: int, *, slots: bool) -> dict[str, Any]:
    """A split where the layers do not divide: embedding and head as layers, or a short end.

    Megatron users count embedding and loss as layers where that divides (Llama 3.1 405B, Qwen3
    235B), else give the last chunk what is left (DeepSeek-V3 61 = 15 * 4 + 1). With `slots` layers
    are spread instead (DeepSpeed's `type:transformer`).
    """
    if (layers + 2) % chunks == 0:
        return {"embedding_in_split": True, "loss_in_split": True}
    if slots or layers < chunks:
        return _layout(_spread(layers, chunks))
    if (layers + 1) % chunks == 0:
        return {"loss_in_split": True}
    longest = -(-layers // chunks)
    last = layers - longest * (chunks - 1)
    if last > 0:
        return {"layout": (longest,) * (chunks - 1) + (last,)}
    return _layout(_spread(layers, chunks))
