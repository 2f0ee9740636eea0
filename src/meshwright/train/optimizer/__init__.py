"""The plan's optimizer over the parameters of an engine, and the loss scale of fp16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.plan.plan import Optimizer
from meshwright.train.optimizer.making import PARTS
from meshwright.train.optimizer.scaler import Scaler

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from meshwright.train.engine import Engine
    from meshwright.train.settings import Recipe


class Optimizers:
    """One or several torch optimizers that together update every trainable parameter.

    `scaler` is there where gradients are computed in fp16.
    """

    def __init__(self, parts: list[torch.optim.Optimizer], *, scaler: Scaler | None = None) -> None:
        self.parts = parts
        self.scaler = scaler
        self._peaks = [[group["lr"] for group in part.param_groups] for part in parts]

    @property
    def loss_scale(self) -> float:
        """What the loss of the next step is multiplied by, 1 where no scaler is needed."""
        return self.scaler.scale if self.scaler is not None else 1.0

    @property
    def can_be_saved(self) -> bool:
        """Whether checkpoints can hold the states: those of torchao's 8-bit AdamW they cannot."""
        return all(type(part).__module__.split(".")[0] != "torchao" for part in self.parts)

    def step(self) -> None:
        """Updates parameters by their gradients."""
        for part in self.parts:
            part.step()

    def after(self, *, finite: bool) -> None:
        """Takes note of whether the gradients of a step were finite, which all ranks agree on."""
        if self.scaler is not None:
            self.scaler.after(finite=finite)

    def zero_grad(self) -> None:
        """Forgets gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def scale_learning_rate(self, factor: float) -> None:
        """Sets every group's learning rate to `factor` times its peak."""
        for part, peaks in zip(self.parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor

    def state(self) -> dict[str, Any]:
        """What goes into a checkpoint beside the tensors of `parts`, as plain values."""
        return {} if self.scaler is None else {"scaler": self.scaler.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` said; another format than then begins with its own scale."""
        if self.scaler is not None and isinstance(state.get("scaler"), dict):
            self.scaler.restore(state["scaler"])


def build(engine: Engine, recipe: Recipe) -> Optimizers:
    """The plan's optimizer; matrices decay, norms and biases do not.

    Every rank of the engine's mesh calls it. MeshwrightError where a library is missing.
    """
    named = [(n, p) for n, p in engine.named_parameters() if p.requires_grad]
    make = PARTS[Optimizer(int(engine.plan.optimizer))]
    parts = make(named, recipe, engine) if named else []  # stages without layers, or all frozen
    scaler = Scaler() if engine.blueprint.numbers.scaled else None
    return Optimizers(parts, scaler=scaler)
