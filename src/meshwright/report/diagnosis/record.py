"""A diagnosis as JSON: the nouns under their own names, but for what only pictures need.

`schema.schema()` describes it; docs/reference/diagnose-schema.json is that, written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from meshwright.report.diagnosis.derived import DERIVED
from meshwright.report.diagnosis.figures import encodable
from meshwright.report.diagnosis.split import split_of

if TYPE_CHECKING:
    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.trace.columns import Group

SCHEMA = "meshwright-diagnose-1"  # changes when a field goes or means something else
LEFT_OUT = {  # fields of nouns that are not in the record
    "Rank": frozenset({"instances", "bars"}),
    "Meta": frozenset({"groups"}),  # all of them stand once, in the record's own "groups"
    "Pipeline": frozenset({"chart"}),
}
UNKNOWN = {  # by noun: fields that are null in the record where a trace does not tell them
    "Collective": {
        **dict.fromkeys(("pg_name", "pg_desc", "pg_ranks", "dtype", "axis"), ""),
        **dict.fromkeys(("group_size", "in_nelems", "out_nelems"), -1),
    },
}


def diagnosis_record(found: Diagnosis) -> dict[str, Any]:
    """All that was found, for `report.machine.to_json`."""
    evidence = found.evidence
    return {
        "schema": SCHEMA,
        "summary": plain(found.summary),
        "step_us": found.step_us,
        "lost_us": found.lost_us,
        "principal": plain(found.principal),
        "second": plain(found.second),
        "split": plain(split_of(evidence)),
        "ranks": plain(evidence.ranks),
        "groups": plain(groups_of(found)),
        "job": plain(evidence.across),
        "pipeline": plain(evidence.pipeline),
        "causes": plain(found.causes),
        "promises": plain(evidence.promises),
        "memory": plain(evidence.memory),
        "nccl": plain(evidence.nccl),
        "metrics": plain(evidence.metrics),
        "guards": plain(found.guards),
        "left": plain(found.left),
    }


def groups_of(found: Diagnosis) -> list[Group]:
    """Process groups of all ranks, each once."""
    groups = (group for rank in found.evidence.ranks for group in rank.meta.groups)
    return list({(group.name, group.ranks): group for group in groups}.values())


def plain(value: Any) -> Any:
    """A value as JSON has it: nouns as objects, tuples as lists, NumPy's numbers as Python's."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bool | float | int | None) and not hasattr(value, "tolist"):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return _noun(value)
    if isinstance(value, Mapping):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _noun(value: Any) -> dict[str, Any]:
    """The fields of a noun that are in the record, and what follows from them."""
    noun = type(value).__name__
    hidden = LEFT_OUT.get(noun, frozenset())
    own = {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.name not in hidden}
    own |= {k: None for k, unknown in UNKNOWN.get(noun, {}).items() if own[k] == unknown}
    return own | {name: plain(of(value)) for name, (_, of) in DERIVED.get(noun, {}).items()}
