"""How far a run has come, as plain values that fit into any checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.data.loader.stream import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.loader.stream import Stream

FORMAT = 1
MOST = 2**62  # samples


def state_of(stream: Stream, consumed_samples: int) -> dict[str, Any]:
    """The state after so many samples."""
    return {
        "format": FORMAT,
        "consumed_samples": consumed_samples,
        "epochs": [round(epochs, 6) for epochs in stream.epochs_after(consumed_samples)],
        "stream": dict(stream.identity),
    }


def consumed_of(state: Mapping[str, Any], stream: Stream) -> int:
    """The samples consumed; MeshwrightError when the state belongs to another stream."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise MeshwrightError(
            "this is no state of a loader", hint="pass on what state_dict() returned"
        )
    consumed, found = state.get("consumed_samples"), state.get("stream")
    if type(consumed) is not int or not 0 <= consumed <= MOST or not isinstance(found, dict):
        raise MeshwrightError(
            f"consumed_samples = {consumed!r} is no count of samples",
            hint="pass on what state_dict() returned",
        )
    for key, value in stream.identity.items():
        if found.get(key) != value:
            raise MeshwrightError(
                f"the state is of another {NAMES[key]}: {found.get(key)!r}, here {value!r}",
                hint="open the loader as it was opened then; only the ranks, micro_batch_size and "
                "global_batch_size may change",
            )
    return consumed
