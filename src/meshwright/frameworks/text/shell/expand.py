"""Words of a script into argument texts, each with the place that really states it."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Span
from meshwright.frameworks.text.shell.arithmetic import Unreadable, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.frameworks.text.shell.lexer import Piece, Word

Tag = tuple[int, int]  # which `if` or `case`, which of its branches
_OUTSIDE = pattern(r"\$\w+\Z")
_STATES = pattern(r"(?:^|\s)(?:--?[A-Za-z]|[+~]{0,2}[A-Za-z_]\w*(?:\.\w+)+=)")
_BLANKS = pattern(r"\s+")
_LIST_NAME = pattern(r"ARGS?|OPT|FLAG|EXTRA|PARAM|CMD|OVERRIDE", re.IGNORECASE)
_MOST_BITS = 2_000
_MOST_WORK = 300_000  # bits of arguments handled
_LONGEST_VALUE = 200_000  # characters


class Growth(Exception):  # noqa: N818 - a bound that was met
    """The variables of a script multiply beyond any use; `at` is where that showed."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True, slots=True)
class Bit:
    """A stretch of an argument; `text` is None where it cannot be known.

    `where` is what states it, `site` where it stands among the arguments: the same, but for a
    variable, which is stated at its assignment. `why` names what is unknown.
    """

    text: str | None
    where: Span
    site: Span
    quoted: bool = False
    why: str = ""
    tags: frozenset[Tag] = frozenset()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command; `tags` are the branches in which it stands."""

    bits: tuple[Bit, ...]
    tags: frozenset[Tag] = frozenset()
    is_list: bool = False  # stands for an unknown number of arguments
    word: Span | None = None  # the word as written, with its quotes

    @property
    def text(self) -> str | None:
        """The text, None where a part of it is unknown."""
        texts = [bit.text for bit in self.bits]
        return None if None in texts else "".join(t for t in texts if t is not None)

    @property
    def is_outside(self) -> bool:
        """Whether all that is unknown of it is set outside of the file."""
        return all(bit.text is not None or _OUTSIDE.match(bit.why) for bit in self.bits)

    @property
    def readable(self) -> str | None:
        """The text; of a path that a variable of the environment begins, with its name in it."""
        text = self.text
        if text is not None or not self.is_outside:
            return text
        parts = [bit.why if bit.text is None else bit.text for bit in self.bits]
        return "".join(parts) if any("/" in (bit.text or "") for bit in self.bits) else None

    @property
    def branches(self) -> frozenset[Tag]:
        """The branches in which it, or a part of it, stands."""
        return self.tags.union(*(bit.tags for bit in self.bits))

    @property
    def where(self) -> Span:
        """The place that states it; where it is written, if several places do."""
        first, last = self.bits[0], self.bits[-1]
        if len(self.bits) == 1:
            return first.where
        if all(bit.where == bit.site for bit in self.bits):
            return Span(first.where.start, max(last.where.end, first.where.start))
        own = [bit for bit in self.bits if bit.text != ""]
        return own[0].where if len(own) == 1 else self.site

    @property
    def site(self) -> Span:
        """The place where it is written."""
        start, end = self.bits[0].site.start, self.bits[-1].site.end
        return Span(start, end) if start <= end else self.bits[0].site


@dataclass(frozen=True, slots=True)
class Variable:
    """A scalar (`bits`) or an array (`items`)."""

    bits: tuple[Bit, ...] = ()
    items: tuple[Argument, ...] | None = None

    @property
    def text(self) -> str | None:
        """The text of a scalar."""
        return Argument(self.bits).text if self.items is None else None


@dataclass(slots=True)
class Scope:
    """Variables at one point of a script; `note` is told of each thing that cannot be known."""

    note: Callable[[str, str, int], None]
    variables: dict[str, Variable] = field(default_factory=dict)
    arguments: tuple[Argument, ...] = ()  # of the function that is called
    used: set[str] = field(default_factory=set)
    tags: frozenset[Tag] = frozenset()
    work: int = 0

    def spend(self, amount: int, at: int) -> None:
        """Counts work; Growth when variables multiply without end."""
        self.work += amount
        if self.work > _MOST_WORK:
            raise Growth(at)

    def arguments_of(self, words: Iterable[Word]) -> list[Argument]:
        """The arguments that words expand to."""
        found: list[Argument] = []
        for word in words:
            found += self.expand(word)
        return found

    def expand(self, word: Word) -> list[Argument]:
        """The arguments of one word: one, or several where a variable is split."""
        expansion = _Expansion(self.tags)
        for piece in word.pieces:
            self.into(expansion, piece)
        found = expansion.finished()
        self.spend(1 + sum(len(a.bits) for a in found), word.start)
        if len(found) == 1:
            return [replace(_at_its_use(found[0], word), word=Span(word.start, word.end))]
        return found

    def value(self, word: Word) -> tuple[Bit, ...]:
        """The bits of an assignment's value, which is not split."""
        bits: list[Bit] = []
        for piece in word.pieces:
            bits += self.scalar(piece)
            self.spend(len(bits) // 100 + 1, piece.start)
        if sum(len(bit.text or "") for bit in bits) > _LONGEST_VALUE or len(bits) > _MOST_BITS:
            return (_unknown(Span(word.start, word.end), "a value that grows without end"),)
        return tuple(bits) or (Bit("", Span(word.start, word.end), Span(word.start, word.end)),)

    def into(self, expansion: _Expansion, piece: Piece) -> None:
        """Adds what a piece expands to."""
        array = self.array_of(piece)
        if array is not None:
            self.spend(sum(len(a.bits) for a in array), piece.start)
            expansion.add_all(array, joined=piece.quoted)
        elif piece.kind == "param" and not piece.quoted:
            expansion.add_split(self.scalar(piece))
        else:
            expansion.add(self.scalar(piece))

    def array_of(self, piece: Piece) -> tuple[Argument, ...] | None:
        """The arguments of `"${NAME[@]}"`, `$@` and `${NAME[*]}`; None of anything else."""
        if piece.kind != "param" or piece.operator.startswith("#"):
            return None
        if piece.name in ("@", "*"):
            if self.arguments:
                return self.arguments
            return ()  # a script that is given none
        if piece.index in ("@", "*"):
            variable = self.variables.get(piece.name)
            self.used.add(piece.name)
            if variable is None and piece.operator.endswith("-"):
                return ()
            if variable is None:
                return (self.unknown_list(piece, f"${piece.name}"),)
            if variable.items is not None:
                return variable.items
        return None

    def unknown_list(self, piece: Piece, what: str) -> Argument:
        """An argument that stands for any number of them."""
        self.note(what, "is set outside of this file", piece.start)
        span = Span(piece.start, piece.end)
        return Argument((_unknown(span, what),), self.tags, is_list=True)

    def scalar(self, piece: Piece) -> list[Bit]:
        """The bits that a piece stands for inside quotes."""
        span = Span(piece.start, piece.end)
        if piece.kind == "text":
            return [Bit(piece.text, span, span, piece.quoted)]
        if piece.kind == "arithmetic":
            return [self.computed(piece.text, span)]
        if piece.kind == "command":
            self.note(_short(piece.text), "is a command's output", piece.start)
            return [_unknown(span, _short(piece.text))]
        return self.parameter(piece, span)

    def computed(self, text: str, span: Span) -> Bit:
        """The value of an arithmetic expansion."""
        try:
            return Bit(str(evaluate(text, self.number)), span, span)
        except (Unreadable, RecursionError):
            self.note(f"$(({_short(text)}))", "has no value that can be computed", span.start)
            return _unknown(span, f"$(({_short(text)}))")

    def number(self, name: str) -> int:
        """The number that a variable holds; Unreadable where it holds none."""
        variable = self.variables.get(name)
        self.used.add(name)
        text = (variable.text or "").strip() if variable is not None else ""
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise Unreadable(name)
        return int(text)

    def parameter(self, piece: Piece, span: Span) -> list[Bit]:
        """`$NAME` with its operator."""
        bits = self.plain_parameter(piece)
        self.spend(1 + sum(1 + len(b.text or "") // 1000 for b in bits or ()), piece.start)
        operator = piece.operator
        if operator.endswith(("-", "=")):
            if bits is None or (
                operator[0] == ":" and Argument(tuple(bits) or (_EMPTY,)).text == ""
            ):
                bits = list(self.inner(piece)) or [Bit("", span, span)]
                if operator.endswith("="):
                    self.variables[piece.name] = Variable(tuple(bits))
            return _with_site(bits, span)
        if operator.endswith("+"):
            return [] if bits is None else list(self.inner(piece))
        if bits is None:
            self.note(f"${piece.name}", "is set outside of this file", piece.start)
            return [_unknown(span, f"${piece.name}")]
        if operator in ("", ":?", "?"):
            return _with_site(bits, span)
        return [self.changed(piece, bits, span)]

    def inner(self, piece: Piece) -> list[Bit]:
        """The bits of the word behind an operator."""
        return [bit for part in piece.word for bit in self.scalar(part)]

    def plain_parameter(self, piece: Piece) -> list[Bit] | None:
        """What a name holds; None where nothing in the file sets it."""
        if piece.name.isdigit():
            position = int(piece.name) - 1
            known = 0 <= position < len(self.arguments)
            return list(self.arguments[position].bits) if known else None
        variable = self.variables.get(piece.name)
        self.used.add(piece.name)
        if variable is None:
            return None
        if piece.operator == "#" and variable.items is not None:
            return [Bit(str(len(variable.items)), _NOWHERE, _NOWHERE)]
        if variable.items is None:
            return list(variable.bits)
        if piece.index not in ("", "0") and not piece.index.isdigit():
            return [bit for item in variable.items for bit in (*item.bits, _SPACE)][:-1]
        position = int(piece.index or "0")
        return list(variable.items[position].bits) if position < len(variable.items) else None

    def changed(self, piece: Piece, bits: list[Bit], span: Span) -> Bit:
        """`${NAME%x}`, `${NAME//a/b}` and their kin, where the parts are known."""
        text = Argument(tuple(bits)).text if bits else ""
        pattern = Argument(tuple(self.inner(piece))).text if piece.word else ""
        result = None if text is None or pattern is None else _edited(text, piece.operator, pattern)
        if result is None:
            self.note(_short(piece.text), "cannot be computed", piece.start)
            return _unknown(span, _short(piece.text))
        return Bit(result, span, span)


class _Expansion:
    """Collects the arguments of one word."""

    def __init__(self, tags: frozenset[Tag]) -> None:
        self.tags = tags
        self.done: list[Argument] = []
        self.bits: list[Bit] = []

    def add(self, bits: Iterable[Bit]) -> None:
        self.bits += bits

    def add_split(self, bits: Iterable[Bit]) -> None:
        """Adds bits that break into arguments at blanks."""
        for bit in bits:
            if bit.text is None or not (bit.text == "" or _BLANKS.search(bit.text)):
                self.bits.append(bit)
                continue
            at = 0
            for blank in _BLANKS.finditer(bit.text):
                if blank.start() > at:
                    self.bits.append(_slice(bit, at, blank.start()))
                self.end()
                at = blank.end()
            if at < len(bit.text):
                self.bits.append(_slice(bit, at, len(bit.text)))

    def add_all(self, arguments: tuple[Argument, ...], *, joined: bool) -> None:
        """Adds an array: its ends join what stands beside them in quotes."""
        for number, argument in enumerate(arguments):
            if number:
                self.end()
            if joined and (number == 0 and self.bits):
                self.bits += argument.bits
                continue
            self.end()
            self.done.append(replace(argument, tags=argument.tags | self.tags))

    def end(self) -> None:
        if self.bits:
            self.done.append(Argument(tuple(self.bits), self.tags))
            self.bits = []

    def finished(self) -> list[Argument]:
        self.end()
        return self.done


_NOWHERE = Span(0, 0)
_EMPTY = Bit("", _NOWHERE, _NOWHERE)
_SPACE = Bit(" ", _NOWHERE, _NOWHERE)


def _unknown(span: Span, why: str) -> Bit:
    return Bit(None, span, span, why=why)


def _short(text: str) -> str:
    """Text on one line, cut at 40 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:37] + "..."


def _with_site(bits: list[Bit], span: Span) -> list[Bit]:
    """Bits as they stand where `span` names them: a value stands there, a list of flags where it
    is written; what has no place of its own gets that of its use."""
    bits = [replace(b, where=span) if b.where is _NOWHERE else b for b in bits]
    states = _STATES.search("".join(bit.text or "" for bit in bits))
    return bits if states else [replace(bit, site=span) for bit in bits]


def _slice(bit: Bit, start: int, end: int) -> Bit:
    """A part of a bit, placed exactly where text and source run alike."""
    text = (bit.text or "")[start:end]
    if bit.where.end - bit.where.start != len(bit.text or ""):
        return replace(bit, text=text)
    where = Span(bit.where.start + start, bit.where.start + end)
    site = where if bit.site == bit.where else bit.site
    return replace(bit, text=text, where=where, site=site)


def _at_its_use(argument: Argument, word: Word) -> Argument:
    """A value that a variable alone gives stands where the variable is named, unless it holds flags
    or overrides (`EXTRA="--bf16"`), which stand, and are cut, where they are written."""
    if _STATES.search("".join(bit.text or "" for bit in argument.bits)):
        return argument
    bits = []
    for bit in argument.bits:
        inside = word.start <= bit.site.start and bit.site.end <= word.end
        bits.append(bit if inside else replace(bit, site=Span(word.start, word.end)))
    return replace(argument, bits=tuple(bits))


def looks_like_list(argument: Argument) -> bool:
    """Whether an unknown argument may stand for several, by what it is called."""
    return argument.is_list or any(
        b.text is None and _LIST_NAME.search(b.why) for b in argument.bits
    )


def _edited(text: str, operator: str, pattern: str) -> str | None:
    """What an editing expansion yields; None where it is none that is read."""
    if operator == "#" and not pattern:
        return str(len(text))
    if operator in ("^^", "^", ",,", ","):
        changed = {"^^": text.upper(), ",,": text.lower()}
        first = text[:1].upper() if operator == "^" else text[:1].lower()
        return changed.get(operator, first + text[1:])
    if operator in ("/", "//"):
        old, _, new = pattern.partition("/")
        plain = old and not set(old) & set("*?[\\#%")
        return text.replace(old, new, -1 if operator == "//" else 1) if plain else None
    if operator in ("#", "##", "%", "%%") and len(text) < 1000 and len(pattern) < 100:
        return _trimmed(text, operator, pattern)
    return None


def _trimmed(text: str, operator: str, pattern: str) -> str:
    """Text without the shortest or longest head or tail that a pattern fits."""
    lengths = range(len(text) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        part = text[:length] if operator[0] == "#" else text[len(text) - length :]
        if fnmatch.fnmatchcase(part, pattern):
            return text[length:] if operator[0] == "#" else text[: len(text) - length]
    return text


def split(argument: Argument) -> list[Argument]:
    """The arguments that a text breaks into at blanks, as `bash -c "$COMMAND"` breaks it."""
    expansion = _Expansion(argument.tags)
    expansion.add_split(argument.bits)
    return expansion.finished()
