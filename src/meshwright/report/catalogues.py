"""Tables of what meshwright knows: models, GPUs, rules, schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Table, table_of
from meshwright.base.units import format_count, format_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.rules.catalogue import Entry
    from meshwright.rules.constraint import Constraint

Record = dict[str, Any]

_MODEL_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="parameters", title="parameters", align="right"),
    Column(key="active_parameters", title="active", align="right"),
    Column(key="layers", title="layers", align="right"),
    Column(key="hidden_size", title="hidden", align="right"),
    Column(key="vocab_size", title="vocabulary", align="right"),
    Column(key="description", title="description"),
)
_GPU_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="generation", title="generation"),
    Column(key="memory_gib", title="memory GiB", align="right"),
    Column(key="memory_gb_per_s", title="GB/s", align="right"),
    Column(key="bf16_tflops", title="bf16 TFLOP/s", align="right"),
    Column(key="fp8_tflops", title="fp8 TFLOP/s", align="right"),
    Column(key="nvfp4_tflops", title="nvfp4 TFLOP/s", align="right"),
    Column(key="usd_per_gpu_hour", title="$/h", align="right"),
    Column(key="default_node", title="default node"),
)
_FABRIC_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="title", title="network"),
    Column(key="kind", title="kind"),
    Column(key="gbit_per_s", title="Gb/s a port", align="right"),
    Column(key="ports", title="ports"),
    Column(key="aliases", title="also"),
)
_SCHEDULE_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="bubble", title="bubble"),
    Column(key="memory", title="activations held"),
    Column(key="constraints", title="needs"),
    Column(key="paper", title="source"),
)
_STACK_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="kin", title="starts from"),
    Column(key="fitted_on", title="fitted on"),
)
_RULE_COLUMNS = (
    Column(key="code", title="code"),
    Column(key="severity", title="severity"),
    Column(key="section", title="section"),
    Column(key="title", title="title"),
    Column(key="scope", title="holds for", optional=True),
)
_FRAMEWORK_COLUMNS = (
    Column(key="name", title="name"),
    Column(key="title", title="framework"),
    Column(key="syntaxes", title="read from"),
    Column(key="written", title="written as"),
    Column(key="fields", title="fields", align="right"),
    Column(key="newest", title="newest version known"),
    Column(key="aliases", title="also"),
)
_NAME_COLUMNS = (
    Column(key="variable", title="name"),
    Column(key="framework", title="framework"),
    Column(key="spelled", title="spelled"),
    Column(key="meaning", title="meaning", optional=True),
)


def model_records() -> list[Record]:
    """One mapping a preset model."""
    from meshwright.model.catalogue import catalogue, load
    from meshwright.model.count import parameters

    records = []
    for name, description in catalogue().items():
        model = load(name)
        count = parameters(model, mtp=False)
        record = {
            "name": name,
            "parameters": count.total,
            "active_parameters": count.active,
            "layers": model.num_hidden_layers,
            "hidden_size": model.hidden_size,
            "vocab_size": model.vocab_size,
            "description": description,
            "source": model.source,
        }
        records.append(record)
    return records


def gpu_records() -> list[Record]:
    """One mapping a device of the catalogue."""
    from meshwright.hardware.catalogue import describe

    return [dict(record) for record in describe()]


def fabric_records() -> list[Record]:
    """One mapping a network between nodes; each level's oversubscription stands in its file."""
    from meshwright.hardware.records import records

    return [_fabric_record(entry) for entry in records("fabrics")]


def _fabric_record(entry: Mapping[str, Any]) -> Record:
    per_gpu = "nics_per_gpu" in entry
    return {
        "name": entry["slug"],
        "title": entry["title"],
        "kind": entry["kind"],
        "gbit_per_s": entry["nic_gbit_per_s"],
        "ports": entry["nics_per_gpu" if per_gpu else "nics_per_node"],
        "ports_of": "gpu" if per_gpu else "node",
        "aliases": list(entry.get("aliases", ())),
        "source": entry["source"],
    }


def schedule_records() -> list[Record]:
    """One mapping a pipeline schedule."""
    from meshwright.cost.schedules import describe

    return [dict(record) for record in describe()]


def stack_records() -> list[Record]:
    """One mapping a software stack that the time model is calibrated for."""
    from meshwright.cost.calibration import default_calibration

    stacks = default_calibration().stacks
    return [
        {
            "name": name,
            "kin": stack.kin,
            "fitted_on": stack.fitted_on
            or ("medians of the stacks below" if not stack.kin else ""),
        }
        for name, stack in stacks.items()
    ]


def rule_records() -> list[Record]:
    """One mapping a constraint: general rules, demands of frameworks, and what is not checked."""
    from meshwright.report.rules import all_constraints
    from meshwright.rules.catalogue import catalogue

    rules = [rule_record(rule) for rule in all_constraints()]
    known = {record["code"] for record in rules}
    rest = [entry_record(entry) for entry in catalogue() if entry.code not in known]
    return sorted(rules + rest, key=lambda record: str(record["code"]))


