"""Categories told by the stacks of a real training step of the torch that is installed.

The step runs on the CPU; every tensor that an operator makes is an allocation with the frames that
Python has at that moment, in the layout of a snapshot. What each one is in truth is known by whose
storage it became.
"""

from __future__ import annotations

import json
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.diagnose.logs.memory import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
HIDDEN = 64


def frames() -> list[dict[str, Any]]:
    out = []
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        if "_dispatch" not in name and "_python_dispatch" not in file:
            out.append({"filename": file, "line": frame.f_lineno, "name": name})
        frame = frame.f_back  # type: ignore[assignment]
    return out


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes every new storage, and when it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[dict[str, Any]] = []
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor.untyped_storage())
        return out

    def note(self, storage: Any) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or address in self.known:
            return
        self.known.add(address)
        entry = {"addr": address, "size": size, "stream": 0, "time_us": len(self.trace) + 1}
        self.trace.append(entry | {"action": "alloc", "frames": frames()})
        weakref.finalize(storage, self.gone, entry)

    def gone(self, entry: dict[str, Any]) -> None:
        self.known.discard(entry["addr"])
        self.trace.append(entry | {"action": "free_requested", "frames": []})
        self.trace.append(entry | {"action": "free_completed", "frames": []})


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x


def test_a_step_of_training_is_told_apart(tmp_path: Path) -> None:
    with Recorder() as recorder:
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            loss = net(torch.randn(512, HIDDEN)).square().mean()
            loss.backward()
            optimizer.step()
        trace = list(recorder.trace)
    path = tmp_path / "snap.json"
    path.write_text(json.dumps({"segments": [], "device_traces": [trace]}))
    found = read_snapshot(path).by_category
    weights = sum(p.numel() * 4 for p in net.parameters())
    activations = 512 * HIDDEN * 4  # of one layer's output
    assert found["weights"] == pytest.approx(weights, rel=0.1)
    assert found["optimizer"] == pytest.approx(2 * weights, rel=0.3)
    assert found["activations"] >= 4 * activations
    assert found.get("other", 0) <= 1.5 * activations  # the input
