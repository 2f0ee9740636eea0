"""What the supervisor is asked by signals while it runs."""

from __future__ import annotations

import select
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, Self

from meshwright.train.watch.signals import ASKS

if TYPE_CHECKING:
    from types import FrameType

_COUNTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Asked:
    """Hears SIGINT, SIGTERM, SIGHUP and SIGUSR1 in a `with` block of the main thread.

    In another thread it hears nothing, as Python delivers signals to the main thread alone. A
    signal that was ignored before (nohup) still is.
    """

    def __init__(self) -> None:
        self.stop = False
        self.first = 0  # the signal that asked
        self._count = 0
        self._before: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()

    @property
    def twice(self) -> bool:
        """Whether a second signal came; SIGUSR1 asks for no hurry, however often."""
        return self._count > 1

    def wait(self, seconds: float) -> None:
        """Sleeps, but not through a signal."""
        if select.select([self._reader], [], [], seconds)[0]:
            self._reader.recv(64)

    def __enter__(self) -> Self:
        self._writer.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            for sign in (*_COUNTED, ASKS):
                if signal.getsignal(sign) is not signal.SIG_IGN:
                    self._before[sign] = signal.signal(sign, self._heard)
        return self

    def __exit__(self, *_error: object) -> None:
        for sign, handler in self._before.items():
            signal.signal(sign, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
        self._reader.close()
        self._writer.close()

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.stop = True
        self.first = self.first or number
        self._count += number in _COUNTED
