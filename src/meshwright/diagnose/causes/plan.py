"""Causes that only show beside a plan: terms that take longer than it promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_bytes
from meshwright.diagnose.causes.exposed import DATA_PARALLEL, exposed_us, overlapped_share, part_of
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.promises import SLOWER, promises
from meshwright.diagnose.causes.proofs import of_collectives, of_kernels, of_ranks, some, time
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Promise

LITTLE = 0.03
_BASIS = "the plan's prediction, docs/concepts/time.md"
_CALIBRATE = "meshwright diagnose TRACES --calibrate -o cluster.toml"
MEMORY_OVER = 1.1  # measured peak over the predicted one


def _exceeded(case: Case, term: str) -> Promise | None:
    """The promise of a term, if the measurement is beyond it by more than teams differ by."""
    found = next(
        (p for p in case.evidence.promises or promises(case.evidence) if p.term == term), None
    )
    if found is None or not found.predicted_s or found.measured_s is None:
        return None
    return found if found.measured_s > SLOWER * found.predicted_s else None


def _over(case: Case, term: str) -> tuple[Promise, float] | None:
    """The promise, and what of a step lies above it, where that is worth a word."""
    found = _exceeded(case, term)
    if found is None or found.measured_s is None:
        return None
    us = 1e6 * (found.measured_s - found.predicted_s)
    return (found, us) if case.of_step(us) >= LITTLE else None


def _words(promise: Promise) -> str:
    took = time(1e6 * (promise.measured_s or 0.0))
    return f"{took} a step, {time(1e6 * promise.predicted_s)} were predicted"


@cause(
    "CMP920",
    "Matrix products and attention take longer than planned",
    kind="compute resources",
    source=_BASIS,
    needs=("ranks", "job"),
    said_by=("CMP902", "CMP903", "CMP904", "CMP906", "MOD903", "MOD908", "MOD912"),
    deviation=True,
)
def products_over_plan(case: Case) -> Found | None:
    """The kernels that the plan knows best take at least 1.15 times what it predicts.

    Shown by: the sum of their classes beside the prediction's terms. Costs: the excess.
    Do: check clocks, types and shapes; if the device is well, calibrate the prediction on it.
    """
    found = _over(case, "time.compute.matmul + attention + recompute")
    if found is None:
        return None
    promise, us = found
    return Found(
        message=f"Matrix products and attention: {_words(promise)}.",
        proofs=(of_kernels(case, "gemm", "attention"),),
        lever=lever(case, "check clocks, types and shapes, or calibrate", command=_CALIBRATE),
        takes_us={"compute": us},
        confidence="medium",
    )


@cause(
    "MOD920",
    "Memory-bound kernels take longer than planned",
    kind="model structure",
    source=_BASIS,
    needs=("ranks", "job"),
    said_by=("MOD902", "MOD903", "MOD909", "MOD910", "MOD911"),
    deviation=True,
)
def elementwise_over_plan(case: Case) -> Found | None:
    """Norms, activations, rotary embedding and optimizer take at least 1.15 times the prediction.

    Shown by: the sum of their classes beside the prediction's terms. Costs: the excess. The stack
    fuses less than the one that the prediction was fitted to. Do: torch.compile, fused kernels.
    """
    found = _over(case, "time.compute.elementwise + optimizer")
    if found is None:
        return None
    promise, us = found
    return Found(
        message=f"Memory-bound kernels: {_words(promise)}.",
        proofs=(of_kernels(case, "elementwise", "norm", "copy_layout", "optimizer"),),
        lever=lever(case, "fuse what the plan takes for fused", changes={"compile": True}),
        takes_us={"compute": us},
        confidence="medium",
    )


@cause(
    "COM920",
    "Less communication is hidden than planned",
    kind="communication",
    source=_BASIS,
    needs=("ranks", "job"),
    said_by=("COM907", "COM908", "COM909", "COM910", "COM911"),
    deviation=True,
)
def overlap_below_plan(case: Case) -> Found | None:
    """Data-parallel communication stands exposed for longer than the plan says.

    Shown by: exposed time of its collectives at least 1.15 times the prediction. Costs: the excess.
    It is an error of the plan unless links or overlap settings are at fault.
    Do: check that the overlap of the plan is switched on in the run; else calibrate.
    """
    found = _over(case, "time.communication.dp + fsdp")
    if found is None:
        return None
    promise, us = found
    us = min(us, exposed_us(case, *DATA_PARALLEL))
    if case.of_step(us) < LITTLE:
        return None
    hidden = overlapped_share(case, *DATA_PARALLEL)
    return Found(
        message=f"Exposed data-parallel communication: {_words(promise)}.",
        proofs=some(
            of_ranks(f"{hidden:.0%} of it runs beside compute", ()) if hidden is not None else None,
            *(of_collectives(case, axis=axis) for axis in DATA_PARALLEL),
        ),
        lever=lever(case, "switch on the overlap that the plan assumes", command=_CALIBRATE),
        takes_us={part_of("dp"): us},
        confidence="medium",
    )


@cause(
    "CMP921",
    "More memory is used than planned",
    kind="compute resources",
    source="docs/concepts/memory.md",
    needs=("memory", "job"),
)
def memory_over_plan(case: Case) -> Found | None:
    """The peak of a snapshot is more than a tenth above the predicted one.

    Shown by: allocated bytes at the peak beside the prediction of the fullest rank. Costs: the room
    that the plan counts on. Do: look at the largest category named here; buffers that live on,
    logits in fp32, graphs kept for another backward.
    """
    if case.job is None:
        return None
    from meshwright.cost.predict import predict

    predicted = predict(case.job).peak_bytes
    worst = max(case.evidence.memory, key=lambda m: m.peak_bytes)
    if worst.peak_bytes < MEMORY_OVER * predicted:
        return None
    most = max(worst.by_category.items(), key=lambda item: item[1], default=("", 0))
    sites = tuple(name for name, _ in worst.by_site[:3])
    text = f"largest category: {most[0]}, {format_bytes(most[1])}" if most[0] else "at the peak"
    proof = of_ranks(text, ())
    return Found(
        message=f"The peak is {format_bytes(worst.peak_bytes)}, {format_bytes(predicted)} were "
        "predicted.",
        proofs=(proof, *(of_ranks(f"allocated at {site}", ()) for site in sites)),
        lever=lever(case, "look at the largest category; free what lives on"),
        takes_us={},
        confidence="medium",
    )
