"""Where a training step is: hooks that name its stretches and say what storages became.

A stretch ends at each mark. Stretches are named by what happens in them, not by how deep the model
is, so that those of two depths correspond and each extends along a straight line: the peak of a
pass moves with depth as the larger of such lines does, at its first blocks and at its last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._pytree import tree_leaves

from meshwright.base.noun import dataclass
from meshwright.train.adapters.gathered import waiting_gradients
from meshwright.train.measure.storage import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.train.adapters.collectives import Call
    from meshwright.train.measure.storage import Peak, StorageTracker
    from meshwright.train.measure.traffic import TrafficTracker
    from meshwright.train.stage import Stage

FORWARD, LOSS, BACKWARD, UPDATE = "forward", "loss", "backward", "update"
SHARDED = ("fsdp", "efsdp", "dp_replicate")  # axes whose collectives have buffers of their own


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Stretch:
    """A part of the step: phase, place in the phase, stage; all micro-batches together."""

    phase: str
    place: str
    stage: int


class Marks:
    """Cuts a step into stretches while its hooks are set; `peaks` has the highest of each.

    `kept` is the most bytes of activations that were left when a forward pass had ended.
    """

    def __init__(self, storage: StorageTracker, traffic: TrafficTracker) -> None:
        self.peaks: dict[Stretch, Peak] = {}
        self.storage = storage
        self.traffic = traffic
        self._handles: list[Any] = []
        self._born = 0
        self.kept = 0

    def mark(self, phase: str, place: str, stage: int = 0) -> None:
        """The stretch that ends here."""
        stretch, peak = Stretch(phase=phase, place=place, stage=stage), self.storage.cut()
        if stretch not in self.peaks or peak.bytes > self.peaks[stretch].bytes:
            self.peaks[stretch] = peak

    def watch(self, stages: Iterable[Stage]) -> None:
        """Sets hooks on stages; they stay until `release`."""
        for stage in stages:
            self._watch_passes(stage)
            self._watch_layers(stage)

    def release(self) -> None:
        """Takes the hooks away."""
        for handle in self._handles:
            handle.remove()

    def communicated(self, call: Call, arguments: Any) -> None:
        """What sharded collectives read and write is communication, unless it is known as more."""
        if not call.in_place or call.group.removeprefix("mesh_") not in SHARDED:
            return
        for tensor in tree_leaves(arguments):
            if hasattr(tensor, "untyped_storage"):
                number = self.storage.see(tensor)
                if number is not None and self.storage.categories[number] in _PASSING:
                    self.storage.categories[number] = Category.COMMUNICATION

    def _watch_passes(self, stage: Stage) -> None:
        index, keep = stage.place.index, self._handles.append

        def begins(*_: Any) -> None:
            self.traffic.phase = FORWARD
            self._see_waiting(stage)
            self._born = self.storage.count

        def leaves_layers(_module: Any, _inputs: Any, output: Any) -> None:
            self.mark(FORWARD, "last", index)
            if stage.place.is_last:
                _on_gradient(output, self._loss_is_left(index))

        def enters_head(*_: Any) -> None:
            if self.storage.label is not Category.LOGITS:
                self._keep_born()
                self.storage.label = Category.LOGITS

        def ends(_module: Any, _inputs: Any, output: Any) -> None:
            if stage.place.is_last:
                self.mark(LOSS, "forward", index)
                _on_gradient(output, self._loss_is_entered)
            else:
                self._keep_born()
            self.storage.label = Category.TEMPORARIES
            self.traffic.phase = BACKWARD
            self.kept = max(self.kept, self.storage.alive(Category.ACTIVATIONS))

        keep(stage.register_forward_pre_hook(begins))
        keep(stage.lm.model.register_forward_hook(leaves_layers))
        if stage.place.is_last:
            keep(stage.lm.lm_head.register_forward_pre_hook(enters_head))
        keep(stage.register_forward_hook(ends))

    def _loss_is_entered(self, _gradient: Any) -> None:
        self.storage.label = Category.LOGITS

    def _loss_is_left(self, index: int) -> Callable[[Any], None]:
        def left(_gradient: Any) -> None:
            self.mark(LOSS, "backward", index)
            self.storage.label = Category.TEMPORARIES

        return left

    def _keep_born(self) -> None:
        """What a forward pass leaves behind is kept for the backward pass."""
        for number in self.storage.born_since(self._born):
            if self.storage.categories[number] is Category.TEMPORARIES:
                self.storage.categories[number] = Category.ACTIVATIONS

    def _see_waiting(self, stage: Stage) -> None:
        """Gradients that an earlier micro-batch left."""
        self.storage.see_all(waiting_gradients(stage), Category.GRADIENTS)

    def _watch_layers(self, owner: Stage) -> None:
        layers, stage = owner.layers, owner.place.index
        last = len(layers) - 1
        places = {last: "start", last - 1: "first", last - 2: "second", 0: "penultimate"}

        def hook(number: int) -> Callable[..., None]:
            place = places.get(number, "middle")

            def backward(_gradient: Any) -> None:
                self.mark(BACKWARD, place, stage)
                if number == last:
                    self._see_waiting(owner)

            def after_forward(_module: Any, _inputs: Any, output: Any) -> None:
                if number == 0:
                    self.mark(FORWARD, "first", stage)
                _on_gradient(output, backward)

            return after_forward

        for number, layer in enumerate(layers):
            self._handles.append(layer.register_forward_hook(hook(number)))


_PASSING = (Category.TEMPORARIES, Category.ACTIVATIONS, Category.LOGITS)


def _on_gradient(output: Any, call: Callable[[Any], None]) -> None:
    """Calls back when the gradient of a module's output is there."""
    tensor = getattr(output, "last_hidden_state", None)
    tensor = tree_leaves(output)[0] if tensor is None else tensor
    if tensor.requires_grad:
        tensor.register_hook(call)
