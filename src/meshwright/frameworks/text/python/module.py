"""A Python module: the configuration that it, or one of its recipe functions, builds."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.base.locate.document import Place, malformed
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN, Parsed, Setting, Span, Value
from meshwright.frameworks.text.python.objects import Builder, Entry, Names, Object, TooLarge
from meshwright.frameworks.text.python.values import Text, constant, dotted_name
from meshwright.frameworks.text.references import references_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.frameworks.setting import Source

_DEEPEST_CALL = 8
_MOST_STATEMENTS = 50_000
_BARE = pattern(r"(?:.*_)?(?:config|cfg|conf|args|kwargs|params|options)\d?\Z", re.IGNORECASE)
_LINE_REST = pattern(r"[ \t]*,?[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
_BLANKS = pattern(r"[ \t\r\n]*")


def parse_python(source: Source) -> Parsed:
    """The settings that a module states; of several recipe functions those of the first."""
    return parse_recipe(source, "")


def parse_recipe(source: Source, name: str) -> Parsed:
    """The settings of one recipe function of a module, with what the module sets itself."""
    try:
        module = _Module(source)
        return module.parsed(name)
    except (TooLarge, RecursionError):
        raise malformed(source.file, "larger or deeper than any configuration") from None


def recipes(source: Source) -> tuple[str, ...]:
    """The functions of a module that build a configuration, in order."""
    return tuple(_Module(source).recipes())


def _tree(source: Source) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text)
    except SyntaxError as error:
        place = Place(error.lineno or 1, error.offset or 1)
        raise malformed(source.file, f"not valid Python: {error.msg}", place=place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deep"
        raise malformed(source.file, f"not valid Python: {reason}") from None


@dataclass(slots=True)
class _Module:
    source: Source
    text: Text = field(init=False)
    builder: Builder = field(init=False)
    names: Names = field(default_factory=Names)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    environment: dict[str, Setting] = field(default_factory=dict)
    made: list[Object] = field(default_factory=list)
    depth: int = 0
    steps: int = 0
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.text = Text(self.source.text)
        self.builder = Builder(self.text, self.call)
        self.tree = _tree(self.source)
        self.functions = {
            node.name: node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def parsed(self, name: str) -> Parsed:
        own = self.follow(self.tree.body, self.names, is_module=True)
        entries = [e for item in [*self.made, own] if not item.used for e in item.entries]
        found: tuple[Finding, ...] = ()
        candidates = [] if any(item.entries for item in self.made) else self.recipes()
        if chosen := name or self.main_recipe(candidates):
            self.made, self.builder.kinds = [], []
            entries += self.of_function(chosen)
            found = self.others(chosen, candidates)
        settings = tuple(self.setting(entry) for entry in entries)
        return Parsed(
            source=self.source,
            settings=settings,
            launch=self.launch(),
            programs=tuple(dict.fromkeys([*self.builder.kinds, *([chosen] if chosen else [])])),
            references=references_in(settings),
            findings=found,
        )

    def recipes(self) -> list[str]:
        """Functions whose result is a configuration and no mere part of another's."""
        found = [name for name in self.functions if self.of_function(name)]
        whole = [name for name in found if name not in self.builder.parts]
        return [name for name in whole if not name.startswith("_")] or whole

    def main_recipe(self, candidates: Sequence[str]) -> str:
        """The one recipe that no other builds on, or else the first."""
        calls = {
            dotted_name(inner.func)
            for name in candidates
            for inner in ast.walk(self.functions[name])
            if isinstance(inner, ast.Call)
        }
        last = [name for name in candidates if name not in calls]
        return last[0] if len(last) == 1 else next(iter(candidates), "")

    def of_function(self, name: str) -> list[Entry]:
        """What a function builds, and the objects in it that are no part of its result."""
        node = self.functions.get(name)
        if node is None:
            return []
        before, self.made = self.made, []
        result = self.enter(node, None, self.names)
        loose = [
            e for item in self.made if not item.used and item is not result for e in item.entries
        ]
        self.made = before
        return [*loose, *result.entries]

    def others(self, chosen: str, candidates: Sequence[str]) -> tuple[Finding, ...]:
        rest = [name for name in candidates if name != chosen]
        if not rest:
            return ()
        shown = ", ".join(rest[:5]) + (", ..." if len(rest) > 5 else "")
        message = f"read {chosen}, one of {len(candidates)} recipes in this file; not {shown}"
        place = self.source.place(self.text.span(self.functions[chosen]).start)
        return (
            Finding(
                message=message,
                severity=Severity.INFO,
                file=self.source.file,
                line=place.line,
                column=place.column,
                reason=message,
            ),
        )

    def call(self, node: ast.Call, names: Names) -> Object | None:
        """The object that a function of this module returns; None for any other call."""
        function = self.functions.get(dotted_name(node.func))
        if function is None or self.depth >= _DEEPEST_CALL:
            return None
        return self.enter(function, node, names)

    def enter(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        call: ast.Call | None,
        names: Names,
    ) -> Object:
        """Goes through a function's body with its defaults and the arguments of a call."""
        scope = self.names.copy()
        for argument in (
            *function.args.posonlyargs,
            *function.args.args,
            *function.args.kwonlyargs,
        ):
            scope.forget(argument.arg)
        for argument, default in _defaults(function.args):
            self.bind(argument.arg, default, scope, scope)
        arguments = [*function.args.posonlyargs, *function.args.args]
        if call is not None:
            for argument, value in zip(arguments, call.args, strict=False):
                self.bind(argument.arg, value, scope, names)
            for keyword in call.keywords:
                if keyword.arg:
                    self.bind(keyword.arg, keyword.value, scope, names)
        self.depth += 1
        result = self.follow(function.body, scope)
        self.depth -= 1
        return result

    def bind(self, name: str, value: ast.AST, scope: Names, names: Names) -> None:
        """Gives a name of `scope` the value that an expression has in `names`."""
        scope.forget(name)
        made = self.builder.object_of(value, names)
        if made is not None:
            scope.objects[name] = made
            self.made.append(made)
            return
        plain, where = self.builder.plain(value, names)
        if plain is not UNKNOWN:
            scope.values[name], scope.places[name] = plain, where

    def follow(self, body: Iterable[ast.stmt], names: Names, *, is_module: bool = False) -> Object:
        """Goes through statements; returns the object that they return."""
        result = Object()
        for node in body:
            self.steps += 1
            if self.steps > _MOST_STATEMENTS:
                raise TooLarge
            if isinstance(node, ast.Return):
                returned = self.builder.object_of(node.value, names) if node.value else None
                if returned is not None:
                    return returned
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.assignment(node, names, result, is_module=is_module)
            elif isinstance(node, ast.AugAssign):
                self.forget(node.target, names)
            elif isinstance(node, ast.Expr):
                self.expression(node.value, names)
            else:
                inner = self.compound(node, names, is_module=is_module)
                result.entries += inner.entries
        return result

    def compound(self, node: ast.stmt, names: Names, *, is_module: bool) -> Object:
        """Both branches of an `if`, the body of a `with` or of a class; no loop is unrolled."""
        result = Object()
        if isinstance(node, ast.ClassDef):
            inner = self.follow(node.body, names.copy(), is_module=True)
            result.entries += inner.entries
            return result
        if isinstance(node, ast.If):
            verdict = constant(node.test, names.values)
            bodies = [node.body] if verdict is True else [node.orelse]
            if not isinstance(verdict, bool):
                bodies = [node.body, node.orelse]
        else:
            bodies = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return result
        for body in bodies:
            inner = self.follow(body, names, is_module=is_module)
            result.entries += inner.entries
        return result

    def expression(self, node: ast.AST, names: Names) -> None:
        """A call that stands alone: `FSDP(model, ...)`, `main(recipe())`."""
        if not isinstance(node, ast.Call):
            return
        if dotted_name(node.func) == "os.environ.setdefault" and len(node.args) == 2:
            self.environ(node.args[0], node.args[1], names)
            return
        made = self.builder.object_of(node, names)
        if made is not None and made.entries:
            self.made.append(made)

    def assignment(
        self, node: ast.Assign | ast.AnnAssign, names: Names, result: Object, *, is_module: bool
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                self.variable(target, node.value, names, result, is_module=is_module)
            elif isinstance(target, ast.Attribute | ast.Subscript):
                self.member(target, node, names)

    def variable(
        self, target: ast.Name, value: ast.AST, names: Names, result: Object, *, is_module: bool
    ) -> None:
        """`name = value`: an object, or a plain value that at the top of a module is a setting."""
        name = target.id
        made = self.builder.object_of(value, names)
        names.forget(name)
        if made is not None:
            named = made.kind == "dict" and not _BARE.match(name)
            if named and not isinstance(value, ast.Name):
                made = Object(made.kind, made.under(name))
            names.objects[name] = made
            self.made.append(made)
            return
        plain, where = self.builder.plain(value, names)
        names.values[name], names.places[name] = plain, where
        if is_module and not name.startswith("_"):
            key = self.text.span(target)
            entry = Entry(name, plain, key, where, Span(key.start, self.text.span(value).end))
            if plain is not UNKNOWN:
                result.entries.append(entry)

    def member(
        self, target: ast.Attribute | ast.Subscript, node: ast.Assign | ast.AnnAssign, names: Names
    ) -> None:
        """`cfg.training.seq_len = 8192`, `config["train"]["x"] = 1`, `os.environ["X"] = "1"`."""
        path = _path(target)
        if path is None or node.value is None:
            return
        if path[:2] == ["os", "environ"] and isinstance(target, ast.Subscript):
            self.environ(target.slice, node.value, names)
            return
        root = names.objects.get(path[0])
        if root is None:
            root = names.objects[path[0]] = Object()
            if path[0] not in ("self", "cls"):
                self.made.append(root)
        whole = self.text.span(target)
        key = (
            Span(whole.end - len(path[-1]), whole.end)
            if isinstance(target, ast.Attribute)
            else whole
        )
        statement = Span(whole.start, self.text.span(node.value).end)
        dotted = ".".join(path[1:])
        self.builder.add(root, dotted, node.value, names, key=key, statement=statement)

    def forget(self, target: ast.AST, names: Names) -> None:
        """`name += ...` makes a name unknown, `cfg.x += 1` a member."""
        if isinstance(target, ast.Name):
            names.forget(target.id)
            return
        path = _path(target)
        root = names.objects.get(path[0]) if path else None
        if root is not None and path is not None:
            span = self.text.span(target)
            root.entries.append(Entry(".".join(path[1:]), UNKNOWN, span, span, span))

    def environ(self, name: ast.AST, value: ast.AST, names: Names) -> None:
        spelled = constant(name, names.values)
        if not isinstance(spelled, str):
            return
        plain, where = self.builder.plain(value, names)
        key = self.text.span(name)
        entry = Entry(spelled, plain, key, where, Span(key.start, key.start))
        self.environment[spelled] = self.setting(entry)

    def launch(self) -> dict[str, Value]:
        if not self.environment:
            return {}
        mapping = {name: item.value for name, item in self.environment.items()}
        return {"environment": Value(value=mapping, settings=tuple(self.environment.values()))}

    def setting(self, entry: Entry) -> Setting:
        return Setting(
            name=entry.path,
            spelled=entry.path,
            value=entry.value,
            source=self.source,
            key=entry.key,
            where=entry.where,
            whole=_cut(self.source.text, entry.statement),
        )


def _defaults(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    """The parameters of a function that have a default, with it."""
    positional = [*arguments.posonlyargs, *arguments.args]
    count = len(arguments.defaults)
    found = list(zip(positional[len(positional) - count :], arguments.defaults, strict=True))
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [(argument, default) for argument, default in pairs if default is not None]


def _path(node: ast.AST) -> list[str] | None:
    """The names of a chain of attributes and of subscripts by text; None of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str | int):
            parts.append(str(node.slice.value))
        else:
            return None
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else None


def _cut(text: str, statement: Span) -> Span:
    """What must go when a keyword or statement goes: its lines, or one comma with it."""
    line = text.rfind("\n", 0, statement.start) + 1
    rest = _LINE_REST.match(text, statement.end)
    if rest and not text[line : statement.start].strip():
        return Span(line, rest.end())
    blanks = _BLANKS.match(text, statement.end)
    after = blanks.end() if blanks else statement.end
    if text.startswith(",", after):
        behind = _BLANKS.match(text, after + 1)
        return Span(statement.start, behind.end() if behind else after + 1)
    before = len(text[: statement.start].rstrip())
    comma = text[before - 1 : before] == ","
    return Span(before - 1 if comma else statement.start, statement.end)
