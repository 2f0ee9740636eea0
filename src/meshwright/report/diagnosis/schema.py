"""The JSON Schema of `diagnose --json`, read off the annotations and docstrings of the nouns."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import cleandoc
from typing import Any

from meshwright.diagnose.split.facts import FACTS
from meshwright.report.diagnosis.derived import DERIVED
from meshwright.report.diagnosis.record import LEFT_OUT, SCHEMA, UNKNOWN
from meshwright.report.machine import FORMAT_VERSION

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MODULES = (
    "meshwright.diagnose.diagnosis",
    "meshwright.diagnose.rank",
    "meshwright.diagnose.across.noun",
    "meshwright.diagnose.path.noun",
    "meshwright.diagnose.pipeline.noun",
    "meshwright.diagnose.logs.noun",
    "meshwright.diagnose.trace.columns",
    "meshwright.report.diagnosis.split",
)
_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "Any": {},
}
_FIELDS = {  # of the record itself
    "summary": "tuple[str, ...]",
    "step_us": "float | None",
    "lost_us": "float | None",
    "principal": "str",
    "second": "str | None",
    "split": "Split | None",
    "ranks": "tuple[Rank, ...]",
    "groups": "tuple[Group, ...]",
    "job": "Across | None",
    "pipeline": "Pipeline | None",
    "causes": "tuple[Cause, ...]",
    "promises": "tuple[Promise, ...]",
    "memory": "tuple[MemorySnapshot, ...]",
    "nccl": "tuple[NcclLog, ...]",
    "metrics": "Mapping[str, Any] | None",
    "guards": "tuple[str, ...]",
    "left": "tuple[Left, ...]",
}
_ABOUT = {
    "step_us": "The median step as the device lived it, median over ranks.",
    "lost_us": "Time of it that was no compute, or compute that causes say need not be.",
    "principal": "What most of it is lost to, in one word.",
    "split": "Where a step goes: parts that sum to it.",
    "ranks": "Each trace, accounted for.",
    "groups": "Process groups of the run, each once.",
    "job": "What holds between ranks.",
    "causes": "What costs time, most of what can be had back first.",
    "guards": "What lowers the worth of the answer.",
    "left": "What was left out, and the time it stood for.",
}


def schema() -> dict[str, Any]:
    """The schema, with a definition for each noun that the record can hold."""
    known = _nouns()
    wanted: dict[str, dict[str, Any]] = {}
    properties: dict[str, Any] = {
        "version": {"const": FORMAT_VERSION},
        "schema": {"const": SCHEMA},
    }
    for name, annotation in _FIELDS.items():
        properties[name] = _described(_type(annotation, known, wanted), _ABOUT.get(name, ""))
    return {
        "$schema": DRAFT,
        "title": "meshwright diagnose --json",
        "description": (
            "Times are microseconds (_us), seconds (_s) or nanoseconds (_ns); _pct is percent of "
            "the window that it stands in, share a fraction of a step."
        ),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": dict(sorted(wanted.items())),
    }


def _nouns() -> dict[str, type]:
    """Every noun by its name."""
    return {
        name: value
        for module in _MODULES
        for name, value in vars(import_module(module)).items()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module
    }


def _type(annotation: str, known: dict[str, type], wanted: dict[str, Any]) -> dict[str, Any]:
    """The schema of an annotation; nouns that it names are defined in `wanted`."""
    return _node(ast.parse(annotation, mode="eval").body, known, wanted)


def _node(node: ast.expr, known: dict[str, type], wanted: dict[str, Any]) -> dict[str, Any]:
    if isinstance(node, ast.BinOp):  # X | Y
        return {"anyOf": [_node(side, known, wanted) for side in (node.left, node.right)]}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _container(node.value.id, node.slice, known, wanted)
    name = "None" if isinstance(node, ast.Constant) else ast.unparse(node)
    if name in _PLAIN:
        return dict(_PLAIN[name])
    if name not in wanted:
        wanted[name] = {}  # a noun may hold its own kind
        wanted[name] = _object(known[name], known, wanted)
    return {"$ref": f"#/$defs/{name}"}


def _container(
    name: str, inner: ast.expr, known: dict[str, type], wanted: dict[str, Any]
) -> dict[str, Any]:
    """The schema of tuple[...], Mapping[str, ...] or an array."""
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Mapping":
        return {"type": "object", "additionalProperties": _node(items[1], known, wanted)}
    if name in ("tuple", "list"):
        last = items[-1]
        if name == "list" or (isinstance(last, ast.Constant) and last.value is Ellipsis):
            return {"type": "array", "items": _node(items[0], known, wanted)}
        parts = [_node(item, known, wanted) for item in items]
        size = len(parts)
        return {"type": "array", "prefixItems": parts, "minItems": size, "maxItems": size}
    raise TypeError(f"no schema is known for {name}[...]")


def _object(noun: type, known: dict[str, type], wanted: dict[str, Any]) -> dict[str, Any]:
    """The schema of a noun."""
    hidden = LEFT_OUT.get(noun.__name__, frozenset())
    unknown = UNKNOWN.get(noun.__name__, {})
    properties = {
        f.name: _type(f"{f.type} | None" if f.name in unknown else str(f.type), known, wanted)
        for f in fields(noun)
        if f.name not in hidden
    }
    if noun.__name__ == "Rank":
        properties["facts"] = _facts()
    for name, (annotation, of) in DERIVED.get(noun.__name__, {}).items():
        properties[name] = _described(_type(annotation, known, wanted), cleandoc(of.__doc__ or ""))
    made = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return _described(made, cleandoc(noun.__doc__ or ""))


def _facts() -> dict[str, Any]:
    """The schema of `Rank.facts`, which has what the trace can tell."""
    told = {name: _described({"type": "number"}, text) for name, text in FACTS.items()}
    return {"type": "object", "properties": told, "additionalProperties": False}


def _described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, **schema} if text else schema
