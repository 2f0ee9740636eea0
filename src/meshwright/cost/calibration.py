"""The few free parameters of the time model, and where they were fitted.

A cluster that `meshwright calibrate` measured brings its own values, see `fits_of`. Otherwise one
data file, `cost/data/calibration.toml`, holds two kinds of tables: `[hardware.<generation>]`, what
a chip and its links reach of their data sheet, and `[stack.<name>]`, what a software stack
(framework and era) makes of them. `meshwright fit` refits both. Nothing is fitted per run, model or
source; a stack that the file does not know gets `default`.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.base.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.hardware.cluster import Cluster
    from meshwright.hardware.measured import Curves, Overheads
    from meshwright.plan.job import Job

MEASURED_STACKS = ("default", "meshwright")  # whose overheads `meshwright calibrate` measures


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFit:
    """Shares of the data sheet that one hardware generation reaches in training.

    `matmul` multiplies the measured kernel curve (clocks and power under sustained load),
    `memory` the HBM rate of memory-bound kernels, `scale_up` and `scale_out` the link rates.
    """

    matmul: float = 0.9
    memory: float = 0.85
    scale_up: float = 0.75
    scale_out: float = 0.75
    fp8: float = 1.0  # further share of the matmul curve for 8-bit and narrower products
    sigma: float = 0.12  # residual scatter of log(measured/predicted) on this generation
    attention: float = 0.0  # the same as `matmul` for fused attention; 0 = as for products

    @property
    def of_attention(self) -> float:
        """Share of the attention curve."""
        return self.attention or self.matmul


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What one software stack makes of the hardware.

    Rates are factors on the hardware's; times are seconds. `overlap_*` is the share of the
    communication that hides behind computation when the plan asks for overlap.
    """

    matmul: float = 1.0  # extra time factor is 1/matmul: casts, layouts, unfused bias
    attention: float = 1.0  # speed of the fused attention kernel against the measured curve
    attention_generation: int = 3  # 2: FlashAttention-2 kernels, slower from Hopper on
    unfused_passes: float = 8.0  # passes over the score matrix, forward, without a fused kernel
    elementwise: float = 1.5  # bytes moved between the products, 1 = every chain fused
    host_layer_s: float = 0.3e-3  # host time to launch one block's forward kernels
    host_tp_s: float = 0.1e-3  # more of it when the block has tensor-parallel collectives
    host_microbatch_s: float = 1.0e-3  # host time of a micro-batch outside the blocks
    host_p2p_s: float = 0.0  # host and synchronisation time of each pipeline hand-over
    host_serial: bool = False  # the host computes itself: its time adds to the kernels'
    host_backward: float = 1.1  # host time of a block's backward against its forward (C++ autograd)
    attention_cp: float = 1.0  # speed of attention over a cut sequence against `attention`
    host_cp_s: float = 0.0  # more host time of a block under context parallelism
    host_fsdp_s: float = 0.0  # host time of gathering or reducing one block's parameters
    host_step_layer_s: float = 0.0  # host time of the optimizer step for one block's tensors
    host_step_sharded_s: float = 0.0  # more of it where they are sharded
    scatter_gather: bool = False  # hand-overs split over tp even without sequence parallelism
    step_s: float = 0.02  # fixed time of a step: optimizer launch, logging, batch hand-over
    straggler: float = 0.01  # slowdown per doubling of nodes
    overlap_tp: float = 0.3
    overlap_dp: float = 0.7
    overlap_fsdp: float = 0.8
    overlap_tax: float = 0.12  # what hidden communication still costs, as a share of itself
    overlap_ep: float = 0.0
    overlap_pp: float = 0.8
    tp_rate: float = 1.0  # efficiency of tensor-parallel collectives against the link's
    dp_rate: float = 1.0
    ep_rate: float = 0.7
    p2p_rate: float = 0.5
    optimizer: float = 0.6  # HBM efficiency of the optimizer step
    fp8_overhead: float = 0.3  # cast and scale passes of 8-bit products, bytes per input byte
    moe_host: float = 2.0  # host time of a routed block against a dense one
    moe_elementwise: float = 1.0  # routing's copies and activations against `elementwise`
    moe_grouped: float = 0.8  # grouped expert products against the dense curve
    reduce_every_microbatch: bool = False  # gradients reduced at each micro-batch without ZeRO
    bucket_bytes: float = 5e8  # gradient bytes per reduction; each pays the latency again
    network_latency: float = 1.0  # latency of a network hop against the fabric's own
    thrash_s: float = 0.0  # seconds a micro-batch loses when the device is nearly full (allocator)
    thrash_share: float = 0.88  # share of the device's memory from which it does
    tp_behind_pp_s: float = 0.0  # host time per block and tp rank when stages span nodes
    p2p_stall_s: float = (
        0.0  # seconds a micro-batch stalls per pipeline neighbor on a crowded network
    )
    p2p_stall_nodes: float = 24.0  # nodes at which half of it is felt
    expert_dedup: bool = True  # one copy of a token per node crosses the network (DeepEP)
    sigma: float = 0.12
    fitted_on: str = ""
    kin: str = ""  # the stack whose values this one starts from


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All fitted parameters; look-ups fall back to `default`."""

    hardware: Mapping[str, HardwareFit]
    stacks: Mapping[str, Stack]

    def hardware_fit(self, generation: str) -> HardwareFit:
        """Parameters of a hardware generation."""
        return self.hardware.get(generation) or self.hardware["default"]

    def stack(self, name: str) -> Stack:
        """Parameters of a software stack."""
        return self.stacks.get(name) or self.stacks["default"]

    def with_values(self, values: Mapping[tuple[str, str, str], float]) -> Calibration:
        """A copy in which (table, entry, parameter) have new values; used by the fit."""
        tables: dict[str, dict[str, Any]] = {
            "hardware": dict(self.hardware),
            "stack": dict(self.stacks),
        }
        for (table, entry, parameter), value in values.items():
            entries = tables[table]
            entries[entry] = replace(entries[entry], **{parameter: value})
        return Calibration(hardware=tables["hardware"], stacks=tables["stack"])


def calibration_from_table(table: Mapping[str, Any]) -> Calibration:
    """Calibration from the parsed TOML; entries inherit from `kin`, then from `default`."""
    return Calibration(
        hardware=_entries(table.get("hardware", {}), HardwareFit),
        stacks=_entries(table.get("stack", {}), Stack),
    )


def _entries(tables: Mapping[str, Mapping[str, Any]], kind: type[Any]) -> dict[str, Any]:
    """Entries by name, each completed from its kin and the default."""
    known = {f.name for f in fields(kind)}
    done: dict[str, Any] = {}

    def build(name: str) -> Any:
        if name not in done:
            own = {k: v for k, v in tables.get(name, {}).items() if k in known}
            kin = own.get("kin") or ("" if name == "default" else "default")
            done[name] = replace(build(kin) if kin else kind(), **own)
        return done[name]

    for name in ("default", *tables):
        build(name)
    return done


def is_measured(job: Job) -> bool:
    """Whether the job's cluster brings measured overheads of the job's software stack."""
    return job.cluster.overheads is not None and job.stack in MEASURED_STACKS


def fits_of(job: Job, calibration: Calibration) -> tuple[HardwareFit, Stack]:
    """What holds for the job: measured on its own cluster where it was, else fitted."""
    cluster = job.cluster
    hardware, stack = calibration.hardware_fit(cluster.gpu.generation), calibration.stack(job.stack)
    if cluster.gpu.curves is not None and cluster.gpu.curves.partial:
        return _partly_measured(hardware, stack, cluster, cluster.gpu.curves)
    if cluster.gpu.curves is not None:
        hardware = _measured_hardware(cluster, cluster.gpu.curves)
    if cluster.gpu.curves is None or cluster.overheads is None or not is_measured(job):
        return hardware, stack
    return hardware, _measured_stack(stack, cluster, cluster.gpu.curves, cluster.overheads)


def _partly_measured(
    hardware: HardwareFit, stack: Stack, cluster: Cluster, curves: Curves
) -> tuple[HardwareFit, Stack]:
    """The fits, but for what traces of a run showed: that is taken as it stands."""
    shares: dict[str, Any] = dict(cluster.shares or {})
    known = {"scale_out": shares.pop("scale_out", hardware.scale_out)}
    if curves.matmul:
        known |= {"matmul": 1.0, "attention": hardware.of_attention}
        known |= {"fp8": 1.0} if "fp8" in curves.matmul else {}
    if curves.attention:
        known |= {"attention": 1.0}
        stack = replace(stack, attention=1.0, attention_generation=3)
    if curves.memory is not None:
        known |= {"memory": 1.0}
    return replace(hardware, **known), replace(stack, **shares)


def _measured_hardware(cluster: Cluster, curves: Curves) -> HardwareFit:
    """The curves as they stand, faster where fewer ranks share the machine than when measured."""
    alone = curves.alone_at(min(cluster.num_gpus, cluster.gpus_per_node))
    whole = dict.fromkeys(("scale_up", "scale_out", "fp8"), 1.0)
    return HardwareFit(matmul=alone.matmul, memory=alone.memory, **whole)


def _measured_stack(stack: Stack, cluster: Cluster, curves: Curves, overheads: Overheads) -> Stack:
    """The measured overheads over a stack without fitted factors."""
    alone = curves.alone_at(min(cluster.num_gpus, cluster.gpus_per_node))
    host = asdict(overheads)
    overlap = host.pop("overlap")
    neutral = dict.fromkeys(("matmul", "tp_rate", "dp_rate", "ep_rate", "p2p_rate"), 1.0)
    hidden = {f"overlap_{axis}": overlap for axis in ("tp", "dp", "fsdp", "ep", "pp")}
    return replace(
        stack,
        **(neutral | hidden | host),
        attention=alone.attention / alone.matmul,
        attention_generation=3,
        optimizer=alone.memory,
        straggler=0.0,
        overlap_tax=0.0,
        network_latency=1.0,
        thrash_s=0.0,
    )


@cache
def default_calibration() -> Calibration:
    """The calibration shipped with the package."""
    path = shipped("meshwright.cost").joinpath("data/calibration.toml")
    return calibration_from_table(tomllib.loads(path.read_text(encoding="utf-8")))
