"""What the contenders of benchmarks/train.py share: turns over stdin, batches, the recipe.

A contender calls `Turns.tick` before every step. It then waits, when its turn is over, for the next
line on stdin, which says how many steps the next turn has; behind the turn it prints one line of
JSON with wall and CPU seconds (of all its ranks, idle times included) and losses.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO, Any

BEGAN_S = time.perf_counter()


class Case:
    """What is trained: model folder, rows, recipe; as the driver wrote it."""

    def __init__(self, path: str) -> None:
        self.known: dict[str, Any] = json.loads(Path(path).read_text())

    def __getattr__(self, name: str) -> Any:
        try:
            return self.known[name]
        except KeyError:
            raise AttributeError(name) from None


class Turns:
    """Turns of this rank; rank 0 hears the driver and tells the others."""

    def __init__(self, others: list[tuple[IO[str], IO[str]]]) -> None:
        self.losses: list[float] = []
        self._others = others
        self._left = 0
        self._is_begun = False
        self._wall_s = self._cpu_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the steps of a turn are done."""
        return self._is_begun and self._left == 0

    def tick(self) -> None:
        """A step begins now; waits where it is not our turn."""
        if self.is_over:
            self._give()
        if self._left == 0:
            self._take()
        self._left -= 1

    def _take(self) -> None:
        line = sys.stdin.readline()
        for _, to in self._others:
            to.write(line)
            to.flush()
        if not line.strip():
            sys.stdout.flush()
            os._exit(0)
        self._left, self._is_begun = int(line), True
        self._wall_s = time.perf_counter()

    def _give(self) -> None:
        wall_s, cpu_s = time.perf_counter() - self._wall_s, time.process_time()
        spent_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        others = [json.loads(heard.readline()) for heard, _ in self._others]
        told = {
            "wall_s": wall_s,
            "cpu_s": spent_s + sum(other["cpu_s"] for other in others),
            "losses": self.losses,
        }
        print(json.dumps(told), flush=True)
        self.losses = []


def begin(ranks: int) -> Turns:
    """Forks the other ranks, whose imports are done, and sets torchrun's variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    others = []
    for rank in range(1, ranks):
        told, tell = os.pipe()
        heard, say = os.pipe()
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.dup2(told, 0)
            os.dup2(say, 1)
            for end in (told, tell, heard, say):
                os.close(end)
            return Turns([])
        os.close(told)
        os.close(say)
        others.append((os.fdopen(heard), os.fdopen(tell, "w")))
    return Turns(others)


def rows(case: Case) -> Any:
    """Tokens [steps, rows of a step, seq_len + 1] of this rank."""
    import numpy as np

    every = np.load(case.tokens, mmap_mode="r")
    share = every.shape[1] // int(os.environ["WORLD_SIZE"])
    first = share * int(os.environ["RANK"])
    return every[:, first : first + share]


def batch(tokens: Any, number: int) -> tuple[Any, Any]:
    """Inputs and labels of a step."""
    import torch

    rows = torch.from_numpy(tokens[number % len(tokens)].astype("int64"))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def adamw(model: Any, case: Case) -> Any:
    """AdamW with fused kernels; matrices decay."""
    import torch

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": case.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=case.learning_rate, betas=tuple(case.betas), eps=case.epsilon, fused=True
    )


def settle(case: Case) -> None:
    """Threads and process group."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(case.threads)
    if int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo")
