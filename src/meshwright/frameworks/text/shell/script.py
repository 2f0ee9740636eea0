"""A shell script, or a list of flags or overrides, as settings and facts of its launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.locate.document import malformed
from meshwright.frameworks.setting import UNKNOWN, Parsed, Setting, Span, Value
from meshwright.frameworks.text.references import names_a_file
from meshwright.frameworks.text.shell.arguments import Stated, settings_of
from meshwright.frameworks.text.shell.expand import Argument, Growth, Scope, split
from meshwright.frameworks.text.shell.facts import launch_values
from meshwright.frameworks.text.shell.grammar import parse_script
from meshwright.frameworks.text.shell.headers import Headers, batch_headers
from meshwright.frameworks.text.shell.launchers import Launch, read_launch
from meshwright.frameworks.text.shell.lexer import Lexer, Word
from meshwright.frameworks.text.shell.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.base.errors import InvalidInput
    from meshwright.frameworks.setting import Source
    from meshwright.frameworks.text.shell.grammar import Node, Script
    from meshwright.frameworks.text.shell.run import Command

_DEEPEST = 4  # commands within commands
_MOST_NOTES = 100


def parse_shell(source: Source) -> Parsed:
    """The settings of every command in a script; InvalidInput where it is nested without end."""
    reading = _Reading(source)
    try:
        return reading.parsed()
    except Growth as growth:
        raise _too_large(source, growth) from None
    except RecursionError:
        raise malformed(source.file, "nested too deep") from None


def parse_overrides(source: Source) -> Parsed:
    """Overrides, one a line or several: arguments without a program."""
    reading = _Reading(source)
    lexer = Lexer(source.text, source.file)
    words = [token for token in lexer.tokens() if isinstance(token, Word)]
    try:
        arguments = Scope(reading.note).arguments_of(words)
    except Growth as growth:
        raise _too_large(source, growth) from None
    settings = tuple(item.setting for item in settings_of(arguments, source))
    return Parsed(
        source=source,
        settings=settings,
        references=tuple(item for item in settings if names_a_file(item)),
        findings=tuple(reading.findings.values()),
    )


def settings_in(source: Source, span: Span) -> list[Setting]:
    """The settings of a stretch of text that is a list of arguments, as in a comment."""
    words = Lexer(source.text, source.file, at=span.start, stop=span.end).tokens()
    scope = Scope(_silent)
    try:
        arguments = scope.arguments_of(word for word in words if isinstance(word, Word))
    except Growth:
        return []
    return [item.setting for item in settings_of(arguments, source)]


def launches_in(source: Source, span: Span) -> tuple[dict[str, Value], list[str]]:
    """The facts and programs of a stretch of text that is a command, as in a comment."""
    words = Lexer(source.text, source.file, at=span.start, stop=span.end).tokens()
    try:
        arguments = Scope(_silent).arguments_of(w for w in words if isinstance(w, Word))
    except Growth:
        return {}, []
    launch = read_launch(arguments)
    if launch is None:
        return {}, []
    return launch_values(source, [launch], Run(Scope(_silent)), Headers()), launch.programs


def _silent(what: str, why: str, at: int) -> None:
    """Drops a note."""


def _too_large(source: Source, growth: Growth) -> InvalidInput:
    place = source.place(growth.at)
    return malformed(source.file, "its variables multiply without end", place=place)


@dataclass(slots=True)
class _Reading:
    source: Source
    findings: dict[str, Finding] = field(default_factory=dict)
    stated: list[Stated] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    references: list[Setting] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)  # the unknown things that a setting hangs on

    def parsed(self) -> Parsed:
        script = parse_script(self.source.text, self.source.file)
        run = Run(Scope(self.note), lambda at: self.document(script, at))
        headers = batch_headers(self.source)
        run.scope.variables.update(headers.variables)
        run.follow(script.nodes)
        run.uncalled()
        for command in run.commands:
            self.command(command.arguments, command)
        self.unused_lists(run)
        settings = self.agreed()
        return Parsed(
            source=self.source,
            settings=settings,
            launch=launch_values(self.source, self.launches, run, headers),
            programs=tuple(dict.fromkeys(p for x in self.launches for p in x.programs)),
            references=(*self.references, *(s for s in settings if names_a_file(s))),
            findings=tuple(f for what, f in self.findings.items() if what in self.needed),
        )

    def document(self, script: Script, at: int) -> tuple[Node, ...]:
        """The commands of a here-document."""
        start, stop = script.documents.get(at, (0, 0))
        return parse_script(self.source.text, self.source.file, at=start, stop=stop).nodes

    def note(self, what: str, why: str, at: int) -> None:
        """Keeps one finding for each thing that cannot be known."""
        if what in self.findings or len(self.findings) >= _MOST_NOTES:
            return
        place = self.source.place(at)
        self.findings[what] = Finding(
            code="CFG106",
            message=f"{what} {why}: what hangs on it is not known",
            severity=Severity.INFO,
            file=self.source.file,
            line=place.line,
            column=place.column,
            key=what,
            reason=why,
            hint="write its value into the file to have it checked",
        )

    def command(
        self, arguments: Sequence[Argument], command: Command | None, level: int = 0
    ) -> None:
        first = arguments[0].text if arguments else ""
        if first in ("source", "."):
            name = (arguments[1].text if len(arguments) > 1 else None) or "a file"
            self.note(name, "is read by the script but not here", arguments[0].where.start)
            self.needed.add(name)
        launch = read_launch(arguments)
        if launch is None:
            return
        if command is not None:
            launch.environment = [*command.environment, *launch.environment]
        self.launches.append(launch)
        if launch.nested is not None and level < _DEEPEST:
            for part in _commands(split(launch.nested)):
                self.command(part, None, level + 1)
        self.needed |= unknown_in([*launch.options, *launch.rest, *(f.value for f in launch.facts)])
        self.stated += settings_of(launch.options, self.source)
        self.stated += settings_of(launch.rest, self.source)
        if launch.script is not None:
            self.reference(launch.script)

    def reference(self, script: Argument) -> None:
        """A YAML or JSON file as a program's first argument: `axolotl train config.yaml`."""
        text = script.text or ""
        if not text.endswith((".yaml", ".yml", ".json", ".toml")):
            return
        where = script.where
        self.references.append(
            Setting(
                name="config",
                spelled="config",
                value=text,
                source=self.source,
                key=where,
                where=where,
                whole=Span(where.start, where.start),
            )
        )

    def unused_lists(self, run: Run) -> None:
        """Lists of flags that no command takes: the file is read by another script."""
        for name, variable in run.scope.variables.items():
            if name in run.scope.used:
                continue
            items = variable.items
            if items is None and variable.text and variable.text.lstrip().startswith("--"):
                items = tuple(split(Argument(variable.bits)))
            if items and (items[0].text or "").startswith("--"):
                self.stated += settings_of(items, self.source)

    def agreed(self) -> tuple[Setting, ...]:
        """The settings; one that branches of the script state differently is unknown."""
        values: dict[str, list[Stated]] = {}
        for item in self.stated:
            values.setdefault(_plain(item.setting.name), []).append(item)
        doubtful = {name for name, items in values.items() if _differ(items)}
        for name in sorted(doubtful):
            at = values[name][0].setting.where.start
            self.note(values[name][0].setting.name, "differs between branches of the script", at)
            self.needed.add(values[name][0].setting.name)
        return tuple(
            s.setting.replace(value=UNKNOWN) if _plain(s.setting.name) in doubtful else s.setting
            for s in self.stated
        )


def unknown_in(arguments: Iterable[Argument]) -> set[str]:
    """What the values of arguments hang on that cannot be known."""
    return {b.why for a in arguments if a.readable is None for b in a.bits if b.text is None}


def _commands(arguments: list[Argument]) -> list[list[Argument]]:
    """The commands of a text that was split at blanks: `cd x && torchrun ...`."""
    found: list[list[Argument]] = [[]]
    for argument in arguments:
        text = argument.text or ""
        if text in ("&&", "||", ";", "|", "&"):
            found.append([])
            continue
        found[-1].append(argument)
        if text.endswith(";"):
            found.append([])
    return [part for part in found if part]


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _differ(items: list[Stated]) -> bool:
    """Whether alternatives of a script state different values of one setting."""
    if len({item.branches for item in items}) < 2:
        return False
    first: Any = items[0].setting.value
    return any(item.setting.value != first for item in items[1:])
