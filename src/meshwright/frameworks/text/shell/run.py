"""A script followed from top to bottom without running anything: which commands, with what."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Span
from meshwright.frameworks.text.shell.conditions import holds, matches
from meshwright.frameworks.text.shell.expand import Argument, Bit, Growth, Scope, Variable
from meshwright.frameworks.text.shell.grammar import Branches, Function, Loop, Simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from meshwright.frameworks.text.shell.grammar import Assignment, Node

_T = TypeVar("_T")
_FLAG = pattern(r"(?:^|\s)--?[A-Za-z]")
_DEEPEST_CALL = 8
_MOST_COMMANDS = 20_000
_READS_SCRIPTS = frozenset({"bash", "sh", "sbatch", "srun", "ssh", "qsub", "bsub", "pdsh"})


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its arguments, and the variables that are set for it alone."""

    arguments: tuple[Argument, ...]
    environment: tuple[tuple[str, Argument, Span], ...]
    start: int
    end: int


@dataclass(slots=True)
class Run:
    """What a script comes to: its commands in order and its variables at the end."""

    scope: Scope
    inner: Callable[[int], tuple[Node, ...]] = lambda _at: ()  # the script in a here-document
    commands: list[Command] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    places: dict[str, Span] = field(default_factory=dict)  # of the assignment of a name
    functions: dict[str, Function] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    branchings: int = 0
    steps: int = 0
    depth: int = 0

    def follow(self, nodes: Iterable[Node]) -> None:
        """Goes through commands in order."""
        for node in nodes:
            self.steps += 1
            if self.steps > _MOST_COMMANDS:
                raise Growth(0)
            if isinstance(node, Simple):
                self.simple(node)
            elif isinstance(node, Branches):
                self.branches(node)
            elif isinstance(node, Loop):
                self.loop(node)
            else:
                self.functions[node.name] = node

    def uncalled(self) -> None:
        """Reads the functions that nothing called, so that what they say is not lost."""
        for name, function in tuple(self.functions.items()):
            if name not in self.called:
                self.called.add(name)
                self.follow(function.body)

    def simple(self, node: Simple) -> None:
        """Assigns, calls a function, or notes a command."""
        if not node.words or node.exports:
            for assignment in node.assignments:
                self.assign(assignment)
            names = {a.name for a in node.assignments} | {w.bare or "" for w in node.words}
            self.exported |= names if node.exports else set()
            return
        arguments = self.scope.arguments_of(node.words)
        function = self.functions.get(arguments[0].text or "") if arguments else None
        if function is not None:
            self.call(function, arguments[1:])
            return
        environment = tuple(
            (a.name, Argument(self.scope.value(a.word)), Span(a.word.start, a.word.end))
            for a in node.assignments
        )
        self.commands.append(Command(tuple(arguments), environment, node.start, node.end))
        name = (arguments[0].text or "").rpartition("/")[2] if arguments else ""
        if node.documents and name in _READS_SCRIPTS and self.depth < _DEEPEST_CALL:
            self.depth += 1
            for document in node.documents:
                self.follow(self.inner(document))
            self.depth -= 1

    def assign(self, node: Assignment) -> None:
        """Sets or lengthens a variable."""
        before = self.scope.variables.get(node.name)
        self.places.setdefault(node.name, Span(node.word.start, node.word.end))
        if node.items is not None:
            items = tuple(self.scope.arguments_of(node.items))
            old = before.items or () if node.adds and before is not None else ()
            self.scope.variables[node.name] = Variable(items=(*old, *items))
            return
        bits = tuple(self.tagged(bit, node) for bit in self.scope.value(node.word))
        if not node.adds or before is None:
            self.scope.variables[node.name] = Variable(bits)
        elif before.items is None:
            self.scope.spend(len(before.bits), node.word.start)
            self.scope.variables[node.name] = Variable((*before.bits, *bits))

    def tagged(self, bit: Bit, node: Assignment) -> Bit:
        """A bit that this assignment writes itself, marked with the branches it stands in."""
        own = node.word.start <= bit.where.start and bit.where.end <= node.word.end
        return replace(bit, tags=bit.tags | self.scope.tags) if own else bit

    def call(self, function: Function, arguments: list[Argument]) -> None:
        """Goes through a function with its arguments."""
        self.called.add(function.name)
        if self.depth >= _DEEPEST_CALL:
            return
        outer, self.scope.arguments = self.scope.arguments, tuple(arguments)
        self.depth += 1
        self.follow(function.body)
        self.depth -= 1
        self.scope.arguments = outer

    def loop(self, node: Loop) -> None:
        """Goes through a loop once; its variable is known if it takes one value."""
        values = self.scope.arguments_of(node.words) if node.name else []
        if len(values) == 1:
            self.scope.variables[node.name] = Variable(values[0].bits)
        elif node.name:
            why = f"the values of ${node.name} in a loop"
            place = values[0].where if values else Span(0, 0)
            self.scope.variables[node.name] = Variable((Bit(None, place, place, why=why),))
        self.follow(node.body)

    def branches(self, node: Branches) -> None:
        """Takes the one branch that is known to be taken, or else reads all that may be."""
        possible, certain = self.possible(node)
        if len(possible) == 1 and certain:
            self.follow(possible[0][1])
            return
        self.branchings += 1
        before, tags = self.scope.variables, self.scope.tags
        ends: list[dict[str, Variable]] = [] if certain else [before]
        for number, (_, body) in enumerate(possible):
            self.scope.variables = dict(before)
            self.scope.tags = tags | {(self.branchings, number)}
            self.scope.spend(len(before), 0)
            self.follow(body)
            ends.append(self.scope.variables)
        self.scope.tags = tags
        self.scope.variables = merged(ends, before, self.scope.note)

    def possible(self, node: Branches) -> tuple[list[tuple[tuple[Node, ...], ...]], bool]:
        """The branches that may be taken, and whether one of them must be."""
        found: list[tuple[tuple[Node, ...], ...]] = []
        for number, branch in enumerate(node.branches):
            verdict = self.verdict(node, number)
            if verdict is not False:
                found.append(branch)
            if verdict is True:
                return found, True
        return found, node.complete

    def verdict(self, node: Branches, number: int) -> bool | None:
        """Whether a branch is taken, None where the file does not say."""
        if node.subject is not None:
            return matches(node.subject, node.patterns[number], self.scope)
        condition = node.branches[number][0]
        if not condition:  # an else
            return True
        return holds(condition, self.scope)


