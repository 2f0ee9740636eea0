"""How a rank is asked to stop.

SIGUSR1 asks: finish the step, save, exit; however often it comes. SIGTERM asks the same the first
time, as schedulers send it, and ends the rank at once the second time. What arrives is noticed by a
thread, so also while the main one waits in a collective and runs no Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

ASKS = signal.SIGUSR1
HEARD = (ASKS, signal.SIGTERM)


class Stop:
    """Whether this rank was asked to stop; all ranks must agree before one does."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._terminated = False

    @property
    def asked(self) -> bool:
        """True from the first signal on."""
        return self._asked.is_set()

    def ask(self) -> None:
        """As a signal would."""
        self._asked.set()

    def listen(self) -> None:
        """Hears signals from now on; to be called once, in the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for sign in HEARD:
            signal.signal(sign, _heard)
        thread = threading.Thread(
            target=self._hear, args=(reader, writer), name="signals", daemon=True
        )
        thread.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)  # blocked until now: see launch/rank

    def _hear(self, reader: socket.socket, writer: socket.socket) -> None:
        """Takes the numbers of signals as the kernel delivers them; keeps both ends open."""
        with contextlib.suppress(OSError), reader, writer:
            while numbers := reader.recv(64):
                for number in numbers:
                    self._note(number)

    def _note(self, number: int) -> None:
        if number == signal.SIGTERM:
            if self._terminated:
                os._exit(128 + number)
            self._terminated = True
        if number in HEARD:
            self._asked.set()


def _heard(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the thread acts. Without a handler the signal would end the process."""
