"""Files of one rank each: start and end of every forward and backward, by iteration.

Layout of AMD-AGI/Primus, tools/visualization/pp_vis: pp_rank_N.json holds {iteration: {total,
memory, fwd_start, fwd_end, bwd_start, bwd_end}}, milliseconds since the iteration began, GB; also
wgrad_start and wgrad_end where a schedule splits the backward, fwd_minibatch and fwd_chunk where it
says which one; config.json beside them has pp_size, vp_size (or vpp_size), num_mbs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.text import refusal, whole_text
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_BYTES = 1 << 28
LARGEST_MS = 1e12
SHORTEST_MS = 1e-6
RANK = re.compile(r"(\d{1,6})\D*$")
KINDS = {
    "forward-compute": "fwd",
    "backward-compute": "bwd",
    "weight-compute": "wgrad",
}
HINT = "give the pp_rank_*.json of all ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of one rank, milliseconds; `work` has (kind, microbatch, chunk, start, end)."""

    number: int
    total_ms: float
    memory_gb: float | None
    work: tuple[tuple[str, int, int, float, float], ...]

    @property
    def busy_ms(self) -> float:
        """Sum of all forwards and backwards, which do not overlap."""
        return sum(end - start for *_, start, end in self.work)

    @property
    def lead_in_ms(self) -> float:
        """How long before the first forward."""
        return min((start for *_, start, _ in self.work), default=0.0)

    @property
    def idle_pct(self) -> float:
        """Share of the iteration without work."""
        return 100.0 * (1.0 - self.busy_ms / self.total_ms)


def read_rank(path: str | Path, left: list[Left]) -> tuple[int, tuple[Iteration, ...]]:
    """(rank, iterations) of a file; the rank is the number in its name, -1 without one.

    Raises `InvalidInput` where the file holds no iteration.
    """
    text = whole_text(path, limit_bytes=LIMIT_BYTES, left=left)
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refusal(path, "is no JSON, or breaks off", hint=HINT) from None
    entries = document if isinstance(document, dict) else {}
    made = [_iteration(number, entry) for number, entry in entries.items()]
    found = sorted((i for i in made if i is not None), key=lambda i: i.number)
    if not found:
        raise refusal(path, "holds no iterations of a pipeline", hint=HINT)
    if len(found) < len(made):
        count = len(made) - len(found)
        reason = "total, or starts and ends, are missing or no numbers"
        left.append(Left(what="iterations", count=count, time_us=0.0, reason=reason))
    rank = RANK.search(Path(path).name.split(".")[0])
    return (int(rank[1]) if rank else -1), tuple(found)


def config_beside(path: str | Path) -> Mapping[str, Any]:
    """The entries of config.json in the folder of the files; {} where there is none."""
    config = Path(path).parent / "config.json"
    if not config.is_file():
        return {}
    try:
        loaded: Any = msgspec.json.decode(whole_text(config, limit_bytes=1 << 20, left=[]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def chunks_of(ranks: Mapping[int, Sequence[Iteration]]) -> int:
    """Chunks of the model on each stage, as the last stage shows it.

    Before its first backward the last stage of an interleaved schedule runs (v - 1) p + 1 forwards
    (arXiv 2104.04473, section 2.2).
    """
    work = ranks[max(ranks)][-1].work
    stated = max((chunk for _, _, chunk, _, _ in work), default=-1) + 1
    if stated > 0:
        return stated
    forwards = sorted(start for kind, _, _, start, _ in work if kind == "forward-compute")
    backward = min((s for kind, _, _, s, _ in work if kind == "backward-compute"), default=None)
    if backward is None or len(ranks) < 2:
        return 1
    before = sum(start < backward for start in forwards)
    v, odd = divmod(before - 1, len(ranks))
    fits = odd == 0 and v >= 0 and len(forwards) % (v + 1) == 0
    return v + 1 if fits and before < len(forwards) else 1


def _iteration(number: str, entry: Any) -> Iteration | None:
    if not isinstance(entry, dict) or not number.isdecimal() or len(number) > 12:
        return None
    total, memory = _number(entry.get("total")), _number(entry.get("memory"))
    work: list[tuple[str, int, int, float, float]] = []
    for kind, prefix in KINDS.items():
        spans = _spans(entry, prefix)
        if spans is None:
            return None
        work += [(kind, *span) for span in spans]
    if total is None or total < SHORTEST_MS or not work:
        return None
    return Iteration(number=int(number), total_ms=total, memory_gb=memory, work=tuple(work))


def _spans(entry: dict[str, Any], prefix: str) -> list[tuple[int, int, float, float]] | None:
    """(microbatch, chunk, start, end) of each; None where they are damaged."""
    starts, ends = entry.get(f"{prefix}_start", []), entry.get(f"{prefix}_end", [])
    if not (isinstance(starts, list) and isinstance(ends, list) and len(starts) == len(ends)):
        return None
    mbs = _labels(entry.get(f"{prefix}_minibatch"), len(starts))
    chunks = _labels(entry.get(f"{prefix}_chunk"), len(starts))
    spans = []
    for mb, chunk, start, end in zip(mbs, chunks, starts, ends, strict=True):
        first, last = _number(start), _number(end)
        if first is None or last is None or last < first:
            return None
        spans.append((mb, chunk, first, last))
    return spans


def _labels(values: Any, count: int) -> list[int]:
    fits = isinstance(values, list) and len(values) == count
    fits = fits and all(type(v) is int and 0 <= v < 1 << 31 for v in values)
    return values if fits else [-1] * count


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < LARGEST_MS else None


def median(values: Sequence[float]) -> float:
    """The median as a plain number."""
    return float(np.median(values))
