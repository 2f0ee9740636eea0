"""The fields of a `Plan` as words: how files, flags and tables spell them.

Enumerations are written in lower case with hyphens ("1f1b", "zb-h1", "fp8"), sets of modules as
lists of names. "interleaved" is 1F1B with more than one chunk a rank (vpp > 1); both are read.
"""

from __future__ import annotations

import math
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.names import did_you_mean
from meshwright.base.problem import Problem
from meshwright.plan.plan import (
    ContextParallel,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERLEAVED = "interleaved"
MESH = ("tp", "pp", "cp", "ep", "dp")
LARGEST = 2**31 - 1  # no degree, size or count of a plan comes near

_SPECIAL = {"ONE_F_ONE_B": "1f1b"}
_AT_LEAST_ONE = frozenset(
    {"tp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_replicate", "cp_inner", "micro_batch_size"}
    | {"loss_chunks", "param_bytes", "grad_bytes", "reduce_bytes", "optimizer_state_bytes"}
)
_SHARES = frozenset({"offload_optimizer", "offload_activations"})  # fields with a fraction
MOST = MappingProxyType(
    {"zero_stage": 3, "offload_optimizer": 1, "offload_activations": 1}
    | {"pp": 10_000, "vpp": 10_000, "base_weight_bits": 32}
    | dict.fromkeys(("param_bytes", "grad_bytes", "reduce_bytes", "optimizer_state_bytes"), 8)
)


def _words(members: Any) -> Mapping[str, int]:
    named = {_SPECIAL.get(m.name, m.name.lower().replace("_", "-")): int(m) for m in members}
    return MappingProxyType(named)


CHOICES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "schedule": MappingProxyType({**_words(Schedule), INTERLEAVED: int(Schedule.ONE_F_ONE_B)}),
        "context_parallel": _words(ContextParallel),
        "recompute": _words(Recompute),
        "precision": _words(Precision),
        "optimizer": _words(Optimizer),
    }
)
MODULES: Mapping[str, int] = _words(RecomputeModule)
FIELDS: Mapping[str, Any] = MappingProxyType({f.name: f.default for f in fields(Plan)})


def word(name: str, value: Any) -> Any:
    """The value of field `name` as a file spells it: a word, a list of words, or itself."""
    if name in CHOICES:
        words = (text for text, number in CHOICES[name].items() if number == int(value))
        return next(words, int(value))
    if name == "recompute_modules":
        return [text for text, number in MODULES.items() if int(value) & number]
    if name == "layout":
        return None if value is None else [int(layers) for layers in value]
    return value.item() if hasattr(value, "item") else value


def plan_words(plan: Plan, *, every: bool = False) -> dict[str, Any]:
    """One plan as words: mesh and micro-batch, then what differs from the defaults (or `every`)."""
    row = plan.row(0)
    always = {*MESH, "micro_batch_size", "schedule", "zero_stage", "recompute", "precision"}
    words = {
        name: word(name, value)
        for name in FIELDS
        if (value := getattr(row, name)) is not None
        and (every or name in always or value != FIELDS[name])
    }
    if words["schedule"] == "1f1b" and row.vpp > 1:
        words["schedule"] = INTERLEAVED
    return words


def read_word(name: str, value: Any) -> tuple[Any, Problem | None]:
    """The value of field `name` that `value` spells, and what is wrong with it, if anything.

    `name` must be a field of `Plan`; the value may come from a file (typed) or be parsed already.
    """
    if name in CHOICES:
        return _one_of(name, value, CHOICES[name])
    if name == "recompute_modules":
        return _modules(value)
    if name == "layout":
        return _layout(value)
    return _scalar(name, value)


def plan_problems(plan: Plan) -> list[Problem]:
    """What is wrong with the values of one plan (scalars) that was built in code."""
    found = (_value_problem(name, getattr(plan, name)) for name in FIELDS)
    return [problem for problem in found if problem]


def _value_problem(name: str, value: Any) -> Problem | None:
    """What is wrong with a field's value as a plan holds it: a number, or the layout."""
    if name == "layout":
        return None if value is None else _layout(value)[1]
    plain = (
        value.item() if isinstance(value, np.generic | np.ndarray) and value.size == 1 else value
    )
    if not isinstance(plain, int | float) or isinstance(plain, float) > (name in _SHARES):
        return Problem(name, plain, "is no number that a plan holds", f"as {FIELDS[name]!r}")
    if name in CHOICES and plain not in CHOICES[name].values():
        return Problem(name, plain, "is none of the choices", f"as {FIELDS[name]!r}")
    return _in_range(name, plain)[1]


def _one_of(name: str, value: Any, words: Mapping[str, int]) -> tuple[Any, Problem | None]:
    if isinstance(value, str):
        spelled = value.strip().lower().replace("_", "-")
        if spelled in words:
            return words[spelled], None
        if spelled == "1f1b-interleaved":
            return words[INTERLEAVED], None
    return None, Problem(name, value, "is none of the choices", did_you_mean(value, words))


def _modules(value: Any) -> tuple[Any, Problem | None]:
    if not isinstance(value, list | tuple):
        hint = 'write a list such as ["core-attention", "mlp"]'
        return None, Problem("recompute_modules", value, "is not a list", hint)
    total = 0
    for item in value:
        number, problem = _one_of("recompute_modules", item, MODULES)
        if problem:
            return None, problem
        total |= number
    return total, None


def _layout(value: Any) -> tuple[Any, Problem | None]:
    if not isinstance(value, list | tuple) or not value:
        hint = "write the layers of every chunk, such as [9, 10, 10, 9]"
        return None, Problem("layout", value, "is not a list", hint)
    for item in value:
        if type(item) is not int or not 0 <= item <= LARGEST:
            hint = "write the layers of every chunk, such as [9, 10, 10, 9]"
            return None, Problem("layout", value, f"{item!r} is not a number of layers", hint)
    return tuple(value), None


def _scalar(name: str, value: Any) -> tuple[Any, Problem | None]:
    wanted = type(FIELDS[name])
    if wanted is float and type(value) is int and abs(value) <= LARGEST:
        value = float(value)
    if type(value) is not wanted:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[wanted]
        return None, Problem(name, value, f"is not {expected}", f"the default is {FIELDS[name]}")
    if wanted is bool:
        return value, None
    return _in_range(name, value)


def _in_range(name: str, value: float) -> tuple[Any, Problem | None]:
    least, most = int(name in _AT_LEAST_ONE), MOST.get(name, LARGEST)
    if math.isfinite(value) and least <= value <= most:
        return value, None
    hint = f"the default is {FIELDS[name]}"
    return None, Problem(name, value, f"is not between {least} and {most}", hint)
