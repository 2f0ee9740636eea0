"""Where nanotron's pipeline engine puts the layers: blocks are dealt out by their cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Relative cost of one layer and of the head, in any one unit."""

    layer: float
    head: float


def block_costs(*, hidden: int, width: int, ffn: int, vocab: int) -> Costs:
    """Costs as nanotron counts them: weights of attention (`width` is heads * head_dim), MLP, head.

    Source: nanotron@67716392ab src/nanotron/models/llama.py, get_block_compute_costs.
    """
    return Costs(layer=(4 * width + 3 * ffn) * hidden, head=vocab * hidden)


def cost_balanced(layers: int, chunks: int, costs: Costs) -> tuple[int, ...] | None:
    """Layers per chunk when a chunk ends with the block that passes its share of the total cost.

    After the layers come norm, head, cast and loss, so late chunks may hold no layer at all.
    None where a chunk would hold nothing, as nanotron's launcher refuses then.
    Source: nanotron@67716392ab src/nanotron/models/base.py, build_model.
    """
    blocks = [costs.layer] * layers + [0.0, costs.head, 0.0, 0.0]
    total = sum(blocks)
    counts = [0] * chunks
    chunk, done = 0, 0.0
    for index, cost in enumerate(blocks):
        counts[chunk] += index < layers
        done += cost
        if done > total * (chunk + 1) / chunks and chunk < chunks - 1:
            chunk += 1
    return None if chunk < chunks - 1 else tuple(counts)
