"""The [measured] table of a cluster file, as `calibrate` and `diagnose --calibrate` write it.

    [measured]
    date = "2026-11-30"             when
    source = "torch 2.13.0, ..."    on what, with what
    ranks = 2                       that computed at once while the kernels were timed
    threads = 1                     of each rank
    piece_bytes = 4                 width of the elements of the pieces below
    [measured.matmul.fp32]          launch_s, rate, m0, n0, k0, memory, cast_bytes, output_bytes
    [measured.attention.fp32]       launch_s, rate, rows0, keys0, head_dim0, backward
    [measured.memory]               launch_s, memory
    [measured.pieces.norm.forward]  elements = [...], seconds = [...]; and .backward; norm,
                                    residual, rotary, gate, loss, embedding, accumulate, update,
                                    fresh
    [measured.alone]                matmul, attention, memory: speed of a rank while others rest
    [measured.collectives.all_reduce]   launch_s, step_s, rate, ramp_s; also all_gather,
                                    reduce_scatter, all_to_all and send, on the innermost link;
                                    and as FSDP2 does it, copies included, gather_parameters,
                                    reduce_gradients and (ZeRO stage 0) all_reduce_gradients
    [measured.overheads]            host seconds of the software stack

A table from traces knows a part of that only, and says so:

    partial = true                  what is absent stays as the catalogue and the fits have it
    [measured.shares]               scale_out, overlap_tp, overlap_pp, tp_rate, dp_rate, ep_rate,
                                    p2p_rate, elementwise, optimizer, step_s: in place of the fits
    [[measured.evidence]]           what, points, spread, confidence, source of each figure

Shares (`rate`, `memory`) are of the rates in [gpu] and [[links]]; every other key is explained
where its noun is defined, in hardware/curves.py and hardware/measured.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from math import isfinite
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from meshwright.base.decode import type_hints
from meshwright.base.names import did_you_mean
from meshwright.base.noun import dataclass
from meshwright.base.problem import Problem
from meshwright.hardware.curves import CollectiveCurve
from meshwright.hardware.measured import OPERATORS, SHARES, Curves, Overheads

COLLECTIVES = (
    *("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"),
    *("gather_parameters", "reduce_gradients", "all_reduce_gradients"),
)
WHOLE = ("matmul", "attention", "memory", "pieces")  # unless partial
LARGEST = 1e18
AGAIN = "`meshwright calibrate -o FILE` writes it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a figure of a partial table rests on: points, their spread, the files they are from."""

    what: str
    points: int
    spread: float
    confidence: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What the table holds: kernels for the GPU, collectives for its innermost link, overheads.

    `shares` are values of the cost model's fits, see `SHARES`.
    """

    curves: Curves
    collectives: Mapping[str, CollectiveCurve]
    overheads: Overheads | None
    shares: Mapping[str, float]


def check_measured(table: object) -> list[Problem]:
    """Everything wrong with the table."""
    if not isinstance(table, dict):
        return [Problem("measured", table, "is no table", AGAIN)]
    own, others = _split(table)
    partial = own.get("partial") is True
    found = _check(Curves, own, "measured", extra=tuple(others))
    for name, kind in OTHERS.items():
        found += _check(kind, others.get(name, EMPTY[name]), f"measured.{name}")
    found += _unknown(others.get("shares", {}), SHARES, "measured.shares")
    found += _unknown(others.get("collectives", {}), COLLECTIVES, "measured.collectives")
    if not partial:
        found += _absent(own, WHOLE, "measured")
        if others.get("collectives"):  # a single rank has none
            found += _absent(others["collectives"], COLLECTIVES, "measured.collectives")
    if not partial or "pieces" in own:
        found += _absent(own.get("pieces", {}), OPERATORS, "measured.pieces")
    found += _uneven(own.get("pieces", {})) if not found else []
    for name in ("matmul", "attention"):
        if own.get(name) == {}:
            found.append(Problem(f"measured.{name}", {}, "has no precision", AGAIN))
    return found


def measurements(table: Mapping[str, Any]) -> Measurements:
    """The nouns of a table without problems."""
    own, others = _split(table)
    stated = "overheads" in others or not own.get("partial")
    return Measurements(
        curves=_built(Curves, own),
        collectives=_built(Mapping[str, CollectiveCurve], others.get("collectives", {})),
        overheads=_built(Overheads, others.get("overheads", {})) if stated else None,
        shares=_built(Mapping[str, float], others.get("shares", {})),
    )


OTHERS: Mapping[str, Any] = {
    "collectives": Mapping[str, CollectiveCurve],
    "overheads": Overheads,
    "shares": Mapping[str, float],
    "evidence": tuple[Evidence, ...],
}
EMPTY: Mapping[str, Any] = {"collectives": {}, "overheads": {}, "shares": {}, "evidence": []}


def _split(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `Curves` holds, and the rest."""
    own = {name: value for name, value in table.items() if name not in OTHERS}
    return own, {name: value for name, value in table.items() if name in OTHERS}


