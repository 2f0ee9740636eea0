"""Structure partitioning (5.1): sizes that the arithmetic units and kernels ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.base.finding import Severity
from meshwright.model.architecture import block_matmuls
from meshwright.plan.plan import Precision
from meshwright.rules.accepted import silencing
from meshwright.rules.model.dimensions import (
    dense_widths,
    expert_widths,
    head_dims,
    listed,
    shares_misaligned,
)
from meshwright.rules.nearest import multiples_near
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.model.architecture import Matmul
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
FP8_UNIT, FP8_TOKENS = 16, 8
BLOCK = {Precision.MXFP8: 32, Precision.NVFP4: 16}  # elements that share a scale
EFFICIENT_UNIT = 64  # elements: 128 bytes of bf16
TILE_ROWS, TILE_COLUMNS = 128, 256  # output tile of the fastest matrix kernels
WAVE_WASTE = 1.25
LARGEST_HEAD = 256
VOCABULARY_UNIT = 128
_MATMUL_GUIDE = "NVIDIA Matrix Multiplication Background guide DU-09799-001"


def tokens_per_rank(job: Job) -> Any:
    """Rows of the dense matrix products of one micro-batch."""
    return job.plan.micro_batch_size * job.workload.seq_len // np.asarray(job.plan.cp)


def quantized_rows(job: Job) -> Any:
    """Rows of the tensor that a rank quantizes: under sequence parallelism its slice of them."""
    cut = np.where(job.plan.sequence_parallel, job.plan.tp, 1)
    return tokens_per_rank(job) // cut


def widths_misaligned(job: Job, unit: int) -> Any:
    """True where the hidden size or a rank's share of a feed-forward width misses the unit."""
    hidden = job.model.hidden_size % unit != 0
    dense = shares_misaligned(dense_widths(job.model), job.plan.tp, unit=unit)
    experts = shares_misaligned(expert_widths(job.model), job.plan.etp, unit=unit)
    return hidden | dense | experts


def _sizes(job: Job) -> str:
    """The sizes that alignment looks at, as words."""
    plan = job.plan
    parts = [f"hidden_size {job.model.hidden_size}"]
    parts += [f"width {w}/{plan.tp} = {w / plan.tp:g}" for w in dense_widths(job.model)]
    parts += [f"expert width {w}/{plan.etp} = {w / plan.etp:g}" for w in expert_widths(job.model)]
    return ", ".join(parts)


@rule(
    "MOD164",
    "FP8 products misaligned",
    severity=Severity.ERROR,
    section=SECTION,
    source="TransformerEngine transformer_engine/pytorch/utils.py assert_dim_for_fp8_exec "
    "(d0067d0d); torchtitan components/quantization/utils.py (0.3.0)",
    reads=("precision", "tp", "etp", "cp", "micro_batch_size", "sequence_parallel"),
    confidence="read",
)
def fp8_products_aligned(job: Job) -> Mask:
    """FP8 matrix products take inner dimensions in multiples of 16 and rows in multiples of 8.

    Some stacks refuse, others silently leave such layers in bf16.

    Fails: plan(precision=Precision.FP8, tp=4, intermediate_size=10000)
    Passes: plan(precision=Precision.FP8, tp=4, intermediate_size=14336)
    """
    rows = quantized_rows(job) % FP8_TOKENS != 0
    return (job.plan.precision == int(Precision.FP8)) & (rows | widths_misaligned(job, FP8_UNIT))


@fp8_products_aligned.message
def _(job: Job) -> str:
    return f"{_sizes(job)}, {quantized_rows(job)} tokens: not all in multiples of 16 (tokens 8)"


