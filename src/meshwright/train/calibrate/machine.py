"""What the machine is called and has, and how many ranks and threads run on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass

MOST_RANKS = 8  # measured at once where nobody says how many
_CPU, _MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One device of each rank: `memory_bytes` is its share of the host's, or the GPU's own."""

    device: str
    name: str
    ranks: int
    threads: int
    cores: int
    host_bytes: float
    memory_bytes: float

    @property
    def backend(self) -> str:
        """Who moves bytes between ranks."""
        return "gloo" if self.device == "cpu" else "nccl"


def machine_of(device: str, ranks: int | None) -> Machine:
    """This machine with so many ranks, by default one to a core or GPU.

    MeshwrightError where there are fewer cores or GPUs than ranks.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = int(cores or 1)
    found = cores if device == "cpu" else _gpus(device)
    chosen = ranks or min(found, MOST_RANKS)
    if chosen > found:
        what = "cores" if device == "cpu" else "GPUs"
        raise MeshwrightError(
            f"{chosen} ranks on {found} {what}: they would wait for each other",
            hint=f"type --ranks {found} or less",
        )
    host_bytes = _host_bytes()
    return Machine(
        device=device,
        name=_cpu_name() if device == "cpu" else torch.cuda.get_device_name(0),
        ranks=chosen,
        threads=max(cores // chosen, 1),
        cores=cores,
        host_bytes=host_bytes,
        memory_bytes=host_bytes / chosen if device == "cpu" else _gpu_bytes(),
    )


def _gpus(device: str) -> int:
    count: int = torch.cuda.device_count()  # asks the driver, makes no context: ranks are forked
    if device != "cuda" or not count:
        raise MeshwrightError(
            f"torch sees no {device} device", hint="type --device cpu, or install torch with CUDA"
        )
    return count


def _gpu_bytes() -> float:
    return float(torch.cuda.get_device_properties(0).total_memory)


def _cpu_name() -> str:
    """The processor's name as the kernel tells it."""
    if _CPU.exists():
        for line in _CPU.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine() or "CPU"


def _host_bytes() -> float:
    """Memory of the machine."""
    if _MEMORY.exists():
        for line in _MEMORY.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemTotal"):
                return float(line.split()[1]) * 1024.0
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
