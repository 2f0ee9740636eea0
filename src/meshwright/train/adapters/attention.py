"""transformers' registry of attention functions (5.24): ours under the name "meshwright".

For a name that its registry of masks does not know, transformers builds no mask at all
(`masking_utils._preprocess_mask_arguments`); ours are made from the span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import AttentionInterface

from meshwright.train.attention.function import attention

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

NAME = "meshwright"


def register() -> None:
    """Makes "meshwright" a value of `attn_implementation`; again is harmless."""
    AttentionInterface.register(NAME, attention)


def choose(config: PreTrainedConfig) -> None:
    """Has models of this configuration use it, whatever they used before."""
    register()
    config._attn_implementation = NAME