def cause_records() -> list[Record]:
    """One mapping a cause that `diagnose` names."""
    from meshwright.report.causes import cause_records as records

    return records()


def framework_records() -> list[Record]:
    """One mapping a framework whose configurations are read."""
    from meshwright.frameworks.framework import all_frameworks

    return [
        {
            "name": item.name,
            "title": item.title,
            "syntaxes": list(item.syntaxes),
            "fields": len(item.table.fields),
            "newest": item.newest,
            "written": item.file_name if item.express else "",
            "aliases": list(item.aliases),
        }
        for item in all_frameworks()
    ]


def name_records() -> list[Record]:
    """One mapping a knob: its shared name, its meaning, and its spellings by framework."""
    from meshwright.frameworks.names import dictionary

    return [
        {
            "variable": entry.variable,
            "meaning": entry.meaning,
            "spellings": {name: list(found) for name, found in entry.spellings.items()},
        }
        for entry in dictionary()
    ]


def holds(word: str, *texts: object) -> bool:
    """Whether a word occurs in one of the texts, "-" and "_" being the same."""
    wanted = word.lower().replace("-", "_")
    return any(wanted in str(text).lower().replace("-", "_") for text in texts)


def entry_record(entry: Entry) -> Record:
    """A constraint of the catalogue that has no rule of its own, for JSON."""
    return {
        "code": entry.code,
        "title": entry.title,
        "severity": entry.status,
        "section": "",
        "scope": entry.reason,
        "status": entry.status,
    }


def entry_page(entry: Entry) -> list[str]:
    """What is known of a constraint that has no rule of its own, as text."""
    kinds = {
        "general": f"checked {entry.reason}",
        "framework": "demanded by one framework only; not checked against a plan",
        "needs": "not checked yet",
    }
    page = [f"{entry.code}: {entry.title}", kinds.get(entry.status, entry.status), "", entry.reason]
    return [*page, "", f"next: meshwright explain {entry.rule}"] if entry.rule else page


def rule_record(rule: Constraint) -> Record:
    """A rule, or what a framework demands, for JSON."""
    return {
        "code": rule.code,
        "title": rule.title,
        "status": "checked",
        "severity": rule.severity.label,
        "section": rule.section,
        "scope": rule.scope,
        "confidence": rule.confidence,
        "source": rule.source,
        "consequence": getattr(rule, "consequence", ""),
        "doc": rule.doc,
    }


def model_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Presets with parameters, total and active, and main dimensions."""
    counts = ("parameters", "active_parameters")
    rows = [
        {**record, **{name: format_count(record[name]) for name in counts}} for record in records
    ]
    return table_of(_MODEL_COLUMNS, rows)


def gpu_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Devices with memory, bandwidth and peak rates."""
    return table_of(_GPU_COLUMNS, [_rounded(record) for record in records])


def fabric_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Networks with the rate of a port and how many there are."""
    rows = [
        {
            **record,
            "gbit_per_s": format_number(record["gbit_per_s"]),
            "ports": f"{record['ports']:g} a {record['ports_of']}",
            "aliases": ", ".join(record["aliases"]),
        }
        for record in records
    ]
    return table_of(_FABRIC_COLUMNS, rows)


def schedule_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Schedules with bubble, memory and constraints."""
    return table_of(_SCHEDULE_COLUMNS, records)


def stack_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Software stacks with what they were fitted on."""
    return table_of(_STACK_COLUMNS, records)


def rule_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Rules with code, severity, section, title and what they hold for."""
    scopes = [
        r["scope"] if r["status"] == "checked" and r["scope"] != "all" else "" for r in records
    ]
    rows = [{**r, "scope": scope} for r, scope in zip(records, scopes, strict=True)]
    return table_of(_RULE_COLUMNS, rows)


def cause_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Causes with code, class, title and what they need."""
    from meshwright.report.causes import cause_table as table

    return table(records)


def framework_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Frameworks with what they are read from and written as."""
    rows = [
        {**r, "syntaxes": ", ".join(r["syntaxes"]), "aliases": ", ".join(r["aliases"])}
        for r in records
    ]
    return table_of(_FRAMEWORK_COLUMNS, rows)


def name_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Knobs with a line for each framework that has them."""
    rows: list[Record] = []
    for record in records:
        head = {"variable": record["variable"], "meaning": record["meaning"]}
        for framework, spelled in record["spellings"].items() or [("", [])]:
            rows.append({**head, "framework": framework, "spelled": ", ".join(spelled)})
            head = {}
    return table_of(_NAME_COLUMNS, rows)


def _rounded(record: Mapping[str, Any]) -> Record:
    """Numbers to three digits; a rate of zero means the device has none."""
    return {
        key: format_number(value) if isinstance(value, int | float) and value else value or None
        for key, value in record.items()
    }
