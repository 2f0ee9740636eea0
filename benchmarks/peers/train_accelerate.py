"""accelerate's FSDP2 around the plain loop.

python train_accelerate.py CASE.json
"""

from __future__ import annotations

import os
import sys

import torch.distributed.fsdp  # noqa: F401 - before the fork
import train_turns as turns
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.nn import functional
from transformers import AutoModelForCausalLM


def main() -> None:
    case = turns.Case(sys.argv[1])
    turn = turns.begin(case.ranks)
    os.environ |= {"ACCELERATE_USE_CPU": "true", "ACCELERATE_USE_FSDP": "true"}
    turns.settle(case)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    model = AutoModelForCausalLM.from_pretrained(case.model, attn_implementation="sdpa")
    model.config.use_cache = False
    model.train()
    optimizer = turns.adamw(model, case)
    model, optimizer = accelerator.prepare(model, optimizer)
    kind = str(accelerator.distributed_type)
    if "FSDP" not in kind:
        raise SystemExit(f"accelerate takes {kind} for its distributed type, not FSDP")
    tokens = turns.rows(case)
    for step in range(1 << 30):
        turn.tick()
        x, y = turns.batch(tokens, step)
        logits = model(input_ids=x).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), case.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        turn.losses.append(float(accelerator.reduce(loss.detach(), reduction="mean")))


if __name__ == "__main__":
    main()
