"""Tiny models cut over a tp mesh beside the same models in one process, in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from meshwright.data.loader.batch import IGNORED
from meshwright.train.adapters.attention import choose
from meshwright.train.loss import token_loss
from meshwright.train.model.tiny import tiny_config
from meshwright.train.parallel import tensor
from meshwright.train.span import Span
from meshwright.train.verify.islands import wide

SEQ_LEN = 16
SPECIAL = (0, 1, 95)  # padding tokens of one family or another


def model_of(family: str, **changes: Any) -> torch.nn.Module:
    config = tiny_config(family, **{"layers": 2, **changes})
    choose(config)
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).double().train()
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=source, dtype=weight.dtype) * 0.2)
    return model


def rows(count: int, vocab_size: int = 96) -> list[tuple[torch.Tensor, torch.Tensor]]:
    source = torch.Generator().manual_seed(1)
    ids = torch.randint(0, vocab_size, (count, 2, SEQ_LEN + 1), generator=source)
    ids[:, :, 3:6] = torch.tensor(SPECIAL).clamp(max=vocab_size - 1)
    labels = ids[:, :, 1:].clone()
    labels[:, 0, :3] = IGNORED
    return list(zip(ids[:, :, :-1], labels, strict=True))


def hidden_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    places = torch.arange(SEQ_LEN)
    return model.model(
        input_ids=tokens, position_ids=places[None], use_cache=False, span=Span(positions=places)
    ).last_hidden_state


def accumulate(model: Any, *, count: int, chunks: int = 1, split: Any = None) -> float:
    """Backward of `count` micro-batches; the summed loss."""
    total = 0.0
    for tokens, labels in rows(count, model.config.vocab_size):
        with wide():
            hidden = hidden_of(model, tokens)
            loss = token_loss(model, hidden, labels, chunks=chunks, split=split)
        loss.sum().backward()
        total += loss.item()
    return total


def cut(model: Any, mesh: Any, **modes: bool) -> Any:
    """The model cut over the mesh, as the one stage of a pipeline."""
    stage = SimpleNamespace(lm=model, layers=list(model.model.layers))
    tensor.apply(stage, mesh, **modes)
    return stage


def mesh_of_all() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


def differences(model: Any, reference: Any, *, own_tokens: bool) -> dict[str, float]:
    """Relative difference of every gradient; a wrong placement raises."""
    tensor.reduce_gradients(model.parameters())
    got = dict(model.named_parameters())
    found = {}
    for name, weight in reference.named_parameters():
        gradient = got[name].grad
        if isinstance(gradient, DTensor):
            assert gradient.placements == got[name].placements, name
            gradient = gradient.full_tensor()
        elif own_tokens and ".experts." in name:
            gradient = gradient.clone()
            dist.all_reduce(gradient)  # which parallel/expert.py or FSDP2 does
        found[name] = ((gradient - weight.grad).norm() / weight.grad.norm()).item()
    return found


def worst_of(
    family: str, reference: Any, loss: float, *, count: int, chunks: int, changes: Any, modes: Any
) -> dict[str, float]:
    """On a rank: differences of one case, that of the loss under the name "loss"."""
    model = model_of(family, **changes)
    stage = cut(model, mesh_of_all(), **modes)
    got = accumulate(model, count=count, chunks=chunks, split=stage.split)
    found = differences(model, reference, own_tokens=modes["sequence_parallel"])
    return {**found, "loss": abs(got - loss) / loss}
