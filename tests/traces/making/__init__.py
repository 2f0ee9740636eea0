"""Traces of training runs that were never run, in the exact layouts that Kineto writes.

    from making import Spec, make_run, write_run

    paths = write_run(Spec(dp=4, slow_rank=2), tmp_path)  # rank0.json ... rank3.json
    texts = make_run(Spec(loader_us=30_000))  # the same as bytes

A `Spec` says what is trained, how, on what, which faults are planted, and in which era's layout the
files are written. `simulate` plays the ranks against each other: a collective ends on all of its
ranks when the last has arrived and the bytes have crossed the link.
"""

from __future__ import annotations

from making.run import make_run, simulate, write_run
from making.spec import Spec

__all__ = ["Spec", "make_run", "simulate", "write_run"]
