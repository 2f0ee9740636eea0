"""What a rank does before its work: it binds its life to the agent's, and writes to its own log.

The agent calls `run` in a forked process, or starts this module in a new interpreter.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from meshwright.base.errors import MeshwrightError
from meshwright.train.launch.codes import DONE, FAILED, REFUSED
from meshwright.train.launch.logs import log_of
from meshwright.train.launch.processes import die_with
from meshwright.train.launch.settings import RankSettings
from meshwright.train.watch.signals import ASKS, HEARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

ATTEMPT = "MESHWRIGHT_ATTEMPT"
DUMP = signal.SIGUSR2  # asks a rank for the stacks of its threads


def run(settings: RankSettings) -> None:
    """One rank from its first line to its exit code; does not return."""
    die_with(settings.parent)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, ASKS, signal.SIGQUIT):
        signal.signal(sign, signal.SIG_DFL)  # the agent ignores them, and that is inherited
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)  # until the worker listens
    os.environ[ATTEMPT] = str(settings.attempt)
    rank = int(os.environ["RANK"])
    _write_to(log_of(Path(settings.log_folder), settings.attempt, rank))
    faulthandler.register(DUMP, file=sys.__stderr__ or 2, all_threads=True)
    code = _work(settings.worker)
    _leave(code)


def _work(worker: tuple[str, ...]) -> int:
    """The worker's own exit code, with what it raised in the log."""
    module, *arguments = worker
    try:
        code = importlib.import_module(module).main(arguments)
    except MeshwrightError as error:
        print(*lines_of(error), sep="\n", file=sys.stderr)
        return REFUSED if error.is_final else FAILED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return FAILED
    return int(code or DONE)


def lines_of(error: MeshwrightError) -> Iterator[str]:
    """An error, or every finding that it carries, with what to do about it."""
    told = [(f.one_line(), f.hint) for f in getattr(error, "findings", ())]
    for message, hint in told or [(str(error), error.hint)]:
        yield f"error: {message}"
        if hint:
            yield f"hint: {hint}"


def _leave(code: int) -> None:
    """Ends without clean-up: destroying gloo's groups may wait for peers that have gone."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


def _write_to(path: Path) -> None:
    """Both streams of this process go to a file; a full disk costs lines, never the run."""
    with contextlib.suppress(OSError):  # then the agent's log has it
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    sys.stdout, sys.stderr = _stream(1), _stream(2)


def _stream(descriptor: int) -> IO[str]:
    raw = io.BufferedWriter(_Lossy(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)


class _Lossy(io.FileIO):
    """A file that takes whatever is written, and drops what the disk has no room for."""

    def write(self, data: Buffer) -> int:
        """Bytes of `data`, all of them."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(memoryview(data).cast("B")) if written is None else written


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=RankSettings))
