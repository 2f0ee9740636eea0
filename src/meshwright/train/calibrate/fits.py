"""From measured times to the curves of `hardware.curves` and `hardware.measured`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware import curves
from meshwright.hardware.measured import OperatorCurve, Piece
from meshwright.train.calibrate.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.train.calibrate.kernels import Attended, Product
    from meshwright.train.calibrate.links import Moved, Unit
    from meshwright.train.calibrate.pieces import Passes

PADDING = (1e-3, 4096.0)  # bounds of what pads a dimension
SHARE = (1e-3, 4.0)
LAUNCH_S = (1e-8, 1e-2)
FLASH_BACKWARD = 2.5  # backward FLOPs of fused attention against its forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A curve and the median relative error of its points."""

    curve: Any
    error: float


def peak_flops_per_s(products: Sequence[Product]) -> float:
    """The highest rate that any product reached."""
    return max(2.0 * p.m * p.n * p.k / p.seconds for p in products)


def matmul(products: Sequence[Product], roof: curves.Roof, *, width_bytes: float) -> Fitted:
    """The curve of one precision; products are written as wide as their operands."""
    m, n, k, seconds = _columns(products, ("m", "n", "k", "seconds"))

    def curve(values: Mapping[str, float]) -> curves.MatmulCurve:
        return curves.MatmulCurve(**values, output_bytes=width_bytes)

    def seconds_of(values: Mapping[str, float]) -> Any:
        return curves.matmul_s(curve(values), roof, m, n, k, operand_bytes=width_bytes)

    padding = dict.fromkeys(("m0", "n0", "k0"), 4.0)
    bounds = {"launch_s": LAUNCH_S, "rate": SHARE, "memory": SHARE}
    bounds |= dict.fromkeys(padding, PADDING)
    starts = (
        {"launch_s": 3e-6, "rate": rate, "memory": memory, **padding}
        for rate in (0.8, 0.95)
        for memory in (0.3, 1.0)
    )
    tried = [fit(seconds_of, seconds, start=start, bounds=bounds) for start in starts]
    found = min(tried, key=lambda one: one.error)
    return Fitted(curve=curve(found.parameters), error=found.error)


def attention(points: Sequence[Attended], roof: curves.Roof) -> Fitted:
    """The forward curve, and what the backward pass takes against it."""
    b, h, kv, tokens, d = _columns(points, ("batch", "heads", "kv_heads", "tokens", "head_dim"))
    forward, backward = _columns(points, ("forward_s", "backward_s"))

    def curve(values: Mapping[str, float]) -> curves.AttentionCurve:
        return curves.AttentionCurve(**values, backward=1.0)

    def seconds_of(values: Mapping[str, float]) -> Any:
        return curves.attention_forward_s(
            curve(values),
            roof,
            rows=b * h * tokens,
            keys=tokens,
            head_dim=d,
            kv_rows=b * kv * tokens,
            causal=True,
        )

    found = fit(
        seconds_of,
        forward,
        start={"launch_s": 1e-5, "rate": 0.5, "rows0": 64.0, "keys0": 16.0, "head_dim0": 16.0},
        bounds={
            "launch_s": LAUNCH_S,
            "rate": SHARE,
            "rows0": (1e-3, 1e6),
            "keys0": PADDING,
            "head_dim0": (1e-3, 512.0),
        },
    )
    share = float(np.median(FLASH_BACKWARD * seconds_of(found.parameters) / backward))
    made = curves.AttentionCurve(**found.parameters, backward=share)
    return Fitted(curve=made, error=found.error)


def tiled_share(points: Sequence[Attended]) -> float:
    """Speed of attention over tiles, which context parallelism uses, against the fused one."""
    forward, backward, tiled = _columns(points, ("forward_s", "backward_s", "tiled_s"))
    return float(np.median((forward + backward) / tiled))


def piece(points: Sequence[Passes]) -> Piece:
    """Both passes of one piece, as they were timed."""
    elements = tuple(float(p.elements) for p in points)
    return Piece(
        forward=OperatorCurve(elements=elements, seconds=tuple(p.forward_s for p in points)),
        backward=OperatorCurve(elements=elements, seconds=tuple(p.backward_s for p in points)),
    )


def collective(points: Sequence[Moved], kind: str, rate_bytes_per_s: float) -> Fitted:
    """One collective over all sizes of tensor and group."""
    mine = [p for p in points if p.kind == kind]
    size, total, seconds = _columns(mine, ("size", "total_bytes", "seconds"))
    moved = total * curves.traffic(kind, size, in_network_reduction=False)

    def seconds_of(values: Mapping[str, float]) -> Any:
        return curves.collective_s(
            _collective(values), rate_bytes_per_s, moved_bytes=moved, size=size
        )

    grows = kind != "send" and len(set(size.tolist())) > 1
    start = {"launch_s": float(min(seconds)), "rate": 1.0, "ramp_s": 1e-5}
    bounds = {"launch_s": (1e-7, 1.0), "rate": (1e-4, 100.0), "ramp_s": (1e-9, 1e-1)}
    if grows:
        start, bounds = start | {"step_s": 1e-5}, bounds | {"step_s": (1e-9, 1.0)}
    found = fit(seconds_of, seconds, start=start, bounds=bounds)
    return Fitted(curve=_collective(found.parameters), error=found.error)


def _collective(values: Mapping[str, float]) -> curves.CollectiveCurve:
    return curves.CollectiveCurve(**({"step_s": 0.0} | dict(values)))


def unit(
    points: Sequence[Unit], name: str, *, kind: str, size: int, rate_bytes_per_s: float
) -> Fitted:
    """Gathering or reducing by FSDP2 as a collective, without its launch."""
    elements, seconds = _columns(points, ("parameters", name))
    moved = 4.0 * elements * curves.traffic(kind, float(size), in_network_reduction=False)

    def seconds_of(values: Mapping[str, float]) -> Any:
        return values["launch_s"] + moved / (rate_bytes_per_s * values["rate"])

    found = fit(
        seconds_of,
        seconds,
        start={"launch_s": float(min(seconds)), "rate": 1.0},
        bounds={"launch_s": (1e-7, 1.0), "rate": (1e-4, 100.0)},
    )
    made = curves.CollectiveCurve(
        launch_s=0.0, step_s=0.0, rate=found.parameters["rate"], ramp_s=0.0
    )
    return Fitted(curve=made, error=found.error)


def speedup(alone: Mapping[Any, float], busy: Mapping[Any, float]) -> float:
    """How much faster what both timed was alone, in the median; never slower."""
    both = alone.keys() & busy.keys()
    return max(float(np.median([busy[key] / alone[key] for key in both])), 1.0)


def _columns(points: Sequence[Any], names: tuple[str, ...]) -> list[Any]:
    return [np.array([getattr(p, name) for p in points], dtype=float) for name in names]
