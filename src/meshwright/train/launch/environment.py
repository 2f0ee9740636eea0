"""Environment variables of agent and ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.train.launch.dumps import recorder_environment
from meshwright.train.watch.heart import VARIABLE as BEATS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def rank_environment(
    inherited: Mapping[str, str],
    own: Mapping[str, str],
    *,
    ranks: int,
    nodes: int,
    log_folder: Path,
) -> dict[str, str]:
    """What is inherited, over it what ranks need, over it `own`.

    Without TORCH_DISABLE_SHARE_RDZV_TCP_STORE ranks that start again find the addresses of dead
    ones in the agent's store and hang (pytorch issues 135712, 167288).
    """
    preferred = {
        "OMP_NUM_THREADS": str(threads_per_rank(ranks)),
        "TOKENIZERS_PARALLELISM": "false",  # its threads do not survive a fork
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",  # a lost peer ends the rank
        **recorder_environment(log_folder),
    }
    if nodes == 1:
        preferred["GLOO_SOCKET_IFNAME"] = "lo" if os.path.exists("/sys/class/net/lo") else "lo0"
    needed = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", BEATS: str(log_folder / "beats")}
    return preferred | dict(inherited) | needed | dict(own)


def threads_per_rank(ranks: int, *, cores: int | None = None) -> int:
    """Cores that this process may use, shared out; at least 1."""
    return max(1, (usable_cores() if cores is None else cores) // ranks)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
