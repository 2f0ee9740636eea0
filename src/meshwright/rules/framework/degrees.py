"""Degrees that several frameworks' demands compute from what a configuration states."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.frameworks.knobs import Knobs


def degree(k: Knobs, name: str) -> int:
    """A degree of the mesh; one that is not stated, 0 or -1 counts as 1."""
    return max(int(k.get(name) or 1), 1)


def data_parallel(k: Knobs) -> int:
    """Ranks that read different data: as stated, or the GPUs left over by tp, pp and cp."""
    stated = k.get("dp")
    if stated is not None:
        return int(stated)
    return max(int(k.num_gpus) // model_ranks(k), 1)


def model_ranks(k: Knobs) -> int:
    """Ranks that work on the same samples, tp * pp * cp (Ulysses counts as cp)."""
    return degree(k, "tp") * degree(k, "pp") * max(degree(k, "cp"), degree(k, "ulysses"))


def runs_deepspeed(k: Knobs) -> bool:
    """Whether DeepSpeed's engine drives the run, rather than being installed beside it."""
    return bool(k.framework.startswith("deepspeed") or k.get("use_deepspeed", False))


def runs_fsdp(k: Knobs) -> bool:
    """Whether accelerate or transformers wrap the model in FSDP."""
    return bool(k.get("use_fsdp", False)) and not runs_deepspeed(k)
