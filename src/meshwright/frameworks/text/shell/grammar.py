"""Tokens of a shell script into commands, branches, loops and functions."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.locate.document import DEEPEST
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.text.shell.lexer import Lexer, Operator, Piece, Token, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

_ASSIGNMENT = pattern(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?=)")
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
_ENDS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_SEPARATORS = frozenset({";", "&", "&&", "||", "|", "|&", "\n"})


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value`, `NAME+=value` or `NAME=( ... )` (then `items` are its words)."""

    name: str
    word: Word
    adds: bool = False
    items: tuple[Word, ...] | None = None
    index: str = ""


@dataclass(frozen=True, slots=True)
class Simple:
    """A command: the assignments before it, its words, and whether it declares (export, local)."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    start: int
    end: int
    exports: bool = False
    documents: tuple[int, ...] = ()  # offsets of the operators of its here-documents


@dataclass(frozen=True, slots=True)
class Branches:
    """Alternatives of an `if` or a `case`: (condition, body); `complete` if one must be taken."""

    branches: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    complete: bool
    subject: Word | None = None
    patterns: tuple[tuple[Word, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop; `name` runs through `words` in a `for`."""

    body: tuple[Node, ...]
    name: str = ""
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition."""

    name: str
    body: tuple[Node, ...]


Node = Simple | Branches | Loop | Function


@dataclass(slots=True)
class Script:
    """A parsed script with its here-documents, by the offset of their operator."""

    nodes: tuple[Node, ...]
    documents: dict[int, tuple[int, int]] = field(default_factory=dict)


def parse_script(text: str, file: str = "", *, at: int = 0, stop: int | None = None) -> Script:
    """The commands of `text` between two offsets; InvalidInput when nested too deep."""
    lexer = Lexer(text, file, at=at, stop=stop)
    parser = _Parser(lexer.tokens(), lexer)
    nodes: list[Node] = []
    while parser.at < len(parser.tokens):
        nodes += parser.body(frozenset())
        parser.at += 1  # a word that closes nothing
    return Script(tuple(nodes), lexer.documents)


def is_test(nodes: Sequence[Node]) -> bool:
    """Whether commands are one `[ ... ]`, `[[ ... ]]` or `test`."""
    if len(nodes) != 1 or not isinstance(nodes[0], Simple) or not nodes[0].words:
        return False
    return nodes[0].words[0].bare in ("[", "[[", "test")


class _Parser:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[Token], lexer: Lexer) -> None:
        self.tokens = tokens
        self.lexer = lexer
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def keyword(self) -> str:
        token = self.peek()
        return (token.bare or "") if isinstance(token, Word) else ""

    def is_operator(self, *texts: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return isinstance(token, Operator) and token.text in texts

    def body(self, ends: frozenset[str]) -> list[Node]:
        """Commands up to one of `ends` at the start of a command, or a closing bracket."""
        self.depth += 1
        if self.depth > DEEPEST:
            start = token.start if (token := self.peek()) else 0
            raise self.lexer.refuse(f"nested deeper than {DEEPEST} levels", start)
        nodes: list[Node] = []
        while (token := self.peek()) is not None:
            if isinstance(token, Operator) and token.text in _SEPARATORS:
                self.at += 1
                continue
            if self.is_operator(")", ";;", ";&", ";;&") or self.keyword() in _ENDS:
                if not ends and self.depth == 1:
                    self.at += 1
                    continue
                break
            nodes += self.alternative(self.command())
        self.depth -= 1
        return nodes

    def alternative(self, tested: list[Node]) -> list[Node]:
        """`[ test ] && command` and `[ test ] || command` as the branches that they are."""
        if not is_test(tested) or not self.is_operator("&&", "||"):
            return tested
        is_and = self.is_operator("&&")
        self.at += 1
        while self.is_operator("\n"):
            self.at += 1
        token = self.peek()
        if token is None or (isinstance(token, Operator) and token.text != "("):
            return tested
        self.depth += 1
        rest = tuple(self.alternative(self.command()))
        self.depth -= 1
        branches = ((tuple(tested), rest),) if is_and else ((tuple(tested), ()), ((), rest))
        return [Branches(branches, complete=not is_and)]

    def command(self) -> list[Node]:
        word = self.keyword()
        if word == "if":
            return [self.branches()]
        if word in ("while", "until"):
            return self.loop()
        if word in ("for", "select"):
            return [self.for_loop()]
        if word == "case":
            return [self.case()]
        if word == "function" or self.starts_function():
            return [self.function()]
        if word == "{" or self.is_operator("("):
            return self.group()
        if word in ("!", "time") and isinstance(self.peek(1), Word):
            self.at += 1
            return self.command()
        return self.simple()

    def starts_function(self) -> bool:
        named = isinstance(self.peek(), Word) and self.is_operator("(", ahead=1)
        if not named or not self.is_operator(")", ahead=2):
            return False
        first, bracket = self.peek(), self.peek(1)
        bare = isinstance(first, Word) and first.bare
        return bool(bare) and bracket is not None and not str(bare).endswith("=")

    def expect(self, word: str) -> None:
        if self.keyword() == word:
            self.at += 1

    def branches(self) -> Branches:
        found: list[tuple[tuple[Node, ...], tuple[Node, ...]]] = []
        complete = False
        while self.keyword() in ("if", "elif"):
            self.at += 1
            condition = self.body(frozenset({"then"}))
            self.expect("then")
            found.append((tuple(condition), tuple(self.body(_ENDS))))
        if self.keyword() == "else":
            self.at += 1
            found.append(((), tuple(self.body(_ENDS))))
            complete = True
        self.expect("fi")
        return Branches(tuple(found), complete)

    def loop(self) -> list[Node]:
        self.at += 1
        condition = self.body(frozenset({"do"}))
        return [*condition, Loop(self.loop_body())]

    def loop_body(self) -> tuple[Node, ...]:
        self.expect("do")
        body = tuple(self.body(frozenset({"done"})))
        self.expect("done")
        return body

    def for_loop(self) -> Loop:
        self.at += 1
        name = self.keyword()
        words: list[Word] = []
        while (token := self.peek()) is not None and self.keyword() != "do":
            if isinstance(token, Word):
                words.append(token)
            self.at += 1
        return Loop(self.loop_body(), name, tuple(words[2:]))

    def case(self) -> Branches:
        self.at += 1
        subject = self.peek()
        self.at += 1
        while self.is_operator("\n") or self.keyword() == "in":
            self.at += 1
        found: list[tuple[tuple[Node, ...], tuple[Node, ...]]] = []
        patterns: list[tuple[Word, ...]] = []
        while self.peek() is not None and self.keyword() != "esac":
            patterns.append(self.pattern())
            found.append(((), tuple(self.body(frozenset({"esac"})))))
            while self.is_operator(";;", ";&", ";;&", "\n"):
                self.at += 1
            if self.is_operator(")") or self.keyword() in _ENDS - {"esac"}:
                self.at += 1
        self.expect("esac")
        complete = any(word.bare == "*" for words in patterns for word in words)
        word = subject if isinstance(subject, Word) else None
        return Branches(tuple(found), complete, word, tuple(patterns))

    def pattern(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while (token := self.peek()) is not None and not self.is_operator(")"):
            if isinstance(token, Word):
                words.append(token)
            elif token.text in ("\n", ";;") and words:
                break
            self.at += 1
        self.at += 1
        return tuple(words)

    def function(self) -> Function:
        if self.keyword() == "function":
            self.at += 1
        name = self.keyword()
        self.at += 1
        while self.is_operator("(", ")", "\n"):
            self.at += 1
        return Function(name, tuple(self.group()))

    def group(self) -> list[Node]:
        """`{ ... }` or `( ... )`; also `(( ... ))`, whose words mean nothing here."""
        brace = self.keyword() == "{"
        if not brace and not self.is_operator("("):
            return self.command() if self.peek() is not None else []
        self.at += 1
        body = self.body(frozenset({"}"}))
        if self.keyword() == "}" if brace else self.is_operator(")"):
            self.at += 1
        return body

    def simple(self) -> list[Node]:
        first = self.peek()
        start = first.start if first else 0
        assignments: list[Assignment] = []
        words: list[Word] = []
        declares = exports = False
        documents: list[int] = []
        end = start
        while (token := self.peek()) is not None:
            if isinstance(token, Operator):
                if token.text in _SEPARATORS or token.text in (")", ";;", ";&", ";;&"):
                    break
                if token.text == "(":
                    words.append(self.bracketed())
                    end = words[-1].end
                    continue
                documents += [token.start] if token.text in ("<<", "<<-") else []
                self.at += 1
                continue
            end = token.end
            declares = declares or (not words and token.bare in _DECLARING)
            exports = exports or (not words and token.bare == "export")
            if (not words or declares) and (found := self.assignment()) is not None:
                assignments.append(found)
                continue
            self.at += 1
            if declares and not words and token.bare in _DECLARING:
                continue
            words.append(token)
        if declares:
            return self.declared(assignments, words, start, end, exports=exports)
        found_documents = tuple(documents)
        return [Simple(tuple(assignments), tuple(words), start, end, documents=found_documents)]

    @staticmethod
    def declared(
        assignments: list[Assignment], words: list[Word], start: int, end: int, *, exports: bool
    ) -> list[Node]:
        """A declaration; of its bare words only the names count, and only when exported."""
        names = tuple(w for w in words if w.bare and w.bare.isidentifier()) if exports else ()
        return (
            [Simple(tuple(assignments), names, start, end, exports=True)]
            if exports
            else [Simple(tuple(assignments), (), start, end)]
        )

    def assignment(self) -> Assignment | None:
        """The assignment that stands here, stepped over; None where a plain word stands."""
        token = self.peek()
        if not isinstance(token, Word) or not token.pieces:
            return None
        head = token.pieces[0]
        match = _ASSIGNMENT.match(head.text) if head.kind == "text" and not head.quoted else None
        if match is None:
            return None
        self.at += 1
        name, index, sign = match.groups()
        start = head.start + match.end()
        rest = Piece("text", head.text[match.end() :], start, head.end)
        pieces = ((rest,) if rest.text else ()) + token.pieces[1:]
        items = None
        if not pieces and self.is_operator("(") and self.tokens[self.at].start == token.end:
            items = self.array()
        value = Word(pieces, start, token.end)
        return Assignment(name, value, sign == "+=", items, index or "")

    def array(self) -> tuple[Word, ...]:
        self.at += 1
        words: list[Word] = []
        while (token := self.peek()) is not None and not self.is_operator(")"):
            if self.is_operator("("):
                words.append(self.bracketed())
                continue
            if isinstance(token, Word):
                words.append(token)
            self.at += 1
        self.at += 1
        return tuple(words)

    def bracketed(self) -> Word:
        """`([0]*7+[1]*7)` among arguments: one word of text, as no shell would have it."""
        opened = self.tokens[self.at]
        level, end = 0, opened.end
        while (token := self.peek()) is not None:
            level += self.is_operator("(") - self.is_operator(")")
            if self.is_operator("\n"):
                break
            end = token.end
            self.at += 1
            if level == 0:
                break
        following = self.peek()
        while isinstance(following, Word) and following.start == end:
            end = following.end
            self.at += 1
            following = self.peek()
        text = self.lexer.text[opened.start : end]
        return Word((Piece("text", text, opened.start, end),), opened.start, end)
