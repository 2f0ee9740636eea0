"""Memory that is freed stays with the process: batches ask for the same again, thousands of times.

glibc gives large blocks back to the system at once, and each new one is cleared page by page.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h of glibc
_LARGEST_BYTES = 32 << 20  # the most that glibc allows; larger blocks go back as before
_KEPT_BYTES = 128 << 20  # free memory at the end of the heap


def keep_freed() -> None:
    """Tells glibc to keep memory for the next batch; does nothing with any other C library."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_TOP_PAD, _LARGEST_BYTES >> 1)
