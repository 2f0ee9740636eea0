"""meshwright's own plan.toml, read and written by `meshwright.plan.file`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Expressed, Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value
    from meshwright.plan.job import Job

_PLAN = ("plan.tp", "plan.pp", "plan.cp", "plan.ep", "plan.dp", "plan.micro_batch_size")
_WORK = ("workload.seq_len", "workload.global_batch", "workload.global_batch_size", "cluster.gpu")


def recognizes(parsed: Parsed) -> float:
    """By its sections, two of which no other file has together."""
    names = {setting.spelled for setting in parsed.settings}
    plan, work = len(names & {*_PLAN}), len(names & {*_WORK})
    if plan and work:
        return 0.99
    return 0.6 if plan > 1 or work > 1 else 0.0


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the table does not say; see `meaning`."""
    from meshwright.frameworks.meshwright_plan import meaning

    return meaning.interpret(config, values)


def express(job: Job, version: str) -> Expressed:
    """The plan.toml of a job; nothing is lost."""
    from meshwright.frameworks.meshwright_plan import meaning

    return meaning.express(job, version)


def whole(config: Config) -> Job | None:
    """The job of a file that states model, cluster and workload as well as the plan."""
    from meshwright.frameworks.meshwright_plan import meaning

    return meaning.whole(config)


FRAMEWORKS = (
    Framework(
        name="meshwright",
        title="meshwright plan",
        package=__name__,
        syntaxes=("toml", "yaml", "json"),
        file_name="plan.toml",
        scopes=("meshwright",),
        newest="",
        recognizes=recognizes,
        interpret=interpret,
        express=express,
        whole=whole,
        aliases=("plan", "plan.toml"),
    ),
)
