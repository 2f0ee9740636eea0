"""Exit codes that supervisor, agent, ranks and job files agree on."""

from __future__ import annotations

import signal

DONE = 0
FAILED = 1
REFUSED = 2  # wrong input, a loss that is no number: to start again would end the same way
PREEMPTED = 75  # sysexits' EX_TEMPFAIL: asked to stop, saved, can be resumed
INTERRUPTED = 130  # stopped at once by a second signal


def described(code: int) -> str:
    """An exit code as `subprocess` gives it, in words: negative is a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
