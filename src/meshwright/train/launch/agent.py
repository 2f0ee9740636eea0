"""The process between supervisor and ranks: torchrun's elastic agent, with imports paid once.

It starts ranks, starts them again when one fails, and agrees with the agents of other nodes on who
is which rank. It does nothing when asked to stop: the supervisor asks the ranks themselves.
"""

from __future__ import annotations

import importlib
import signal
import sys

import msgspec

from meshwright.train.launch.processes import die_with, die_with_pipe
from meshwright.train.launch.settings import FORK, AgentSettings


def main(text: str) -> int:
    """Runs the ranks that the settings (JSON) describe; the agent's exit code."""
    settings = msgspec.json.decode(text, type=AgentSettings)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(sign, signal.SIG_IGN)  # schedulers signal every process they know of
    if sys.platform.startswith("linux"):
        die_with(settings.supervisor)
    else:
        die_with_pipe(settings.lifeline)
    if settings.start == FORK:
        _warm(settings.worker)
    from meshwright.train.adapters.elastic import run_agent

    return run_agent(settings)


def _warm(worker: tuple[str, ...]) -> None:
    """Imports what every rank would import; a module's own `warm` knows better what that is."""
    module, *arguments = worker
    found = importlib.import_module(module)
    if hasattr(found, "warm"):
        found.warm(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
