"""What axolotl demands of its own keys, beside what accelerate and transformers demand below it.

Section 5.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs

_VALIDATION = "axolotl src/axolotl/utils/schemas/validation.py (0.12), context_parallel_size"


@demand(
    "MOD333",
    "Context parallelism without flash attention (axolotl)",
    severity=Severity.ERROR,
    section="5.3",
    scope="axolotl",
    source=_VALIDATION,
    consequence="ValueError: flash_attention: true must be set with context_parallel_size > 1",
    confidence="read",
    says="context_parallel_size {cp} with flash_attention = {flash_attention_stated}",
    suggest={"flash_attention_stated": True},
)
def rings_pass_through_flash_attention(k: Knobs) -> bool:
    """axolotl's ring lies inside the flash attention kernel's wrapper.

    Fails: axolotl 0.12:
        base_model: meta-llama/Llama-3.1-8B
        context_parallel_size: 2
        flash_attention: false
    Passes: axolotl 0.12:
        base_model: meta-llama/Llama-3.1-8B
        context_parallel_size: 2
        flash_attention: true
    """
    return int(k.get("cp") or 1) > 1 and k.flash_attention_stated is False


@demand(
    "MOD334",
    "Context parallelism with several packed rows (axolotl)",
    severity=Severity.ERROR,
    section="5.3",
    scope="axolotl",
    source=_VALIDATION,
    consequence="ValueError: micro_batch_size must be set to 1 when sample_packing is enabled due "
    "to a `ring-flash-attn` requirement",
    confidence="read",
    says="context_parallel_size {cp} with sample_packing and micro_batch_size {micro_batch_size}",
    suggest={"micro_batch_size": 1},
)
def one_packed_row_is_split(k: Knobs) -> bool:
    """The ring takes one row, in which samples are told apart by their cumulative lengths.

    Fails: axolotl 0.12:
        base_model: meta-llama/Llama-3.1-8B
        context_parallel_size: 2
        flash_attention: true
        sample_packing: true
        micro_batch_size: 2
    Passes: axolotl 0.12:
        base_model: meta-llama/Llama-3.1-8B
        context_parallel_size: 2
        flash_attention: true
        sample_packing: true
        micro_batch_size: 1
    """
    return bool(int(k.get("cp") or 1) > 1 and k.packed and k.micro_batch_size > 1)
