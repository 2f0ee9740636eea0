"""What axolotl demands of its own keys, beside what accelerate and transformers demand below it.

Section 5.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

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
    says="context_parallel_size {cp} (sequence parallelism) with flash_attention = "
    "{flash_attention_stated}",
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


@demand(
    "MOD335",
    "Liger kernels with tensor parallelism (axolotl)",
    severity=Severity.ERROR,
    section="5.3",
    scope="axolotl",
    source="axolotl src/axolotl/integrations/liger/args.py (0.12)",
    consequence="ValueError: `liger_rms_norm` is incompatible with tensor parallelism; or: Tensor "
    "parallelism is not compatible with liger losses.",
    confidence="read",
)
def liger_kernels_see_whole_tensors(k: Knobs) -> bool:
    """Liger's norms and its fused loss know nothing of the shards that tensor parallelism makes.

    Fails: axolotl 0.12:
        base_model: Qwen/Qwen3-8B
        tensor_parallel_size: 2
        dp_shard_size: 4
        liger_rms_norm: true
    Passes: axolotl 0.12:
        base_model: Qwen/Qwen3-8B
        dp_shard_size: 8
        liger_rms_norm: true
    """
    return int(k.get("tp") or 1) > 1 and bool(_of_liger(k))


def _of_liger(k: Knobs) -> list[str]:
    """The kernels that are asked for and refused."""
    keys = {
        "liger_rms_norm": "liger_rms_norm",
        "liger_fused_loss": "liger_fused_linear_cross_entropy",
    }
    return [key for variable, key in keys.items() if k.get(variable, False)]


@liger_kernels_see_whole_tensors.message
def _(k: Knobs) -> str:
    return (
        f"{', '.join(_of_liger(k))} with tensor_parallel_size {k.tp}: liger is incompatible with it"
    )


@liger_kernels_see_whole_tensors.fix
def _(k: Knobs) -> Mapping[str, Any]:
    asked = ("liger_rms_norm", "liger_fused_loss")
    return {variable: False for variable in asked if k.get(variable, False)}
