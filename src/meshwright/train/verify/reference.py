"""The same model in one process: transformers' own forward, plain loss, torch's optimizers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from meshwright.base.noun import dataclass
from meshwright.data.loader.batch import IGNORED
from meshwright.plan.plan import Optimizer, Plan
from meshwright.train.adapters import lora
from meshwright.train.adapters.attention import choose
from meshwright.train.model.configuration import model_of
from meshwright.train.model.initial import initialize
from meshwright.train.span import Span
from meshwright.train.stage import canonical_name
from meshwright.train.verify.islands import wide
from meshwright.train.verify.updating import Updates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

DTYPE = torch.float64


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one global batch: tokens and labels [b, s], some labels IGNORED."""

    tokens: Tensor
    labels: Tensor

    @property
    def counted(self) -> int:
        """Labels that count."""
        return int((self.labels != IGNORED).sum())


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What one process computes: by step the loss and gradient norm, then the parameters.

    `gradients` are those of the first step, before clipping.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: dict[str, Tensor]
    parameters: dict[str, Tensor]


def batches(config: Any, *, rows: int, seq_len: int, steps: int, seed: int = 1) -> list[Batch]:
    """Random rows; about a tenth of the labels do not count, more in some rows than in others."""
    source = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(steps):
        ids = torch.randint(0, config.vocab_size, (rows, seq_len + 1), generator=source)
        labels = ids[:, 1:].clone()
        share = 0.3 * torch.rand(rows, 1, generator=source)
        labels[torch.rand(rows, seq_len, generator=source) < share] = IGNORED
        made.append(Batch(tokens=ids[:, :-1].contiguous(), labels=labels))
    return made


def reference(
    config: Any,
    data: list[Batch],
    *,
    seed: int,
    clip_norm: float,
    plan: Plan | None = None,
) -> Reference:
    """Trains a whole model on the batches, one step each, in float64.

    Of `plan` it takes optimizer and adapters, the rest is of no concern to one process.
    """
    plan = plan or Plan()
    lm = whole_model(config, seed=seed, plan=plan)
    updates = Updates(lm, Optimizer(int(plan.optimizer)))
    losses: list[float] = []
    norms: list[float] = []
    gradients: dict[str, Tensor] = {}
    for batch in data:
        loss = _loss(lm, batch)
        loss.backward()
        if not gradients:
            gradients = {n: p.grad.clone() for n, p in _named(lm) if p.grad is not None}
        norms.append(float(torch.nn.utils.clip_grad_norm_(lm.parameters(), clip_norm)))
        losses.append(float(loss.detach()))
        with wide():
            updates.step()
    parameters = {name: p.detach() for name, p in _named(lm)}
    return Reference(
        losses=tuple(losses), norms=tuple(norms), gradients=gradients, parameters=parameters
    )


def _named(lm: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in lm.named_parameters():
        yield canonical_name(name), parameter


def whole_model(config: Any, *, seed: int, plan: Plan) -> nn.Module:
    """The whole model with the run's first values and the adapters of `plan`, in float64."""
    config = copy.deepcopy(config)
    choose(config)
    config._experts_implementation = "eager"
    with torch.device("meta"):
        lm = model_of(config, dtype=DTYPE)
        lora.apply(lm, plan)
    for parameter in lm.parameters():  # some routers are float32 regardless
        parameter.data = parameter.data.to(DTYPE)
    lm.to_empty(device="cpu")
    lm.tie_weights()
    initialize([lm], config, seed=seed, device=torch.device("cpu"))
    return lm.train()


def _loss(lm: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy over the labels that count."""
    positions = torch.arange(batch.tokens.shape[1])
    with wide():
        logits = lm(
            input_ids=batch.tokens,
            position_ids=positions.unsqueeze(0),
            use_cache=False,
            span=Span(positions=positions),
        ).logits
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED
        )