def _unknown(table: object, names: tuple[str, ...], key: str) -> list[Problem]:
    """Keys of a table of numbers or curves that mean nothing."""
    known = table if isinstance(table, dict) else {}
    return [
        Problem(f"{key}.{n}", v, "is no key of this table", did_you_mean(n, names))
        for n, v in known.items()
        if n not in names
    ]


def _absent(table: object, names: tuple[str, ...], key: str) -> list[Problem]:
    known = table if isinstance(table, dict) else dict.fromkeys(names)
    return [Problem(f"{key}.{n}", None, "is missing", AGAIN) for n in names if n not in known]


def _uneven(pieces: Mapping[str, Any]) -> list[Problem]:
    """Curves whose points do not pair or do not grow."""
    return [
        Problem(f"measured.pieces.{name}.{side}.elements", at, "does not pair with seconds", AGAIN)
        for name, piece in pieces.items()
        for side, curve in piece.items()
        if len(at := curve["elements"]) != len(curve["seconds"])
        or not at
        or any(left >= right for left, right in pairwise(at))
    ]


def _check(kind: Any, value: object, key: str, *, extra: tuple[str, ...] = ()) -> list[Problem]:
    """What keeps `value` from being a `kind`: a noun, a mapping of nouns, a number, a text."""
    kind = _stated(kind)
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            return [Problem(key, value, "is no table", AGAIN)]
        inner = get_args(kind)[1]
        return [p for name, item in value.items() for p in _check(inner, item, f"{key}.{name}")]
    if is_dataclass(kind):
        return _check_noun(kind, value, key, extra=extra)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            return [Problem(key, value, "is no list", AGAIN)]
        item = get_args(kind)[0]
        return [p for i, entry in enumerate(value) for p in _check(item, entry, f"{key}.{i}")]
    return [] if _is_a(kind, value) else [Problem(key, value, f"is no {_WORDS[kind]}", AGAIN)]


def _check_noun(kind: Any, value: object, key: str, *, extra: tuple[str, ...]) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(key, value, "is no table", AGAIN)]
    known = {f.name: f for f in fields(kind)}
    found = [
        Problem(f"{key}.{n}", v, "is no key of this table", did_you_mean(n, (*known, *extra)))
        for n, v in value.items()
        if n not in known and n not in extra
    ]
    hints = type_hints(kind)
    for name, field in known.items():
        if name in value:
            found += _check(hints[name], value[name], f"{key}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            found.append(Problem(f"{key}.{name}", None, "is missing", AGAIN))
    return found


def _stated(kind: Any) -> Any:
    """The kind of a value that may be absent."""
    if get_origin(kind) is UnionType:
        return next(inner for inner in get_args(kind) if inner is not NoneType)
    return kind


_WORDS = {float: "number from 0 to 10^18", int: "whole number from 1", str: "text", bool: "truth"}


def _is_a(kind: type, value: object) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is str:
        return isinstance(value, str)
    if kind is int:
        return isinstance(value, int) and 1 <= value <= LARGEST
    return isinstance(value, int | float) and isfinite(value) and 0 <= value <= LARGEST


def _built(kind: Any, value: Any) -> Any:
    """The `kind` in a checked value."""
    kind = _stated(kind)
    if get_origin(kind) is Mapping:
        inner = get_args(kind)[1]
        return {name: _built(inner, item) for name, item in value.items()}
    if is_dataclass(kind) and isinstance(kind, type):
        hints = type_hints(kind)
        return kind(**{name: _built(hints[name], item) for name, item in value.items()})
    if get_origin(kind) is tuple:
        return tuple(_built(get_args(kind)[0], item) for item in value)
    return float(value) if kind is float else value
