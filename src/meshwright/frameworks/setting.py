"""What stands in a file: one stated setting, with the stretch of text that states it."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from meshwright.base.finding import Label
from meshwright.base.locate import Lines
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.base.finding import Finding
    from meshwright.base.locate import Place


class _Unknown:
    """A value that is stated but cannot be read without executing something."""

    def __repr__(self) -> str:
        return "unknown"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text and how it is written: "shell", "json", "toml", "yaml", "python" or "overrides"."""

    file: str
    text: str
    syntax: str

    @cached_property
    def lines(self) -> Lines:
        """Offsets as lines and columns."""
        return Lines(self.text)

    def place(self, offset: int) -> Place:
        """Line and column of a character."""
        return self.lines.place(offset)


@dataclass(frozen=True, slots=True)
class Span:
    """The characters of a text from `start` up to `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One name with its value, as a file states it.

    `name` is the field's canonical name once a table has resolved it, before that as `spelled`:
    "--micro-batch-size" in argument lists, a dotted path ("training.seq_len") elsewhere. `value` is
    typed by the field, or as the syntax types it. `where` is the stretch of the value (of a
    variable's assignment where an argument only names the variable), `key` that of the name, and
    `whole` of both with what separates them, so that cutting it removes the setting.
    """

    name: str
    spelled: str
    value: Any
    source: Source
    key: Span
    where: Span
    whole: Span

    def replace(self, **changes: Any) -> Setting:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def label(self, text: str) -> Label:
        """A label at the value."""
        place = self.source.place(self.where.start)
        stop = self.source.text.find("\n", self.where.start, self.where.end)
        end = self.where.end if stop < 0 else stop
        return Label(
            text=text,
            file=self.source.file,
            line=place.line,
            column=place.column,
            length=max(end - self.where.start, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value of a variable and the settings that state it.

    Without settings it is the framework's default (`default`) or follows from other values.
    """

    value: Any
    settings: tuple[Setting, ...] = ()
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """One source as its syntax yields it, before any table is asked.

    `settings` are in order of the text, with repeats. `launch` holds what a launcher line, a job
    header or a remark says of the machine: num_gpus, num_nodes, gpus_per_node, and `environment`,
    a mapping of variables. `programs` are the words that tell frameworks apart ("pretrain_gpt.py",
    "accelerate launch", "megatron sft"). `references` name other configuration files. `remarked`
    are settings that stand in comments, as "# trainer: learning_rate=5e-5".
    """

    source: Source
    settings: tuple[Setting, ...]
    launch: Mapping[str, Value] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    references: tuple[Setting, ...] = ()
    remarked: tuple[Setting, ...] = ()
    findings: tuple[Finding, ...] = ()