@rule(
    "MOD165",
    "MXFP8 or NVFP4 blocks misaligned",
    severity=Severity.ERROR,
    section=SECTION,
    source="TransformerEngine transformer_engine/pytorch/tensor/mxfp8_tensor.py (d0067d0d); "
    "Megatron-LM megatron/core/fp8_utils.py get_fp8_align_size (0.19.2)",
    reads=("precision", "tp", "etp", "cp", "micro_batch_size", "sequence_parallel"),
    confidence="read",
)
def block_scales_aligned(job: Job) -> Mask:
    """MXFP8 scales blocks of 32 elements and NVFP4 blocks of 16; other sizes have no whole blocks.

    Some stacks ask for 128 with NVFP4. Under sequence parallelism each rank quantizes its slice of
    the tokens before they are gathered.

    Fails: plan(precision=Precision.MXFP8, tp=8, intermediate_size=14464)
    Fails: plan(precision=Precision.MXFP8, tp=4, seq_len=31936)
    Passes: plan(precision=Precision.MXFP8, tp=8, intermediate_size=14336)
    """
    precision = job.plan.precision
    mxfp8, nvfp4 = BLOCK[Precision.MXFP8], BLOCK[Precision.NVFP4]
    wide = widths_misaligned(job, mxfp8) | (quantized_rows(job) % mxfp8 != 0)
    return ((precision == int(Precision.MXFP8)) & wide) | (
        (precision == int(Precision.NVFP4)) & widths_misaligned(job, nvfp4)
    )


@block_scales_aligned.message
def _(job: Job) -> str:
    block = BLOCK[Precision(int(job.plan.precision))]
    return f"{_sizes(job)}, {quantized_rows(job)} tokens: not all in multiples of {block}"


@rule(
    "MOD166",
    "Sizes not multiples of 64",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_MATMUL_GUIDE} section 2.2",
    reads=("tp", "etp", "padded_vocab_size"),
    confidence="doc",
)
def sizes_are_efficient(job: Job) -> Mask:
    """Tensor cores reach their rate on multiples of 128 bytes, 64 elements of bf16; 8 is the least.

    Fails: plan(tp=8, intermediate_size=11008)
    Passes: plan(tp=8, intermediate_size=14336)
    """
    vocabulary = job.plan.padded_vocab_size % EFFICIENT_UNIT != 0
    heads = any(d % 8 for d in head_dims(job.model))
    return widths_misaligned(job, EFFICIENT_UNIT) | vocabulary | heads


@sizes_are_efficient.message
def _(job: Job) -> str:
    padded = int(job.plan.padded_vocab_size)
    vocabulary = f", vocabulary {padded}" if padded else ""
    heads = listed(head_dims(job.model))
    return f"{_sizes(job)}{vocabulary}: not all in multiples of 64 (heads of {heads}: of 8)"


class Tiling(NamedTuple):
    """The largest dense product of a rank: its name, output tiles, and the SMs they run on."""

    name: str
    tiles: Any
    sm_count: int


