"""Small models under several layouts, trained a few steps and checkpointed, on forked ranks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from transformers import AutoModelForCausalLM

from meshwright.train.checkpoint import Every, Saver, latest, restore, state_of
from meshwright.train.model.initial import initialize
from meshwright.train.model.tiny import tiny_config

LAYERS = 2


def meta_model(family: str = "llama", **changes: Any) -> Any:
    config = tiny_config(family, layers=LAYERS, **changes)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def cut(model: Any, layout: str) -> Any:
    """A meta model laid out as "fsdp4", "tp2", "tp2 fsdp2", "hsdp2x2" or "one"."""
    if layout == "one":
        return model
    sizes = {
        "fsdp4": (1, 4, 1),
        "fsdp2": (1, 2, 1),
        "hsdp2x2": (2, 2, 1),
        "tp2": (1, 1, 2),
        "tp2 fsdp2": (1, 2, 2),
    }
    mesh = init_device_mesh("cpu", sizes[layout], mesh_dim_names=("replicate", "shard", "tp"))
    if mesh["tp"].size() > 1:
        for layer in model.model.layers:
            parallelize_module(layer, mesh["tp"], _TP)
    if mesh["shard"].size() > 1:
        data = mesh["replicate", "shard"] if mesh["replicate"].size() > 1 else mesh["shard"]
        for layer in model.model.layers:
            fully_shard(layer, mesh=data)
        fully_shard(model, mesh=data)
    return model


_TP = {
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}


def started(layout: str, *, family: str = "llama", seed: int = 7, **changes: Any) -> Any:
    model = meta_model(family, **changes)
    config = model.config
    model = cut(model, layout)
    initialize([model], config, seed=seed, device="cpu")
    return model


def rows() -> torch.Tensor:
    return torch.randint(0, 96, (4, 16), generator=torch.Generator().manual_seed(3))


def train(model: Any, optimizers: list[Any], steps: int) -> float:
    """Whole batches on every rank, whose gradients are then equal; the last loss."""
    loss = torch.zeros(())
    for _ in range(steps):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = model(input_ids=rows(), labels=rows(), use_cache=False).loss
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return float(loss.detach())


def adamw(model: Any) -> list[Any]:
    return [torch.optim.AdamW(model.parameters(), lr=1e-2)]


def muon_pair(model: Any) -> list[Any]:
    inner = {n for n, p in model.named_parameters() if p.ndim == 2 and "layers" in n}
    named = dict(model.named_parameters())
    return [
        torch.optim.Muon([named[n] for n in named if n in inner], lr=1e-2),
        torch.optim.AdamW([named[n] for n in named if n not in inner], lr=1e-2),
    ]


def adafactor(model: Any) -> list[Any]:
    return [torch.optim.Adafactor(model.parameters(), lr=1e-2)]


OPTIMIZERS = {"adamw": adamw, "muon": muon_pair, "adafactor": adafactor}


def saved_run(
    folder: str, layout: str, *, optimizer: str = "adamw", family: str = "llama", after: int = 2
) -> float:
    """Three steps, a checkpoint, and `after` more: the loss that a resumed run must come to."""
    model = started(layout, family=family)
    optimizers = OPTIMIZERS[optimizer](model)
    train(model, optimizers, 3)
    saver = Saver(folder, every=Every(steps=1))
    saver.save(state_of([model], optimizers), 3, {"tokens": 192, "loader": {"row": 12}})
    loss = train(model, optimizers, after)
    saver.close()
    return loss


def resumed_run(
    folder: str, layout: str, *, optimizer: str = "adamw", family: str = "llama", after: int = 2
) -> tuple[float, dict[str, Any]]:
    model = started(layout, family=family, seed=99)
    optimizers = OPTIMIZERS[optimizer](model)
    found = latest(folder, group=dist.group.WORLD)
    assert found.folder is not None
    restored = restore(found.folder, [model], optimizers, is_verified=True)
    assert restored.step == 3
    return train(model, optimizers, after), restored.facts


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def values_of(layout: str, family: str = "llama", **changes: Any) -> dict[str, torch.Tensor]:
    """Whole first values of a family under a layout."""
    model = started(layout, family=family, **changes)
    return {name: whole(p) for name, p in model.named_parameters()}


def names_in(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())
