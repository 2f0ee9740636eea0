"""Several ranks on this machine without torchrun: forked, so that imports are paid once.

A forked rank starts in a tenth of a second where a spawned one imports torch and transformers for
several. Forking is for CPU ranks only: a process that has touched a GPU cannot be forked.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import warnings
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.train.launch.processes import die_with

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

GRACE_S = 2.0  # for the other ranks to tell their own errors once one has failed


class RankFailed(MeshwrightError):  # noqa: N818 - says what happened
    """A rank raised, died or did not answer; `rank`, and `detail` with its traceback."""

    def __init__(self, rank: int, reason: str, *, detail: str = "") -> None:
        self.rank = rank
        self.detail = detail
        super().__init__(f"rank {rank} {reason}")


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *arguments: Any,
    timeout_s: float = 300.0,
    backend: str = "gloo",
    threads: int = 1,
) -> list[Any]:
    """`function(*arguments)` on `world_size` forked ranks with a default group; results by rank.

    `function` need not be importable, results must be picklable (they come from our own children).
    Raises `RankFailed` with the first rank that raised, died or was silent for `timeout_s`.
    """
    import torch._dynamo  # noqa: F401 - every optimizer imports it: once here, not in each rank

    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pairs = [fork.Pipe(duplex=False) for _ in range(world_size)]
        processes: list[BaseProcess] = [
            fork.Process(
                target=_rank,
                args=(rank, world_size, Path(folder) / "store", [s for _, s in pairs]),
                kwargs={
                    "function": function,
                    "arguments": arguments,
                    "backend": backend,
                    "threads": threads,
                },
                daemon=True,
            )
            for rank in range(world_size)
        ]
        for process, (_, sender) in zip(processes, pairs, strict=True):
            _start(process)
            sender.close()
        try:
            return _collect([receiver for receiver, _ in pairs], processes, timeout_s)
        finally:
            _end(processes)


def _start(process: BaseProcess) -> None:
    """Starts a rank; Python 3.12 warns of forking beside threads, which a rank never touches."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
        process.start()


def _rank(
    rank: int,
    world_size: int,
    store: Path,
    senders: list[Connection],
    *,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    backend: str,
    threads: int,
) -> None:
    """One rank: joins the group, runs, sends what came of it, and ends without clean-up."""
    import torch
    import torch.distributed as dist

    from meshwright.train.adapters.meshes import forget_meshes

    forget_meshes()
    if parent := multiprocessing.parent_process():
        die_with(parent.pid or 0)  # a parent that is killed ends nobody by itself
    sender = senders[rank]
    for other in senders[rank + 1 :]:  # else the death of those ranks would go unseen
        other.close()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(threads)
    try:
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=world_size
        )
        answer = (True, function(*arguments))
    except BaseException as error:
        answer = (False, (f"{type(error).__name__}: {error}", traceback.format_exc()))
    sender.send(answer)
    sender.close()
    os._exit(0)  # destroying gloo's groups may wait for peers that have gone


def _collect(
    receivers: list[Connection], processes: list[BaseProcess], timeout_s: float
) -> list[Any]:
    """Every rank's result, or `RankFailed`."""
    results: dict[int, Any] = {}
    failures: dict[int, tuple[str, str]] = {}
    end_s = time.monotonic() + timeout_s
    while len(results) + len(failures) < len(receivers):
        open_ones = {r: i for i, r in enumerate(receivers) if i not in results | failures}
        ready = wait(list(open_ones), timeout=max(end_s - time.monotonic(), 0))
        if not ready:
            break
        for receiver in ready:
            rank = open_ones[receiver]  # type: ignore[index]
            _take(rank, receiver, processes[rank], results, failures)
        if failures:
            end_s = min(end_s, time.monotonic() + GRACE_S)
    if failures:
        rank, (reason, detail) = _first(failures)
        raise RankFailed(rank, reason, detail=detail)
    if len(results) < len(receivers):
        silent = next(i for i in range(len(receivers)) if i not in results)
        raise RankFailed(silent, f"did not answer within {timeout_s:.0f} s")
    return [results[rank] for rank in range(len(receivers))]


def _take(
    rank: int,
    receiver: Any,
    process: BaseProcess,
    results: dict[int, Any],
    failures: dict[int, tuple[str, str]],
) -> None:
    """Notes what a rank sent, or how it died."""
    try:
        done, value = receiver.recv()
    except EOFError:
        process.join(GRACE_S)
        failures[rank] = (f"ended with exit code {process.exitcode}", "")
        return
    if done:
        results[rank] = value
    else:
        failures[rank] = (f"raised {value[0]}", value[1])


def _first(failures: dict[int, tuple[str, str]]) -> tuple[int, tuple[str, str]]:
    """The failure that is the cause: one whose error is not that a peer has gone."""
    lost = ("Connection reset", "Connection closed", "connectFullMesh", "Broken pipe")
    causes = {r: f for r, f in failures.items() if not any(word in f[0] for word in lost)}
    return min((causes or failures).items())


def _end(processes: list[BaseProcess]) -> None:
    """Ends whatever still runs."""
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()
