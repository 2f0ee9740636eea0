"""Which compute a send or receive belongs to, and which receive answers which send."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.table import Table

SLACK_US = 50.0  # clocks of hosts agree to about this
DIRECTIONS = {"forward": 1, "backward": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """From one chunk of the model to the next one, in a direction: what must arrive there.

    `sender` and `receiver` are computes, `send` and `receive` the messages between them where the
    trace has them.
    """

    sender: int
    receiver: int
    send: int | None
    receive: int | None


def needed_by(
    messages: Sequence[int],
    computes: Sequence[int],
    *,
    way: str,
    real: frozenset[int],
    start: Floats,
    end: Floats,
) -> dict[int, int]:
    """Message -> the compute that sends it or waits for it, both in the order in which they ran.

    `real` are the computes that have something to send or receive: the model's first chunk
    receives nothing forward. Profilers record messages that never were: receives after the last
    compute began, sends before the first one ended, those of the model's ends. If there is one
    message for each real compute they belong together, else one for each compute is taken to be
    recorded, with the first receive perhaps missing.
    """
    if not messages or not computes:
        return {}
    if way == "recv":
        inside = [n for n in messages if start[n] <= start[computes[-1]] + SLACK_US]
    else:
        inside = [n for n in messages if end[n] >= end[computes[0]] - SLACK_US]
    wanted = [c for c in computes if c in real]
    if len(inside) == len(wanted):
        return dict(zip(inside, wanted, strict=True))
    missing = len(computes) - len(inside) if way == "recv" else 0
    aligned = dict(zip(inside, computes[max(missing, 0) :], strict=False))
    return {message: compute for message, compute in aligned.items() if compute in real}


def hops(
    table: Table, of: Callable[..., list[int]], stages: Sequence[int], owner: Mapping[int, int]
) -> list[Hop]:
    """What passes between the chunks of the model; `owner` is the compute of each message.

    Computes are matched by microbatch where the trace tells it, else one after another.
    """
    message = {(compute, table.nodes[m].kind): m for m, compute in owner.items()}
    out: list[Hop] = []
    for (stage, chunk), (peer, next_chunk), direction in _steps(table, stages):
        kind = f"{direction}-compute"
        senders = [c for c in of(stage, kind) if table.chunk[c] in (chunk, -1)]
        receivers = [c for c in of(peer, kind) if table.chunk[c] in (next_chunk, -1)]
        for sender, receiver in _matched(senders, receivers, table):
            out.append(
                Hop(
                    sender=sender,
                    receiver=receiver,
                    send=message.get((sender, f"{direction}-send")),
                    receive=message.get((receiver, f"{direction}-recv")),
                )
            )
    return out


def ends(table: Table, stages: Sequence[int]) -> dict[tuple[str, str], tuple[int, int]]:
    """(direction, way) -> the (stage, chunk) that has nothing to send or receive there."""
    last = int(table.chunk.max(initial=0))
    head, tail = (stages[0], 0), (stages[-1], max(last, 0))
    return {
        ("forward", "recv"): head,
        ("forward", "send"): tail,
        ("backward", "recv"): tail,
        ("backward", "send"): head,
    }


def _steps(
    table: Table, stages: Sequence[int]
) -> list[tuple[tuple[int, int], tuple[int, int], str]]:
    """Neighbouring (stage, chunk) of the model, in the direction in which something passes."""
    chunks = max(int(table.chunk.max(initial=0)), 0) + 1
    line = [(stage, chunk) for chunk in range(chunks) for stage in stages]
    pairs = list(pairwise(line))
    return [(a, b, "forward") for a, b in pairs] + [(b, a, "backward") for a, b in pairs]


def _matched(
    senders: Sequence[int], receivers: Sequence[int], table: Table
) -> list[tuple[int, int]]:
    by_mb = {int(table.mb[r]): r for r in receivers}
    known = len(by_mb) == len(receivers) and -1 not in by_mb
    if known and {int(table.mb[s]) for s in senders} == set(by_mb):
        return [(s, by_mb[int(table.mb[s])]) for s in senders]
    return list(zip(senders, receivers, strict=False))
