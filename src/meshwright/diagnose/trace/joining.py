"""Finds the messages of collective kernels that carry none themselves.

Kineto copies the arguments of `record_param_comms` onto a kernel only where its linked operator is
that very one and five of them exist (libkineto `output_json.cpp`). Else they are found by External
id, then by the call that launched the kernel: the operator around it on its thread.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.trace.columns import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Calls, DeviceEvents, Message, Operators

_COLLECTIVE = re.compile(
    r"nccl|rccl|oneccl|hccl|mccl|msccl|nvshmem|multimem|userbuffers|deep_?ep|\bep::|"
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast_?kernel|sdma",
    re.IGNORECASE,
)
_COMPUTE = re.compile(r"^triton_|at::native|elementwise|gemm", re.IGNORECASE)


def joined(
    device: DeviceEvents,
    calls: Calls,
    operators: Operators,
    *,
    names: Sequence[str],
    messages: Sequence[Message],
) -> DeviceEvents:
    """The device events with messages and sequence numbers of collectives filled in."""
    speaking = _speaking(operators, messages)
    bare = _bare(device, names)
    if not len(speaking) or not len(bare):
        return device
    owner = _by_external(device.external[bare], operators, speaking)
    lost = owner < 0
    owner[lost] = _by_call(device.correlation[bare[lost]], calls, operators, speaking)
    found, owner = bare[owner >= 0], owner[owner >= 0]
    message, seq = device.message.copy(), device.seq.copy()
    message[found] = operators.message[owner]
    seq[found] = operators.seq[owner]
    return replace(device, message=message, seq=seq)


def _speaking(operators: Operators, messages: Sequence[Message]) -> NDArray[np.int64]:
    """Operators with the message of a transfer."""
    carried = np.array([_is_transfer(message) for message in messages], dtype=bool)
    rows = np.flatnonzero(operators.message >= 0)
    return rows[carried[operators.message[rows]]] if len(rows) else rows


def _is_transfer(message: Message) -> bool:
    """Not a wait, nor a barrier: no elements, a group of one, bytes."""
    empty = message.in_elements == 0 and message.group_size == 1 and message.dtype == "Byte"
    return message.collective not in ("wait", "barrier", "") and not empty


def _bare(device: DeviceEvents, names: Sequence[str]) -> NDArray[np.int64]:
    """Kernels of collectives without a message."""
    rows = np.flatnonzero((device.message < 0) & (device.kind == Device.KERNEL))
    numbers = np.unique(device.name[rows])
    spoken = [n for n in numbers if _is_collective(names[n])]
    return rows[np.isin(device.name[rows], spoken)]


def _is_collective(name: str) -> bool:
    return bool(_COLLECTIVE.search(name)) and not _COMPUTE.search(name)


def _by_external(
    external: NDArray[np.int64], operators: Operators, speaking: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The speaking operator of each External id, -1 for none."""
    known = operators.external[speaking]
    order = np.argsort(known, kind="stable")
    known, rows = known[order], speaking[order]
    place = np.minimum(np.searchsorted(known, external), len(known) - 1)
    return np.where((known[place] == external) & (external >= 0), rows[place], -1)


def _by_call(
    correlation: NDArray[np.int64],
    calls: Calls,
    operators: Operators,
    speaking: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The speaking operator around the call with each correlation on its thread, -1 for none."""
    result = np.full(len(correlation), -1, dtype=np.int64)
    if not len(calls) or not len(correlation):
        return result
    order = np.argsort(calls.correlation, kind="stable")
    known = calls.correlation[order]
    place = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
    launched = (known[place] == correlation) & (correlation >= 0)
    call = order[place]
    for thread in np.unique(calls.thread[call[launched]]):
        mine = np.flatnonzero(launched & (calls.thread[call] == thread))
        around = speaking[operators.thread[speaking] == thread]
        if len(around):
            result[mine] = _around(calls.start_ns[call[mine]], operators, around)
    return result


def _around(
    at_ns: NDArray[np.int64], operators: Operators, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The last of the operators to start before each time, if it has not ended by then."""
    place = np.searchsorted(operators.start_ns[rows], at_ns, side="right") - 1
    row = rows[np.maximum(place, 0)]
    return np.where((place >= 0) & (operators.end_ns[row] >= at_ns), row, -1)
