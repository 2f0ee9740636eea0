"""From ranks to the figures of their machine."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.diagnose.calibrate.beside import beside_plan, coefficients_of
from meshwright.diagnose.calibrate.kernels import (
    FEWEST,
    fit_attention,
    fit_matmul,
    fit_memory,
    precision_of,
)
from meshwright.diagnose.calibrate.merging import all_attention, all_matmuls, all_moved
from meshwright.diagnose.calibrate.noun import Calibration, Coefficient
from meshwright.diagnose.calibrate.transfers import transfers_of, transfers_of_one
from meshwright.diagnose.device import device_named
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.calibrate.kernels import Fitted
    from meshwright.diagnose.calibrate.noun import Transfer
    from meshwright.diagnose.diagnosis import Promise
    from meshwright.diagnose.rank import AttentionShape, MatmulShape, MovedShape, Rank
    from meshwright.hardware.cluster import Gpu
    from meshwright.hardware.curves import AttentionCurve, MatmulCurve
    from meshwright.hardware.measured import MemoryCurve
    from meshwright.plan.job import Job

CLOSE = 0.1  # spread of a fit that can be relied on
POSSIBLE = (0.01, 1.2)  # shares of a peak that fused attention can reach
AXES = ("tp", "cp", "ep", "dp", "dp_shard", "dp_replicate", "pp")


def calibration(
    ranks: Sequence[Rank],
    across: Across | None,
    *,
    gpu: Gpu | None = None,
    job: Job | None = None,
    promises: Sequence[Promise] = (),
) -> Calibration:
    """What the traces say of products, attention, memory and links.

    `gpu` is the device, by default that of the catalogue with the traces' name; its own curves are
    what the measured ones take their form from. A figure rests on ten kernels or collectives at
    least; collectives count where ranks came together, or, of one rank alone, with low confidence.
    With the `job` that ran and its `promises` the kernels between products are measured as well.
    MeshwrightError for a run on CPUs whose plan is for other devices.
    """
    _check_device(ranks, gpu)
    name = _name_of(ranks)
    device = gpu or device_named(name)
    transfers, left = transfers_of(ranks)
    if not transfers and across is None and len(ranks) == 1:
        transfers = transfers_of_one(ranks[0])
    sources = tuple(r.file for r in ranks)
    found = _Found(device, sources)
    found.matmuls(ranks)
    found.attentions(ranks)
    found.memories(ranks)
    beside = beside_plan(ranks, job, promises)
    return Calibration(
        gpu=device,
        gpu_name=name,
        gpus_per_node=_per_node(ranks),
        num_gpus=max((r.world_size or 1 for r in ranks), default=1),
        matmul=found.matmul,
        attention=found.attention,
        memory=found.memory,
        transfers=transfers,
        hidden=_hidden(across),
        beside_plan=beside,
        coefficients=(
            *found.coefficients,
            *coefficients_of(beside, ranks),
            *map(_of_transfer, transfers),
            *_overlaps(across, sources),
        ),
        left=(*found.left, *left),
    )


def _check_device(ranks: Sequence[Rank], gpu: Gpu | None) -> None:
    on_host = any(r.computes_on == "host" for r in ranks)
    if gpu is not None and on_host and gpu.curves is None:
        raise MeshwrightError(
            f"the run computed on CPUs and its plan is for {gpu.name}: they share no figure",
            hint="meshwright calibrate -o this-machine.toml, and a plan with that cluster",
        )


def _name_of(ranks: Sequence[Rank]) -> str:
    named = Counter(r.gpu for r in ranks if r.gpu)
    return named.most_common(1)[0][0] if named else ""


def _per_node(ranks: Sequence[Rank]) -> int:
    """GPUs of a host: those that a file lists, else, where all are here, its ranks; 0 unknown."""
    listed = max((len(r.meta.gpus) for r in ranks), default=0)
    if listed > 1 or any(r.world_size != len(ranks) for r in ranks):
        return listed if listed > 1 else 0
    return max(Counter(r.meta.host for r in ranks if r.meta.host).values(), default=0)


class _Found:
    """Curves of one device, as they come in."""

    def __init__(self, gpu: Gpu | None, sources: tuple[str, ...]) -> None:
        self.gpu, self.sources = gpu, sources
        self.matmul: dict[str, MatmulCurve] = {}
        self.attention: dict[str, AttentionCurve] = {}
        self.memory: MemoryCurve | None = None
        self.coefficients: list[Coefficient] = []
        self.left: list[Left] = []

    def matmuls(self, ranks: Sequence[Rank]) -> None:
        """Products by precision; products of batches are attention that was not fused."""
        by_precision: dict[str, list[MatmulShape]] = {}
        for shape in all_matmuls(ranks):
            precision = precision_of(shape.dtype, tflops=shape.tflops, gpu=self.gpu)
            if shape.batch == 1 and precision:
                by_precision.setdefault(precision, []).append(shape)
        for precision, shapes in by_precision.items():
            fitted = fit_matmul(self.gpu, precision, shapes) if self.gpu else None
            if fitted is None:
                self._leave("matrix products", shapes)
                continue
            self.matmul[precision] = fitted.curve
            self._tell(f"matmul {precision}", fitted, {"share_of_peak": fitted.reached})
            self._tell_shapes(precision, shapes)

    def attentions(self, ranks: Sequence[Rank]) -> None:
        """Fused attention by precision, taken for causal as in every decoder."""
        by_precision: dict[str, list[AttentionShape]] = {}
        for shape in all_attention(ranks):
            precision = precision_of(shape.dtype, tflops=0.0, gpu=self.gpu)
            if precision:
                by_precision.setdefault(precision, []).append(shape)
        for precision, shapes in by_precision.items():
            fitted = self.gpu and fit_attention(self.gpu, precision, shapes, causal=True)
            if not fitted or not POSSIBLE[0] <= fitted.reached <= POSSIBLE[1]:
                self._leave("fused attention", shapes, impossible=bool(fitted))
                continue
            self.attention[precision] = fitted.curve
            note = "a causal mask is taken for granted: traces do not record masks"
            self._tell(f"attention {precision}", fitted, {"share_of_peak": fitted.reached}, note)

    def memories(self, ranks: Sequence[Rank]) -> None:
        """Elementwise kernels."""
        shapes = all_moved(ranks)
        fitted = fit_memory(self.gpu, shapes) if self.gpu and shapes else None
        if fitted is None:
            self._leave("elementwise operators", shapes)
            return
        self.memory = fitted.curve
        self._tell("memory", fitted, {"share_of_rate": fitted.reached})

    def _tell(self, what: str, fitted: Fitted, values: dict[str, float], note: str = "") -> None:
        confidence = "high" if fitted.spread <= CLOSE and not note else "medium"
        self.coefficients.append(
            Coefficient(
                what=what,
                values=values,
                points=fitted.points,
                spread=fitted.spread,
                confidence=confidence,
                sources=self.sources,
                note=note,
            )
        )

    def _tell_shapes(self, precision: str, shapes: Sequence[MatmulShape]) -> None:
        """Each shape by itself: a curve is one line through them."""
        peak = self.gpu.peak_flops.get(precision, 0.0) if self.gpu else 0.0
        for s in shapes:
            if s.count >= FEWEST:
                share = s.tflops * 1e12 / peak if peak else 0.0
                self.coefficients.append(
                    Coefficient(
                        what=f"{s.op.removeprefix('aten::')} {precision} {s.m} x {s.n} x {s.k}",
                        values={"tflops": s.tflops, "share_of_peak": share},
                        points=s.count,
                        spread=0.0,
                        confidence="high",
                        sources=self.sources,
                    )
                )

    def _leave(
        self,
        what: str,
        shapes: Sequence[MatmulShape | AttentionShape | MovedShape],
        *,
        impossible: bool = False,
    ) -> None:
        if not shapes:
            return
        reason = f"fewer than {FEWEST} kernels that are large enough"
        if impossible:
            reason = "no kernel is as fast or as slow: the recorded sizes are not those of heads"
        if self.gpu is None:
            reason = "the device is in no catalogue: shares of its peak are not known"
        self.left.append(
            Left(
                what=f"{what} that calibrate no curve",
                count=sum(s.count for s in shapes),
                time_us=sum(s.kernel_us for s in shapes),
                reason=reason,
            )
        )


def _hidden(across: Across | None) -> dict[str, float]:
    """The share of transfers that computation hid, by axis."""
    return {
        a.axis: round(1.0 - a.exposed_transfer_us / a.transfer_us, 6)
        for a in (across.axes if across else ())
        if a.axis in AXES and a.transfer_us and a.exposed_transfer_us is not None
    }


def _overlaps(across: Across | None, sources: tuple[str, ...]) -> list[Coefficient]:
    calls = {a.axis: a.calls for a in (across.axes if across else ())}
    return [
        Coefficient(
            what=f"overlap {axis}",
            values={"hidden": share},
            points=round(calls[axis]),
            spread=0.0,
            confidence="medium",
            sources=sources,
        )
        for axis, share in _hidden(across).items()
    ]


def _of_transfer(transfer: Transfer) -> Coefficient:
    places = {None: "", 1: " within a node"}
    where = places.get(transfer.nodes, f" over {transfer.nodes} nodes")
    note = "" if transfer.confidence != "low" else "of one rank alone: may contain waits"
    return Coefficient(
        what=f"{transfer.kind} of {transfer.size} ranks{where}, {transfer.bytes:.0f} B",
        values={"us": transfer.seconds * 1e6, "GBps": transfer.bytes / transfer.seconds / 1e9},
        points=transfer.points,
        spread=transfer.spread,
        confidence=transfer.confidence,
        sources=transfer.sources,
        note=note,
    )
