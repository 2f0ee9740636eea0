"""A process that reads traces one at a time and answers with what is kept of each.

    python -P -c "from meshwright.api.diagnosing.worker import main; main()" FD

FD is one end of a pair of sockets, inherited from the process that asks; what goes through it is
made by these two alone. The columns of a trace live in here and are gone before the next one.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.report.check.visible import harmless

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.rank import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one file: a rank, or why there is none and what to do about it."""

    file: str
    rank: Rank | None = None
    error: str = ""
    hint: str = ""


def answer(path: Path) -> Answer:
    """What is kept of the trace at `path`; whatever is wrong with it is an answer, too."""
    try:
        return Answer(file=str(path), rank=rank_at(path))
    except MeshwrightError as error:
        first = next(iter(getattr(error, "findings", ())), None)  # its place is the file's name
        told = (error.message, error.hint) if first is None else (first.message, first.hint)
        return Answer(file=str(path), error=told[0], hint=told[1])
    except MemoryError:
        hint = "profile fewer steps, or give it more memory"
        return Answer(file=str(path), error="it does not fit into memory", hint=hint)
    except OSError as error:
        return Answer(file=str(path), error=f"cannot read it: {error.strerror or error}")
    except Exception as error:  # a fault of ours in one file must not cost the others
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        text = f"internal error: {type(error).__name__}: {error}"
        return Answer(file=str(path), error=harmless(text), hint="this is a bug, please report it")


def rank_at(path: Path) -> Rank:
    """The rank whose trace is at `path`, with its critical path, its columns dropped."""
    from meshwright.diagnose.account import account
    from meshwright.diagnose.trace.read import read_trace

    return account(read_trace(path))


def serve(connection: Connection) -> None:
    """Answers until nobody asks any more."""
    from pathlib import Path

    while True:
        try:
            connection.send(answer(Path(connection.recv())))
        except (EOFError, OSError):
            return


def main() -> None:
    """The life of a worker; Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
