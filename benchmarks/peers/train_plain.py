"""A plain PyTorch loop over transformers' model, FSDP2 by hand where there are several ranks.

    python train_plain.py CASE.json [bare]

`bare` is forward, backward and optimizer over one batch alone: no data, no clipping, nothing told.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import train_turns as turns
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from transformers import AutoModelForCausalLM


def sharded(model: Any) -> Any:
    """FSDP2 over all ranks: every layer, then the rest."""
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model, reshard_after_forward=False)


def main() -> None:
    case = turns.Case(sys.argv[1])
    is_bare = sys.argv[2:] == ["bare"]
    turn = turns.begin(case.ranks)
    turns.settle(case)
    model = AutoModelForCausalLM.from_pretrained(case.model, attn_implementation="sdpa")
    model.config.use_cache = False
    model.train()
    if case.ranks > 1:
        model = sharded(model)
    optimizer = turns.adamw(model, case)
    tokens = turns.rows(case)
    x, y = turns.batch(tokens, 0)
    for step in range(1 << 30):
        turn.tick()
        if not is_bare:
            x, y = turns.batch(tokens, step)
        logits = model(input_ids=x).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        if not is_bare:
            torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not is_bare:
            turn.losses.append(told(loss.detach(), case.ranks))


def told(loss: Any, ranks: int) -> float:
    """The loss over all ranks."""
    if ranks > 1:
        torch.distributed.all_reduce(loss)
        loss /= ranks
    return float(loss)


if __name__ == "__main__":
    main()
