"""A framework: its table, and what the table cannot say."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.frameworks.field import Table, load_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.frameworks.reading import Config, Reading
    from meshwright.frameworks.setting import Parsed, Setting, Value
    from meshwright.plan.job import Job

PACKAGE = "meshwright.frameworks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """A job in a framework's words: settings by field name, and what it cannot say.

    `lost` maps a variable to the reason why the framework has no place for its value; `refused` to
    the reason why it cannot run such a plan at all. `launch` is what the launcher must be told:
    num_gpus, num_nodes, gpus_per_node, environment. `text` is the whole file where a framework
    writes its own, `beside` the settings of files that stand beside it, by name; `syntax`,
    `file_name` and `program` are those of the version that was asked for, "" for the framework's
    usual ones.
    """

    settings: Mapping[str, Any]
    text: str = ""
    syntax: str = ""
    file_name: str = ""
    program: str = ""
    launch: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework.

    `name` is what users type ("megatron-lm"); `package` holds its `fields.csv`. `recognizes` tells
    how surely a parsed source is this framework's, 0 to 1. `interpret` returns the variables that
    the table alone does not give (or gets wrong), from the config and the table's values. `express`
    is its inverse: the settings that state a job. `syntaxes` are those it is read from; the first
    is the one it is written in, under `file_name`. `scopes` are the names under which rules may
    demand something of it with its own version numbers, `below` packages that it runs on, whose
    version is not known; `companions` are frameworks whose settings or files stand beside its own.
    `newest` is the newest version that was looked at, and `stack` the entry of the calibration that
    predicts it. `version_of` tells the version that a source's own words betray, "" where they do
    not. `whole` is the job of a configuration that states model and hardware as well. `leaves`
    are variables that its files have no place for because the program around it decides them.
    """

    name: str
    title: str
    package: str
    syntaxes: tuple[str, ...]
    file_name: str
    scopes: tuple[str, ...]
    below: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    newest: str
    recognizes: Callable[[Parsed], float]
    interpret: Callable[[Config, Mapping[str, Value]], Mapping[str, Value]]
    express: Callable[[Job, str], Expressed] | None = None
    version_of: Callable[[Parsed], str] | None = None
    shipped: Callable[[Setting], Reading | None] | None = None
    whole: Callable[[Config], Job | None] | None = None
    aliases: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    stack: str = "default"

    @property
    def table(self) -> Table:
        """The fields, read when first needed."""
        return load_table(self.package, self.name)


@cache
def all_frameworks() -> tuple[Framework, ...]:
    """Every framework under this package, by name; one exists by defining `FRAMEWORK(S)`."""
    package = importlib.import_module(PACKAGE)
    found: dict[str, Framework] = {}
    for module in pkgutil.iter_modules(package.__path__, PACKAGE + "."):
        if module.ispkg:
            for item in getattr(importlib.import_module(module.name), "FRAMEWORKS", ()):
                found[item.name] = item
    return tuple(found[name] for name in sorted(found))


def framework(name: str) -> Framework:
    """The framework of a name or alias; UnknownName otherwise."""
    wanted = name.strip().lower().replace("_", "-")
    for item in all_frameworks():
        if wanted in (item.name, *item.aliases):
            return item
    known = [item.name for item in all_frameworks()]
    raise UnknownName("framework", name, suggestions=nearest(name, known) or tuple(known))
