"""The pages of docs/reference, as Markdown made from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from data_reference import data_page
from meshwright.base.units import format_count, format_number
from meshwright.frameworks.framework import all_frameworks
from page_parts import codes, joined, table, title

if TYPE_CHECKING:
    from meshwright.frameworks.field import Field
    from meshwright.frameworks.framework import Framework


def pages() -> dict[str, str]:
    """Text of every reference page by its name."""
    return {
        "rules": rules_page(),
        "causes": causes_page(),
        "models": models_page(),
        "gpus": gpus_page(),
        "schedules": schedules_page(),
        "terms": terms_page(),
        "cli": cli_page(),
        "names": names_page(),
        "data": data_page(),
        "frameworks": frameworks_page(),
        **{f"frameworks/{item.name}": framework_page(item) for item in all_frameworks()},
    }


def rules_page() -> str:
    """Every rule by section, with what goes wrong, why, and its source."""
    from meshwright.report.rules import all_constraints, rules_markdown

    rules = all_constraints()
    demands = sum(not rule.is_general for rule in rules)
    head = (
        f"{len(rules)} rules: {len(rules) - demands} hold for every framework, {demands} are "
        "demands of one or a few of them. `meshwright explain CODE` prints one of them."
    )
    return joined([title("Rules"), head, "", rules_markdown(rules)])


def causes_page() -> str:
    """Every cause that `diagnose` names, by class."""
    from meshwright.diagnose.causes.rule import all_causes
    from meshwright.report.causes import causes_markdown

    head = (
        f"What `meshwright diagnose` looks for: {len(all_causes())} causes. Each says nothing "
        "without the evidence it needs. `meshwright explain CODE` prints one of them."
    )
    return joined([title("Causes"), head, "", causes_markdown()])


def names_page() -> str:
    """The dictionary of knobs across frameworks."""
    from meshwright.report.catalogues import name_records

    rows = [
        [
            f"`{r['variable']}`",
            r["meaning"],
            "<br>".join(f"{name}: {codes(found)}" for name, found in r["spellings"].items()),
        ]
        for r in name_records()
    ]
    note = "What each framework calls the same knob. `meshwright show names WORD` searches it."
    return joined([title("Names"), note, "", *table(("name", "meaning", "spelled"), rows)])


def frameworks_page() -> str:
    """The frameworks whose configurations are read and written."""
    from meshwright.report.catalogues import framework_records

    rows = [
        [
            f"[{r['name']}](frameworks/{r['name']}.md)",
            r["title"],
            ", ".join(r["syntaxes"]),
            f"`{r['written']}`" if r["written"] else "",
            r["fields"],
            r["newest"],
            ", ".join(r["aliases"]),
        ]
        for r in framework_records()
    ]
    head = (
        "name",
        "framework",
        "read from",
        "written as",
        "fields",
        "newest version known",
        "also",
    )
    note = "`meshwright check` reads these, `meshwright convert --to NAME` writes them."
    return joined([title("Frameworks"), note, "", *table(head, rows)])


def framework_page(item: Framework) -> str:
    """The table of fields of one framework: those with a shared name, then the others' names."""
    shared = [field for field in item.table.fields if field.variable]
    rest = dict.fromkeys(field.name for field in item.table.fields if not field.variable)
    rows = [
        [
            f"`{f.name}`",
            codes(f.aliases),
            f.type,
            "" if f.default in (None, "") else f"`{f.default}`",
            _versions(f),
            f"`{f.variable}`",
            f.meaning,
        ]
        for f in shared
    ]
    head = ("field", "also spelled", "type", "default", "versions", "shared name", "meaning")
    note = (
        f"Defaults are those of version {item.newest}, the newest that was looked at. "
        "What several frameworks have goes by one shared name, see [names](../names.md)."
    )
    text = [title(item.title), note, "", *table(head, rows)]
    if rest:
        text += ["", "Known, kept as they stand, and not judged:", "", codes(sorted(rest))]
    return joined(text)


def _versions(item: Field) -> str:
    """ "0.14 to 0.16", "from 0.14", "to 0.16" or "" for all."""
    if item.since and item.until:
        return f"{item.since} to {item.until}"
    return f"from {item.since}" if item.since else f"to {item.until}" if item.until else ""


def models_page() -> str:
    """Presets with parameters and source."""
    from meshwright.report.catalogues import model_records

    rows = [
        [
            r["name"],
            format_count(r["parameters"]),
            format_count(r["active_parameters"]),
            r["layers"],
            r["hidden_size"],
            r["source"],
        ]
        for r in model_records()
    ]
    head = ("name", "parameters", "active", "layers", "hidden", "source")
    return joined(
        [title("Models"), "Any other model is read from its config.json.", "", *table(head, rows)]
    )


def gpus_page() -> str:
    """Devices with rates, price and source."""
    from meshwright.report.catalogues import gpu_records

    keys = ("memory_gib", "memory_gb_per_s", "bf16_tflops", "fp8_tflops", "usd_per_gpu_hour")
    rows = [
        [r["name"], r["generation"], *(_number(r[k]) for k in keys), r["default_node"], r["source"]]
        for r in gpu_records()
    ]
    head = (
        "name",
        "generation",
        "GiB",
        "GB/s",
        "bf16 TFLOP/s",
        "fp8 TFLOP/s",
        "$/h",
        "node",
        "source",
    )
    return joined(
        [
            title("GPUs"),
            "Dense rates. `docs/guides/add-a-gpu.md` adds one.",
            "",
            *table(head, rows),
        ]
    )


def schedules_page() -> str:
    """Pipeline schedules with bubble, memory and paper."""
    from meshwright.report.catalogues import schedule_records

    keys = ("name", "bubble", "memory", "constraints", "exactness", "paper")
    head = ("name", "bubble", "activations held", "needs", "closed form exact when", "source")
    rows = [[r[key] for key in keys] for r in schedule_records()]
    return joined([title("Schedules"), *table(head, rows)])


def terms_page() -> str:
    """The terms of a prediction with formula and source, from a plan that has most of them."""
    from meshwright import api
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

    job = Job(
        model=api.load_model("mixtral-8x7b"),
        cluster=api.cluster("H100:8", nodes=4),
        workload=api.workload(seq_len=4096, global_batch=256),
        plan=Plan(tp=2, pp=2, cp=2, ep=4, dp=4),
    )
    terms = api.predict(job).terms
    rows = [
        [f"`{name}`", t.unit, t.formula, t.evidence, t.source]
        for name, t in sorted(terms.items())
        if ".stage1" not in name
    ]
    head = ("term", "unit", "formula", "evidence", "source")
    note = (
        "`memory.stage0` stands for every pipeline stage. `meshwright explain FILE TERM` fills in."
    )
    return joined([title("Terms"), note, "", *table(head, rows)])


def cli_page() -> str:
    """The help of every command."""
    from meshwright.cli.main import COMMANDS, cli

    text = [title("Command line"), "```text", _help(cli, "meshwright"), "```"]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is not None:
            text += _section(command, f"meshwright {name}", rank="##")
    return joined(text)


def _section(command: click.Command, name: str, *, rank: str) -> list[str]:
    """The help of a command, and of those below it."""
    heading = f"{rank} {name.removeprefix('meshwright ')}"
    text = ["", heading, "", "```text", _help(command, name), "```"]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                text += _section(found, f"{name} {below}", rank=f"{rank}#")
    return text


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    return command.get_help(context).rstrip()


def _number(value: float | None) -> str:
    return format_number(value) if value else ""
