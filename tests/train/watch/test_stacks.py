"""Where a thread waits, and that looking leaves nothing behind."""

from __future__ import annotations

import gc
import threading
import weakref

from meshwright.train.watch.stacks import waiting_in


class Thing:
    """Something large that a step holds."""


def test_looking_at_a_thread_keeps_nothing_of_it_alive():
    kept: list[weakref.ref[Thing]] = []
    inside, leave = threading.Event(), threading.Event()

    def step() -> None:
        thing = Thing()
        kept.append(weakref.ref(thing))
        inside.set()
        leave.wait(10)

    worker = threading.Thread(target=step)
    gc.collect()
    gc.disable()
    try:
        worker.start()
        assert inside.wait(10)
        looked = threading.Thread(target=waiting_in, args=(worker.ident,))
        looked.start()
        looked.join(10)
        leave.set()
        worker.join(10)
        assert kept[0]() is None
    finally:
        gc.enable()
