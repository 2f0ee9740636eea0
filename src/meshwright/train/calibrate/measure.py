"""All measurements of a machine in order, each on forked ranks of its own."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import transformers

from meshwright.base.noun import dataclass
from meshwright.hardware.cluster import Cluster, Gpu, Host, Link
from meshwright.hardware.curves import Roof
from meshwright.hardware.measured import Alone, Curves, MemoryCurve, Overheads
from meshwright.train.calibrate import fits, hosts, kernels, links, pieces
from meshwright.train.calibrate.machine import Machine, machine_of
from meshwright.train.calibrate.overheads import overheads
from meshwright.train.calibrate.timing import Clock
from meshwright.train.local import run_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.hardware.curves import CollectiveCurve
    from meshwright.train.calibrate.hosts import Step
    from meshwright.train.calibrate.links import Moved, Unit

    Progress = Callable[[str], None]

LIMIT_S = 600.0  # of one group of measurements: far more than it takes
WIDTHS = {"fp32": 4.0, "bf16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What one rank measured on its own device."""

    products: Mapping[str, Sequence[kernels.Product]]
    attentions: Mapping[str, Sequence[kernels.Attended]]
    pieces: Mapping[str, Sequence[pieces.Passes]]
    copy_bytes_per_s: float
    empty_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What the ranks measured together."""

    collectives: Sequence[Moved]
    sharded: Sequence[Unit]
    replicated: Sequence[Unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The measured machine as a cluster, and the median error of each curve on its own points."""

    cluster: Cluster
    machine: Machine
    errors: Mapping[str, float]


def calibrate(
    *, device: str, ranks: int | None, quick: bool, progress: Progress = lambda _: None
) -> Calibrated:
    """Measures this machine; a minute or two, a third of it with `quick`.

    Raises MeshwrightError where the device or enough of it is not there, or a rank fails.
    """
    machine = machine_of(device, ranks)
    progress(f"{machine.name}: {machine.ranks} ranks of {machine.threads} threads")
    progress(f"kernels on {machine.ranks} ranks at once")
    busy = _on_ranks(machine, machine.ranks, kernels_here, device, _precisions(device), quick)
    alone = busy
    if machine.ranks > 1:
        progress("kernels on one rank while the others rest")
        alone = _on_ranks(machine, 1, kernels_here, device, ("fp32",), True)
    moved: list[Links] = []
    if machine.ranks > 1:
        progress("collectives")
        moved = _on_ranks(machine, machine.ranks, links_here, device, quick)
    cluster, errors = _cluster(machine, busy[0], alone[0], moved)
    progress("what the software costs by step, layer and axis")
    found = {
        axis: _on_ranks(machine, ranks_of, steps_here, device, axis, quick)[0]
        for axis, ranks_of in _axes(machine)
    }
    known = Overheads(
        host_serial=machine.device == "cpu",
        attention_cp=fits.tiled_share(busy[0].attentions["fp32"]),
    )
    host = overheads(found, cluster, known=known)
    return Calibrated(cluster=replace(cluster, overheads=host), machine=machine, errors=errors)


# On a rank


def kernels_here(device: str, precisions: tuple[str, ...], quick: bool) -> Kernels:
    """Everything that a rank does alone; all ranks of the world do it at once."""
    device = _own_device(device)
    clock = Clock(device=device, samples=3, budget_s=0.01 if quick else 0.03)
    main = torch.float32 if device == "cpu" else torch.bfloat16
    kernels.settle(device)
    return Kernels(
        products={p: kernels.products(clock, p, quick=quick) for p in precisions},
        attentions={p: kernels.attentions(clock, p, quick=quick) for p in precisions},
        pieces=pieces.pieces(clock, main, quick=quick),
        copy_bytes_per_s=pieces.copy_bytes_per_s(clock),
        empty_s=pieces.empty_kernel_s(clock),
    )


def links_here(device: str, quick: bool) -> Links:
    """Everything that ranks do with each other."""
    clock = Clock(device=_own_device(device), samples=4 if quick else 8, budget_s=0.02, local=False)
    return Links(
        collectives=links.collectives(clock, quick=quick),
        sharded=links.units(clock, quick=quick),
        replicated=links.units(clock, quick=quick, replicated=True),
    )


def steps_here(device: str, axis: str, quick: bool) -> list[Step]:
    """Small steps of one axis."""
    clock = Clock(
        device=_own_device(device),
        samples=4 if quick else 8,
        budget_s=0.1 if quick else 0.4,
        local=axis == "one",
    )
    counts = (4, 12) if axis == "pp" else (1,)
    return hosts.steps(clock, hosts.plans()[axis], counts)


def _own_device(device: str) -> str:
    """The device of this rank, made the current one."""
    if device == "cuda":
        torch.cuda.set_device(torch.distributed.get_rank())
    return device


# From what they found


def _on_ranks(machine: Machine, ranks: int, function: Callable[..., Any], *given: Any) -> Any:
    return run_ranks(
        function,
        ranks,
        *given,
        timeout_s=LIMIT_S,
        backend=machine.backend,
        threads=machine.threads,
    )


def _precisions(device: str) -> tuple[str, ...]:
    """What training on the device computes in."""
    if device == "cpu" and not _has_bf16():
        return ("fp32",)
    return ("fp32", "bf16")


def _has_bf16() -> bool:
    """Whether the processor multiplies bf16; emulated products say nothing."""
    capabilities = torch.backends.cpu.get_cpu_capability()
    probe = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return "AVX512" in capabilities and bool(probe and probe())


