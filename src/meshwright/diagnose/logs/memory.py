"""Snapshots of PyTorch's CUDA allocator, in their JSON form.

`torch.cuda.memory._snapshot()` gives {"segments": [...], "device_traces": [[...], ...]}; segments
are what is held now, device_traces what happened, if `_record_memory_history` was on (PyTorch
2.0 to 2.13, torch/cuda/memory.py). A list of segments alone (`torch.cuda.memory_snapshot()`) is
read too. Pickles run code when they are loaded and are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from meshwright.diagnose.logs.noun import MemorySnapshot
from meshwright.diagnose.logs.replaying import Held, Replayed, replayed
from meshwright.diagnose.text import refusal, whole_text
from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.source import first_bytes, word_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT_BYTES = 2 << 30
LARGEST = 1 << 50  # bytes or devices; what is larger is no measurement
SITES = 20  # largest sites that are kept
CONVERT = (
    'where you trust the file, write it as JSON: python -c "import json, pickle; '
    "json.dump(pickle.load(open('{name}', 'rb')), open('{stem}.json', 'w'))\""
)
HINT = (
    "write one with json.dump(torch.cuda.memory._snapshot(), open('snap.json', 'w')) after "
    "torch.cuda.memory._record_memory_history()"
)


Count = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class Block(msgspec.Struct, gc=False):
    """A piece of a segment."""

    size: Count = 0
    requested_size: Count | None = None
    address: int | None = None
    state: str = ""
    frames: msgspec.Raw = msgspec.Raw(b"[]")


class Segment(msgspec.Struct, gc=False):
    """What one call of cudaMalloc gave."""

    device: Count = 0
    address: int = 0
    total_size: Count = 0
    blocks: list[Block] = []


class Entry(msgspec.Struct, gc=False):
    """One action of the allocator."""

    action: str = ""
    addr: int | None = None
    size: Count = 0
    time_us: float | None = None
    frames: msgspec.Raw = msgspec.Raw(b"[]")


class Document(msgspec.Struct, gc=False):
    """A snapshot."""

    segments: list[Segment] = []
    device_traces: list[list[Entry]] = []
    allocator_settings: Any = None


def read_snapshot(path: str | Path) -> MemorySnapshot:
    """The peak in a snapshot and what it consisted of, on the device that held most.

    Raises `InvalidInput` for pickles, with the line that converts them, and for files that hold no
    snapshot.
    """
    _refuse_pickles(path)
    left: list[Left] = []
    document = _decoded(path, left)
    devices = {s.device for s in document.segments}
    devices |= {n for n, trace in enumerate(document.device_traces) if trace}
    if not devices:
        raise refusal(path, "holds no segments and no history", hint=HINT)
    found = {device: _of_device(document, device) for device in sorted(devices)}
    device = max(found, key=lambda d: found[d].peak_bytes)
    others = {d: r.peak_bytes for d, r in found.items() if d != device and r.peak_bytes}
    return _noun(str(path), device, found[device], document, left, others)


def _refuse_pickles(path: str | Path) -> None:
    name = Path(path)
    head = first_bytes(path, 512)
    if word_of(head) == "pickle" or (name.suffix in (".pickle", ".pkl") and head[:1] not in b"{["):
        hint = CONVERT.format(name=name.name, stem=name.stem)
        raise refusal(path, "is a pickle, which runs code when it is loaded", hint=hint)


def _decoded(path: str | Path, left: list[Left]) -> Document:
    text = whole_text(path, limit_bytes=LIMIT_BYTES, left=left)
    try:
        made = msgspec.json.decode(text, type=Document | list[Segment])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"is no snapshot in JSON: {error}"
        raise refusal(path, reason, hint=HINT) from None
    return made if isinstance(made, Document) else Document(segments=made)


def _of_device(document: Document, device: int) -> Replayed:
    segments = [s for s in document.segments if s.device == device]
    traces = document.device_traces
    trace = traces[device] if device < len(traces) and device >= 0 else []
    held: list[Held] = []
    for segment in segments:
        address = segment.address
        for block in segment.blocks:
            at = block.address if block.address is not None else address
            address = at + block.size
            if block.state == "active_allocated":
                size = block.requested_size if block.requested_size is not None else block.size
                held.append(Held(at, max(size, 0), bytes(block.frames)))
    reserved = sum(max(s.total_size, 0) for s in segments)
    return replayed(trace, held=held, reserved_bytes=reserved, has_segments=bool(segments))


def _noun(
    file: str,
    device: int,
    found: Replayed,
    document: Document,
    left: list[Left],
    others: Mapping[int, int],
) -> MemorySnapshot:
    if found.unpaired:
        reason = "the history does not know their address"
        left.append(Left(what="frees", count=found.unpaired, time_us=0.0, reason=reason))
    reserved = max(found.reserved_bytes, found.peak_bytes)
    settings = document.allocator_settings
    pairs = settings.items() if isinstance(settings, dict) else ()
    return MemorySnapshot(
        file=file,
        device=device,
        peak_bytes=found.peak_bytes,
        peak_at_us=found.peak_at_us,
        reserved_bytes=reserved,
        by_category=found.by_category,
        by_site=tuple(list(found.by_site.items())[:SITES]),
        fragmentation=(reserved - found.peak_bytes) / reserved if reserved else 0.0,
        retries=found.retries,
        left=tuple(left),
        history=found.history,
        ooms=found.ooms,
        peak_reserved_bytes=max(found.peak_reserved_bytes, reserved),
        allocations=found.allocations,
        settings={str(k): str(v)[:200] for k, v in list(pairs)[:100]},
        other_devices=others,
    )