def merged(
    ends: Sequence[dict[str, Variable]],
    before: dict[str, Variable],
    note: Callable[[str, str, int], None],
) -> dict[str, Variable]:
    """The variables after branches: what only some set holds, what they set differently is
    unknown, and lists keep what any of them added."""
    result: dict[str, Variable] = {}
    for name in dict.fromkeys(name for end in ends for name in end):
        values = list(dict.fromkeys(end[name] for end in ends if name in end))
        result[name] = values[0] if len(values) == 1 else _either(name, values, before, note)
    return result


def _either(
    name: str,
    values: list[Variable],
    before: dict[str, Variable],
    note: Callable[[str, str, int], None],
) -> Variable:
    if all(value.items is not None for value in values):
        return Variable(items=_joined([value.items or () for value in values]))
    texts = {value.text for value in values}
    if len(texts) == 1 and None not in texts:
        return values[0]
    if all(value.items is None and _is_argument_list(value) for value in values):
        return Variable(_joined([value.bits for value in values], between=_BLANK))
    differing = [value for value in values if value != before.get(name)]
    place = differing[0].bits[0].where if differing[0].bits else Span(0, 0)
    what = f"${name} of two branches"
    note(what, "differs", place.start)
    return Variable((Bit(None, place, place, why=what),))


_BLANK = Bit(" ", Span(0, 0), Span(0, 0))


def _joined(lists: list[tuple[_T, ...]], *, between: _T | None = None) -> tuple[_T, ...]:
    """The common beginning of lists, then the rest of each."""
    shared = 0
    while all(len(x) > shared for x in lists) and len({x[shared] for x in lists}) == 1:
        shared += 1
    found = list(lists[0][:shared])
    for item in lists:
        if item[shared:]:
            found += [between] if between is not None and found else []
            found += item[shared:]
    return tuple(found)


def _is_argument_list(value: Variable) -> bool:
    text = "".join(bit.text or "" for bit in value.bits).strip()
    return not text or bool(_FLAG.search(text))
