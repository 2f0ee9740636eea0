"""Whole runs of a tiny model on forked ranks, as `meshwright train` starts them."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from meshwright.train import loop
from meshwright.train.local import run_ranks
from meshwright.train.settings import Recipe, Run, Saving, Spec, Telling
from meshwright.train.telling.metrics import METRICS, read_metrics
from meshwright.train.watch.heart import Heart
from meshwright.train.watch.signals import Stop

CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def spec_of(out: Path, plan: str, *, ranks: int, **changes) -> Spec:
    """A run of `plan`, lines of a plan.toml, which saves nothing unless it is told to."""
    model = "\n".join(f"{key} = {json.dumps(value)}" for key, value in CONFIG.items())
    text = f"""
[model]
{model}
[cluster]
gpu = "H100:{ranks}"
nodes = 1
[workload]
seq_len = 16
global_batch = 4
[plan]
{plan}
"""
    run = {
        "recipe": Recipe(learning_rate=1e-2, schedule="constant"),
        "saving": Saving(every_steps=-1, last=False),
        "telling": Telling(every_steps=1000),
    }
    return Spec(plan_toml=text, config=CONFIG, run=Run(out=str(out), **(run | changes)))


def trained(spec: Spec, *, ranks: int) -> list[dict]:
    """What metrics.jsonl says of the run after it has been trained."""
    Path(spec.run.out).mkdir(parents=True, exist_ok=True)
    run_ranks(_train, ranks, spec, timeout_s=300)
    return read_metrics(Path(spec.run.out) / METRICS)


def _train(spec: Spec) -> bool:
    return loop.train(spec, device=torch.device("cpu"), heart=Heart.here({}), stop=Stop())
