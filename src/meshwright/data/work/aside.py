"""Something done in a thread while workers are busy, whose error is not lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside:
    """Runs `work` at once, in a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what the work has raised so far."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Returns when the work is done; raises what it raised."""
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
