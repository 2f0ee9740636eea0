"""NCCL's flight recorder: the last collectives of each rank, written when ranks stand still.

Torch opens a pipe for each rank and writes what it has recorded when something is written there
(ProcessGroupNCCL, `DumpPipe`); `torchfrtrace` reads the files. Gloo has none of this: there the
beats say which collective a rank waits in.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_STEM = "collectives-rank-"
_CALLS = "2000"  # that are kept


def recorder_environment(log_folder: Path) -> dict[str, str]:
    """Variables that switch the recorder on."""
    stem = str(log_folder / _STEM)
    return {
        "TORCH_FR_BUFFER_SIZE": _CALLS,
        "TORCH_FR_DUMP_TEMP_FILE": stem,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": stem,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }


def ask_for_dumps(log_folder: Path, ranks: Iterable[int]) -> None:
    """Has ranks write their records, where they listen."""
    for rank in ranks:
        with contextlib.suppress(OSError):  # no pipe, or nobody reads it
            pipe = os.open(log_folder / f"{_STEM}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, b"1")
            finally:
                os.close(pipe)
