"""Freed memory is kept for the next batch."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from meshwright.data.work.memory import keep_freed
{call}
[bytearray(16 << 20) for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    [bytearray(16 << 20) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = (16 << 20) // resource.getpagesize()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tells glibc")
def test_blocks_are_cleared_once() -> None:
    command = [sys.executable, "-c", PROGRAM.format(call="keep_freed()")]
    faults = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert faults < PAGES
