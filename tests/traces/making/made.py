"""The made traces that are kept in the repository, in `tests/traces/made`.

`python -m making.made` (in tests/traces) writes them anew; a test holds them equal to what the
makers make. Each folder is a run, each file a rank of it.
"""

from __future__ import annotations

from pathlib import Path

from making.run import write_run
from making.spec import Spec

FOLDER = Path(__file__).resolve().parents[1] / "made"
SHORT = {"layers": 2, "micro_batches": 2, "steps": 2, "gz": True}

MADE = {
    "one-rank-2021": Spec(era="2021", layers=1, micro_batches=1, steps=2, gz=True),
    "dp2-2023": Spec(era="2022", dp=2, layers=1, micro_batches=1, steps=2, gz=True),
    "dp2-2024-04": Spec(era="2024-04", dp=2, layers=1, micro_batches=1, steps=2, gz=True),
    "dp2-mi300x-2024-05": Spec(
        era="2024-05", gpu="mi300x", dp=2, layers=1, micro_batches=1, steps=2, gz=True
    ),
    "tp2-pp2-dp2-straggler": Spec(tp=2, pp=2, dp=2, slow_rank=5, **SHORT),
    "cp2-dp2-titan-2026": Spec(cp=2, dp=2, era="2026", descriptions="torchtitan", **SHORT),
    "dp2-ep2-deepep": Spec(
        dp=2, ep=2, experts=4, moe_kernels="deepep", expert_imbalance=2, **SHORT
    ),
    "fsdp4-two-hosts": Spec(
        dp=4, sharded=True, ranks_per_host=2, clock_shift_us=(0.0, 1234.5), **SHORT
    ),
    "slow-loader": Spec(loader_us=30_000, loader_workers=0, **SHORT),
    "cuda-graphs": Spec(cuda_graphs=True, **SHORT),
    "stacks-and-memory": Spec(with_stack=True, profile_memory=True, preprocess_us=20_000, **SHORT),
    "truncated": Spec(truncated=0.6, layers=1, micro_batches=1, steps=2, gz=True),
    "bare-array": Spec(text="array", layers=1, micro_batches=1, steps=1, gz=True),
    "gpu-only": Spec(gpu_only=True, layers=1, micro_batches=1, steps=1, gz=True),
}


def write_all(folder: Path = FOLDER) -> None:
    """Writes every run into a folder of its name."""
    for name, spec in MADE.items():
        write_run(spec, folder / name)


if __name__ == "__main__":
    write_all()
