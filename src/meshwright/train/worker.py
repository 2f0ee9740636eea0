"""One rank of a run: `python -m meshwright.train.worker SPEC.json` under torchrun's variables.

Exit codes are those of `launch.codes`: 0 done, 1 failed, 2 refused (starting again would end the
same way), 75 asked to stop and saved.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.train.launch.codes import DONE, FAILED, PREEMPTED, REFUSED
from meshwright.train.launch.environment import threads_per_rank
from meshwright.train.launch.rank import ATTEMPT, lines_of
from meshwright.train.settings import read_spec
from meshwright.train.watch.heart import Heart
from meshwright.train.watch.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from meshwright.train.settings import Run

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}  # where the run names none
_LATE_S = 600.0  # a collective fails this much after the watchdog should have named a rank
_NEVER_S = 365 * 86400.0


def main(arguments: Sequence[str]) -> int:
    """Trains as the specification says; an exit code."""
    stop = Stop()
    stop.listen()
    heart = Heart.here()
    spec = read_spec(Path(arguments[0]))
    device = join(spec.run)
    from meshwright.train.loop import train

    attempt = int(os.environ.get(ATTEMPT, "0"))
    done = train(spec, device=device, heart=heart, stop=stop, attempt=attempt)
    return DONE if done else PREEMPTED


def warm(arguments: Sequence[str]) -> None:
    """Imports what every rank needs, in the process that forks them; no thread may begin here."""
    import torch._dynamo  # noqa: F401 - the first optimizer imports it, which takes seconds

    from meshwright.train import loop  # noqa: F401
    from meshwright.train.model.configuration import configuration_from_keys

    # a name that is not transformers' own, or a wrong configuration: ranks find it, and say so
    with contextlib.suppress(ImportError, MeshwrightError):
        config = configuration_from_keys(read_spec(Path(arguments[0])).config)
        import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    gc.freeze()  # forked ranks share what is here as long as nobody looks through it


def join(run: Run) -> torch.device:
    """Joins the process group by the environment, seeds and settings done; this rank's device."""
    import torch
    import torch.distributed as dist

    device = device_of(run)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(run.threads or threads_per_rank(local))
    if run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(run.seed)
    seconds = run.guard.hang_s + _LATE_S if run.guard.hang_s > 0 else _NEVER_S
    backend = run.backend or BACKENDS.get(device.type)
    try:
        dist.init_process_group(
            backend,
            timeout=datetime.timedelta(seconds=seconds),
            device_id=device if device.type != "cpu" else None,
        )
    except (AssertionError, RuntimeError) as error:
        if "built in" not in str(error) and "Unknown backend" not in str(error):
            raise
        raise _without(backend, error) from None
    return device


def _without(backend: str | None, error: Exception) -> InvalidInput:
    """What torch has against a backend."""
    message = f"torch.distributed has no backend {backend!r} here: {error}"
    hint = f"leave --backend out, or one of {', '.join(BACKENDS.values())}"
    return InvalidInput([Finding(message=message, key="backend", value=backend, hint=hint)])


def device_of(run: Run) -> torch.device:
    """The device of this rank: one of the node's by LOCAL_RANK, or the CPU that all share."""
    import torch

    kind = run.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cpu":
        return torch.device(kind)
    device = torch.device(kind, int(os.environ.get("LOCAL_RANK", "0")))
    torch.accelerator.set_device_index(device.index)
    return device


def _answer(arguments: Sequence[str]) -> int:
    """Like `main`, for a rank that something else than our launcher started."""
    try:
        return main(arguments)
    except MeshwrightError as error:
        if os.environ.get("RANK", "0") == "0":
            print(*lines_of(error), sep="\n", file=sys.stderr)
        return REFUSED if error.is_final else FAILED


if __name__ == "__main__":
    sys.exit(_answer(sys.argv[1:]))
