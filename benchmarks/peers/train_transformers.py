"""transformers' own engine (DistributedConfig), FSDP2, around the plain loop.

python train_transformers.py CASE.json
"""

from __future__ import annotations

import sys

import torch
import torch.distributed.fsdp
import train_turns as turns
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig


def main() -> None:
    case = turns.Case(sys.argv[1])
    turn = turns.begin(case.ranks)
    turns.settle(case)
    model = AutoModelForCausalLM.from_pretrained(
        case.model,
        attn_implementation="sdpa",
        distributed_config=DistributedConfig(fsdp_size=case.ranks),
    )
    model.config.use_cache = False
    model.train()
    optimizer = turns.adamw(model, case)
    tokens = turns.rows(case)
    for step in range(1 << 30):
        turn.tick()
        x, y = turns.batch(tokens, step)
        logits = model(input_ids=x).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        whole = loss.detach()
        torch.distributed.all_reduce(whole)
        turn.losses.append(float(whole) / case.ranks)


if __name__ == "__main__":
    main()
