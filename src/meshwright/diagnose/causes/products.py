"""Matrix products of a trace beside what the device usually reaches."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.case import fact_us
from meshwright.diagnose.device import device_named
from meshwright.hardware.efficiency import matmul_s

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Matmuls, MatmulShape, Rank
    from meshwright.hardware.cluster import Gpu

BELOW = 0.6  # of the usual rate: tables of two libraries differ by some 20 %
ALIGNED = 8  # elements of 16 bits: tensor cores read 16 bytes at once
UNFUSED = 0.05  # of the step: MOD903 speaks of attention's products
FEW_ROWS = 128  # of a product: one tile; below it most of the device has nothing to do
FEW_REACH = 0.5  # of the rate of the trace's large products
LARGE = 64  # a dimension below it is small by nature (a batch, a head), not misaligned
PRECISIONS = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowProduct:
    """A shape that takes longer than usual; `excess_us` of one step."""

    shape: MatmulShape
    usual_tflops: float
    excess_us: float
    device: str


def device_of(case: Case) -> Gpu | None:
    """The device that the plan or the traces name."""
    if case.job is not None:
        return case.job.cluster.gpu
    return next((g for r in case.ranks if (g := device_named(r.gpu))), None)


def slow_products(case: Case) -> list[SlowProduct]:
    """Aligned shapes below the usual rate, of the first rank whose shapes were recorded."""
    gpu = device_of(case)
    rank = next((r for r in case.ranks if r.gemm and r.gemm.shapes), None)
    if gpu is None or rank is None or rank.gemm is None or rank.computes_on != "device":
        return []
    found = (
        _below(case, rank, gpu, shape)
        for shape in _judged(case, rank.gemm)
        if not is_misaligned(shape)
    )
    return [f for f in found if f is not None]


def _judged(case: Case, products: Matmuls) -> list[MatmulShape]:
    """Shapes that a rule may speak of: not those that fused attention would do away with."""
    unfused = fact_us(case, "unfused_attention_us") or 0.0
    if case.of_step(unfused) < UNFUSED:
        return list(products.shapes)
    return [s for s in products.shapes if "bmm" not in s.op]


def _below(case: Case, rank: Rank, gpu: Gpu, shape: MatmulShape) -> SlowProduct | None:
    usual_s = usual_product_s(gpu, shape)
    own_s = shape.kernel_us / 1e6 / max(1, shape.count)
    if usual_s is None or own_s <= 0 or usual_s >= BELOW * own_s:
        return None
    excess_us = shape.kernel_us * (1 - usual_s / own_s) * _a_step(case, rank)
    return SlowProduct(
        shape=shape,
        usual_tflops=shape.tflops * own_s / usual_s,
        excess_us=excess_us,
        device=gpu.name,
    )


def usual_product_s(gpu: Gpu, shape: MatmulShape) -> float | None:
    """Seconds of a product on the device by its measured curve; None for a type without one."""
    name = shape.dtype.rpartition("::")[2].lower()
    if name not in PRECISIONS:
        return None
    precision = PRECISIONS[name]
    if precision == "fp32" and "tf32" in gpu.peak_flops:
        precision = "tf32"
    one = matmul_s(gpu, precision, shape.m, shape.n, shape.k)
    return float(one) * max(1, shape.batch)


def _a_step(case: Case, rank: Rank) -> float:
    """What turns a sum over the whole trace into one of a step."""
    span = rank.gpu_span.window_us if rank.gpu_span else 0.0
    window = rank.attribution.window_us if rank.attribution else 0.0
    return case.step_us / max(span, window) if max(span, window) else 0.0


def few_rows_us(case: Case) -> tuple[float, MatmulShape | None]:
    """Time of a step that products of few rows would save at the rate of large ones; the worst."""
    rank = next((r for r in case.ranks if r.gemm and r.gemm.shapes), None)
    if rank is None or rank.gemm is None:
        return 0.0, None
    shapes = _judged(case, rank.gemm)
    usual = median([s.tflops for s in shapes if min(s.m, s.n, s.k) > FEW_ROWS] or [0.0])
    few = [s for s in shapes if min(s.m, s.n) <= FEW_ROWS and s.tflops < FEW_REACH * usual]
    if not few or not usual:
        return 0.0, None
    saved = sum(s.kernel_us * (1 - s.tflops / usual) for s in few)
    return saved * _a_step(case, rank), max(few, key=lambda s: s.kernel_us)


def is_misaligned(shape: MatmulShape) -> bool:
    """Whether a dimension that is contiguous in memory, and of some size, is no multiple of 8."""
    return any(d > LARGE and d % ALIGNED for d in (shape.n, shape.k))


def misaligned_us(case: Case) -> float:
    """Time of a step that misaligned products would save at the median rate of the aligned ones."""
    rank = next((r for r in case.ranks if r.gemm and r.gemm.shapes), None)
    if rank is None or rank.gemm is None:
        return 0.0
    shapes = _judged(case, rank.gemm)
    usual = median([s.tflops for s in shapes if not is_misaligned(s)] or [0.0])
    slow = [s for s in shapes if is_misaligned(s) and s.tflops < usual]
    saved = sum(s.kernel_us * (1 - s.tflops / usual) for s in slow) if usual else 0.0
    return saved * _a_step(case, rank)
