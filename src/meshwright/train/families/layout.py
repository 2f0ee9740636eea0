"""How tensor parallelism cuts one layer of a family, in words that need no torch."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cut(Enum):
    """What happens to one module's weights over the tp axis.

    COLUMN cuts outputs, ROW inputs (arXiv 1909.08053, section 3). PARTS is a product that makes
    several things at once, each of which is cut by outputs. HEAD is a norm of one head's width,
    the same for every head; WIDE one over all heads together. DOWN projects into a small latent and
    is whole on every rank, UP projects that latent to heads and is cut by outputs; NORM is a norm
    on such a latent.
    """

    COLUMN = "column"
    ROW = "row"
    PARTS = "parts"
    HEAD = "head"
    WIDE = "wide"
    DOWN = "down"
    NORM = "norm"
    UP = "up"


def _frozen(cuts: dict[str, Cut]) -> Mapping[str, Cut]:
    return MappingProxyType(cuts)


GROUPED: Mapping[str, Cut] = _frozen(
    {"q_proj": Cut.COLUMN, "k_proj": Cut.COLUMN, "v_proj": Cut.COLUMN, "o_proj": Cut.ROW}
)
HEAD_NORMS: Mapping[str, Cut] = _frozen({"q_norm": Cut.HEAD, "k_norm": Cut.HEAD})
GATED: Mapping[str, Cut] = _frozen(
    {"gate_proj": Cut.COLUMN, "up_proj": Cut.COLUMN, "down_proj": Cut.ROW}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One layer of a family: names of modules below the layer, as transformers has them.

    `norms` stand in the residual stream, beside `self_attn` and `mlp`. `per_head` are parameters of
    the attention module itself with one number a head. `router` and `shared_experts` are modules of
    a routed mlp; `latent` marks attention that projects its input into latents first.
    """

    attention: Mapping[str, Cut] = field(default_factory=lambda: GROUPED)
    mlp: Mapping[str, Cut] = field(default_factory=lambda: GATED)
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    per_head: tuple[str, ...] = ()
    router: str = "gate"
    shared_experts: str = ""

    @property
    def latent(self) -> bool:
        """Whether attention projects hidden states down before heads are made."""
        return Cut.DOWN in self.attention.values()