def _tiling(job: Job) -> Tiling:
    """Output tiles of the largest product outside the experts."""
    kinds = job.model.kinds
    products = [m for b in kinds for m in block_matmuls(b, job.model.hidden_size)]
    dense = [m for m in products if m.group != "expert"]
    largest = max(dense, key=lambda m: m.in_features * m.out_features)
    rows = -(-tokens_per_rank(job) // TILE_ROWS)
    columns = -(-_out_features(job, largest) // TILE_COLUMNS)
    return Tiling(name=largest.name, tiles=rows * columns, sm_count=job.cluster.gpu.sm_count)


def _out_features(job: Job, matmul: Matmul) -> Any:
    """Output width of a rank's share of a product."""
    return matmul.out_features // (np.asarray(job.plan.tp) if matmul.shard == "column" else 1)


@rule(
    "MOD167",
    "Wave quantisation",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_MATMUL_GUIDE} section 3.2",
    reads=("tp", "cp", "micro_batch_size"),
    confidence="doc",
)
def tiles_fill_waves(job: Job) -> Mask:
    """The last wave of thread blocks runs nearly empty, so that time grows in steps.

    Judged by the largest dense product of a rank in tiles of 128 x 256.

    Fails: plan(tp=8, seq_len=1024, intermediate_size=20480, gpu_sm_count=132)
    Passes: plan(tp=1, seq_len=8192, gpu_sm_count=132)
    """
    _, tiles, sm_count = _tiling(job)
    if not sm_count:
        return False
    waves = -(-tiles // sm_count)
    return waves * sm_count > WAVE_WASTE * tiles


@tiles_fill_waves.message
def _(job: Job) -> str:
    name, tiles, sm_count = _tiling(job)
    return f"{name} has {tiles} tiles on {sm_count} SMs: {tiles / sm_count:.2f} waves"


@tiles_fill_waves.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    sizes = [times * int(job.plan.micro_batch_size) for times in (2, 4, 8)]
    return {"micro_batch_size": silencing(tiles_fill_waves, job, "micro_batch_size", sizes)[:1]}


@rule(
    "MOD168",
    "Head size outside the fast attention kernels",
    severity=Severity.ERROR,
    section=SECTION,
    source="TransformerEngine dot_product_attention/utils.py get_attention_backend (d0067d0d); "
    "flash-attention flash_attn/flash_attn_interface.py (2.7), which pads",
    reads=("flash_attention",),
    confidence="read",
)
def head_size_has_a_kernel(job: Job) -> Mask:
    """Fused attention takes heads of at most 256 elements; smaller ones it pads to multiples of 8.

    Larger ones store their scores (memory grows with the square of the sequence) or do not run.

    Fails: plan(head_dim=320)
    Passes: plan(head_dim=320, flash_attention=False)
    Passes: plan(head_dim=192, v_head_dim=128)
    Passes: plan(head_dim=100)
    """
    unfit = any(d > LARGEST_HEAD for d in head_dims(job.model))
    return np.logical_and(job.plan.flash_attention, unfit)


@head_size_has_a_kernel.message
def _(job: Job) -> str:
    return f"heads of {listed(head_dims(job.model))} elements with fused attention"


head_size_has_a_kernel.fix(always(flash_attention=(False,)))


@rule(
    "MOD169",
    "Vocabulary not padded",
    severity=Severity.WARNING,
    section=SECTION,
    source="DeepSpeed deepspeed/runtime/config.py (0.19.8); Megatron-LM "
    "--make-vocab-size-divisible-by 128",
    reads=("padded_vocab_size",),
    confidence="read",
)
def vocabulary_is_padded(job: Job) -> Mask:
    """The head is the widest product of the model, and a ragged width slows it.

    Judged only where the padded size is stated.

    Fails: plan(vocab_size=50257, padded_vocab_size=50257)
    Passes: plan(vocab_size=50257, padded_vocab_size=50304)
    """
    return job.plan.padded_vocab_size % VOCABULARY_UNIT != 0


@vocabulary_is_padded.message
def _(job: Job) -> str:
    return f"a vocabulary of {job.plan.padded_vocab_size} rows is no multiple of {VOCABULARY_UNIT}"


@vocabulary_is_padded.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"padded_vocab_size": multiples_near(128, job.plan.padded_vocab_size)[-1:]}


@rule(
    "MOD170",
    "Padding enlarges the vocabulary noticeably",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-LM megatron/training/vocab_utils.py (0.19.2)",
    reads=("padded_vocab_size",),
    confidence="run",
)
def padding_is_small(job: Job) -> Mask:
    """Padding to 128*tp of a small vocabulary costs time and memory of embedding and head.

    Fails: plan(vocab_size=32000, padded_vocab_size=32768)
    Passes: plan(vocab_size=128256, padded_vocab_size=129024)
    """
    return job.plan.padded_vocab_size > 1.02 * job.model.vocab_size


@padding_is_small.message
def _(job: Job) -> str:
    padded, vocab = int(job.plan.padded_vocab_size), job.model.vocab_size
    return f"{vocab} rows padded to {padded}, {padded / vocab - 1:.1%} more"
