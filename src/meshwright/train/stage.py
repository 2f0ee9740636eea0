"""One pipeline chunk of any transformers causal language model.

The model keeps its own forward (masks, rotary embeddings, windows, embedding scales); layers that
other stages hold become identities, and later stages are fed hidden states in place of embeddings.
Without a pipeline there is one stage, first and last at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from meshwright.base.noun import dataclass
from meshwright.train.attention.context.making import span_of
from meshwright.train.loss import Split, token_loss

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.span import Span

WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "base_layer.", "lm.")
ADAPTER = ".default.weight"  # peft's name of the one adapter of a layer
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which part of the model a stage is: layers `first_layer` up to `last_layer` (excluded)."""

    index: int
    stages: int
    first_layer: int
    last_layer: int

    @property
    def is_first(self) -> bool:
        """Whether the embedding is here."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Whether final norm, head and loss are here."""
        return self.index == self.stages - 1


@dataclass(frozen=True, kw_only=True)
class Slices:
    """What of every row a rank holds: its `positions` [s_local], cut as `context` says over cp."""

    positions: Tensor
    context: Context | None = None


class Passing(nn.Module):
    """Stands for a layer of another stage."""

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
        """What came in."""
        return hidden_states


class Stage(nn.Module):
    """A chunk of `lm`, which it takes over and cuts down.

    `loss_chunks` and `split` say how the loss is computed (see `loss.token_loss`); `split` is
    set where logits are split over the vocabulary.
    """

    def __init__(
        self, lm: nn.Module, place: Place, *, slices: Slices, loss_chunks: int = 1
    ) -> None:
        super().__init__()
        self.place = place
        self.slices = slices
        self.loss_chunks = loss_chunks
        self.split: Split | None = None
        self.lm = _cut(lm, place)

    @property
    def layers(self) -> list[nn.Module]:
        """The decoder layers that are here."""
        every = self.lm.model.layers
        return [every[i] for i in range(self.place.first_layer, self.place.last_layer)]

    def forward(
        self,
        x: Tensor,
        *,
        labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Hidden states, or on the last stage the summed cross-entropy, shape [1].

        `x` is token ids [b, s] on the first stage, else hidden states [b, s, hidden]; s is this
        rank's slice (hidden states under sequence parallelism are slices of that).
        """
        span = self._span(documents)
        if position_ids is None:
            position_ids = self.slices.positions.unsqueeze(0)
        source = {"input_ids": x} if self.place.is_first else {"inputs_embeds": x}
        hidden: Tensor = self.lm.model(
            **source, position_ids=position_ids, use_cache=False, span=span
        ).last_hidden_state
        if not self.place.is_last or labels is None:
            return hidden
        return token_loss(self.lm, hidden, labels, chunks=self.loss_chunks, split=self.split)

    def _span(self, documents: Tensor | None) -> Span:
        """What attention is told of this micro-batch."""
        return span_of(self.slices.positions, documents, context=self.slices.context)


def _cut(lm: nn.Module, place: Place) -> nn.Module:
    """The model without what other stages hold."""
    base = lm.model
    for i in range(len(base.layers)):
        if not place.first_layer <= i < place.last_layer:
            base.layers[i] = Passing()
    if not place.is_first:
        base.embed_tokens = None
    if not place.is_last:
        base.norm = Passing()
        lm.lm_head = None
    return lm


def canonical_name(name: str) -> str:
    """The name that transformers gives a parameter, without what wrappers put before it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "") if wrapper != "lm." else name.removeprefix(wrapper)
    return name.replace(ADAPTER, ".weight")


def shared_name(stage: Stage, name: str) -> str:
    """The canonical name; a tied head that stands alone on its stage has the embedding's."""
    name = canonical_name(name)
    tied = bool(stage.lm.config.tie_word_embeddings) and not stage.place.is_first
    return EMBEDDING if tied and name == HEAD else name
