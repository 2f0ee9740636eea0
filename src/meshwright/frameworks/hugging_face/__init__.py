"""What the frameworks around Hugging Face share: FSDP's words, DeepSpeed under a trainer, widths.

accelerate, transformers' trainer, LLaMA-Factory and axolotl name the same things differently; each
tells the functions here what its settings mean. No framework is defined in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting


def shipped(setting: Setting) -> Reading | None:
    """A DeepSpeed JSON known by its name."""
    from meshwright.frameworks.deepspeed.known import shipped_reading

    return shipped_reading(setting)