def _axes(machine: Machine) -> list[tuple[str, int]]:
    """Axes to try, with their ranks."""
    return [("one", 1)] + [(a, 2) for a in ("tp", "cp", "fsdp", "pp") if machine.ranks > 1]


def _cluster(
    machine: Machine, busy: Kernels, alone: Kernels, moved: Sequence[Links]
) -> tuple[Cluster, dict[str, float]]:
    """The machine with curves, without overheads."""
    errors: dict[str, float] = {}
    peaks = {name: fits.peak_flops_per_s(found) for name, found in busy.products.items()}
    roofs = {
        name: Roof(flops_per_s=peak, bytes_per_s=busy.copy_bytes_per_s)
        for name, peak in peaks.items()
    }
    curves = _curves(machine, busy, alone, roofs, errors)
    gpu = Gpu(
        name=machine.name,
        generation=machine.device,
        memory_bytes=machine.memory_bytes,
        memory_bytes_per_s=busy.copy_bytes_per_s,
        peak_flops=peaks,
        curves=curves,
        source=curves.source,
        date=curves.date,
    )
    cluster = Cluster(
        gpu=gpu,
        num_gpus=machine.ranks,
        gpus_per_node=machine.ranks,
        links=(_link(machine, busy, moved, errors),),
        host=Host(memory_bytes=machine.host_bytes, cores=machine.cores),
        name=f"{machine.ranks} ranks of {machine.threads} threads on {machine.name}",
    )
    return cluster, errors


def _curves(
    machine: Machine,
    busy: Kernels,
    alone: Kernels,
    roofs: Mapping[str, Roof],
    errors: dict[str, float],
) -> Curves:
    matmuls, attentions, made = {}, {}, {}
    for name, roof in roofs.items():
        product = fits.matmul(busy.products[name], roof, width_bytes=WIDTHS[name])
        fused = fits.attention(busy.attentions[name], roof)
        matmuls[name], attentions[name] = product.curve, fused.curve
        errors |= {f"matmul.{name}": product.error, f"attention.{name}": fused.error}
    for name, points in busy.pieces.items():
        made[name] = fits.piece(points)
    return Curves(
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        source=f"meshwright calibrate: torch {torch.__version__}, transformers "
        f"{transformers.__version__}, {machine.backend}, {machine.ranks} ranks of "
        f"{machine.threads} threads",
        ranks=machine.ranks,
        threads=machine.threads,
        matmul=matmuls,
        attention=attentions,
        memory=MemoryCurve(launch_s=busy.empty_s, memory=1.0),
        pieces=made,
        piece_bytes=4 if machine.device == "cpu" else 2,
        alone=_alone(busy, alone),
    )


def _alone(busy: Kernels, alone: Kernels) -> Alone:
    """How much faster the same calls were while other ranks rested."""
    if alone is busy:
        return Alone()
    return Alone(
        matmul=fits.speedup(_products(alone), _products(busy)),
        attention=fits.speedup(_attentions(alone), _attentions(busy)),
        memory=fits.speedup(_pieces(alone), _pieces(busy)),
    )


def _products(found: Kernels) -> dict[Any, float]:
    return {(p.m, p.n, p.k): p.seconds for p in found.products["fp32"]}


def _attentions(found: Kernels) -> dict[Any, float]:
    return {
        (p.batch, p.heads, p.tokens, p.head_dim): p.forward_s + p.backward_s
        for p in found.attentions["fp32"]
    }


def _pieces(found: Kernels) -> dict[Any, float]:
    return {
        (name, p.elements): p.forward_s + p.backward_s
        for name, points in found.pieces.items()
        for p in points
    }


def _link(
    machine: Machine, busy: Kernels, moved: Sequence[Links], errors: dict[str, float]
) -> Link:
    """The memory or bus that joins the ranks."""
    kind = "memory" if machine.device == "cpu" else "nvlink"
    name = f"{machine.backend} inside one machine"
    if not moved:
        return Link(
            name=name, kind=kind, domain=1, bytes_per_s=busy.copy_bytes_per_s, latency_s=1e-6
        )
    points = moved[0].collectives
    rate = max(p.total_bytes / p.seconds for p in points if p.kind == "send")
    found: dict[str, CollectiveCurve] = {}
    for what in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"):
        fitted = fits.collective(points, what, rate)
        found[what], errors[f"collectives.{what}"] = fitted.curve, fitted.error
    for what, fitted in _units(machine, moved[0], rate).items():
        found[what], errors[f"collectives.{what}"] = fitted.curve, fitted.error
    return Link(
        name=name,
        kind=kind,
        domain=machine.ranks,
        bytes_per_s=rate,
        latency_s=found["send"].launch_s,
        curves=found,
    )


def _units(machine: Machine, moved: Links, rate: float) -> dict[str, fits.Fitted]:
    """FSDP2's transfers, without the launch of each."""
    size = machine.ranks
    return {
        "gather_parameters": fits.unit(
            moved.sharded, "gather_s", kind="all_gather", size=size, rate_bytes_per_s=rate
        ),
        "reduce_gradients": fits.unit(
            moved.sharded, "reduce_s", kind="reduce_scatter", size=size, rate_bytes_per_s=rate
        ),
        "all_reduce_gradients": fits.unit(
            moved.replicated, "reduce_s", kind="all_reduce", size=size, rate_bytes_per_s=rate
        ),
    }
