"""Characters of a shell script into words and operators.

The reader is lenient: a quote that never closes ends with its line, because argument lists copied
from elsewhere have such quotes and the rest of the file is still worth reading.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.locate.document import DEEPEST, Lines, malformed
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from meshwright.base.errors import InvalidInput

_OPERATOR = pattern(r";;&|;;|;&|&&|\|\||\|&|[;&|()]|\r?\n")
_REDIRECT = pattern(r"\d*(?:<<<|<<-|<<|>>|<>|>&|<&|>\||&>>|&>|>|<)")
_BLANK = pattern(r"(?:[ \t\r\f\v]|\\\r?\n)*(?:(?<![^\s;&|()])#[^\n]*)?", re.DOTALL)
_PLAIN = pattern(r"[^\s\\'\"`$;&|<>()]+")
_IN_QUOTES = pattern(r'[^"\\`$]+')
_NAME = pattern(r"[A-Za-z_]\w*|\d|[@*#?$!-]")
_BRACED = pattern(
    r"([#!]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]\n]*)\])?(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@)?"
)
_ESCAPE = pattern(r"\\(\r?\n|.)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a word that means one thing.

    `kind` is "text", "param", "command" (a substitution, never run) or "arithmetic". Of a param
    `name` is the variable, `index` what stands in brackets, `operator` ":-" and the like, and
    `word` the pieces behind it. `start` and `end` delimit it in the script, quotes not included.
    """

    kind: str
    text: str
    start: int
    end: int
    quoted: bool = False
    name: str = ""
    index: str = ""
    operator: str = ""
    word: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its pieces; `start` to `end` includes quotes."""

    pieces: tuple[Piece, ...]
    start: int
    end: int

    @property
    def bare(self) -> str | None:
        """The text of a word without quotes or expansions, None of any other."""
        plain = all(p.kind == "text" and not p.quoted for p in self.pieces)
        return "".join(p.text for p in self.pieces) if plain else None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator or a line's end ("\\n"); a redirection has its target behind it."""

    text: str
    start: int
    end: int


Token = Word | Operator


class Lexer:
    """Reads tokens of `text` from `at` up to `stop`; `documents` are the here-documents that it met
    on its way, start and end by the offset of the operator that announced them."""

    def __init__(self, text: str, file: str = "", *, at: int = 0, stop: int | None = None) -> None:
        self.text = text
        self.file = file
        self.at = at
        self.stop = len(text) if stop is None else stop
        self.depth = 0
        self.documents: dict[int, tuple[int, int]] = {}
        self.pending: list[tuple[str, bool, int]] = []

    def tokens(self) -> list[Token]:
        """All tokens; an Operator "\\n" ends every line that holds any."""
        found: list[Token] = []
        while True:
            self.blank()
            if self.at >= self.stop:
                return found
            token = self.token(found)
            if token is not None:
                found.append(token)

    def blank(self) -> None:
        """Steps over blanks, continued lines and a comment."""
        match = _BLANK.match(self.text, self.at, self.stop)
        self.at = match.end() if match else self.at

    def token(self, before: list[Token]) -> Token | None:
        """The token that starts here, None for the end of an empty line."""
        start = self.at
        redirect = _REDIRECT.match(self.text, start, self.stop)
        if redirect and not (redirect.group()[0].isdigit() and self.is_inside_word(start)):
            return self.redirection(redirect)
        operator = _OPERATOR.match(self.text, start, self.stop)
        if operator is None:
            return self.word()
        self.at = operator.end()
        if operator.group() not in ("\n", "\r\n"):
            return Operator(operator.group(), start, self.at)
        self.here_documents()
        if before and isinstance(before[-1], Operator) and before[-1].text == "\n":
            return None
        return Operator("\n", start, self.at)

    def is_inside_word(self, at: int) -> bool:
        """Whether the character before belongs to a word."""
        return at > 0 and not self.text[at - 1].isspace() and self.text[at - 1] not in ";&|()"

    def redirection(self, match: re.Match[str]) -> Operator:
        """A redirection with its target stepped over; `<(...)` is a substitution."""
        self.at = match.end()
        kind = match.group().lstrip("0123456789")
        if self.text.startswith("(", self.at) and kind in ("<", ">"):
            self.substitution()
            return Operator("<()", match.start(), self.at)
        self.blank()
        target = self.word() if self.at < self.stop and self.text[self.at] not in "\r\n" else None
        if kind in ("<<", "<<-") and target is not None:
            ending = "".join(p.text for p in target.pieces)
            self.pending.append((ending, kind == "<<-", match.start()))
        return Operator(kind, match.start(), self.at)

    def here_documents(self) -> None:
        """Steps over the here-documents that the line before announced."""
        for ending, tabs, at in self.pending:
            start = self.at
            while self.at < self.stop:
                stop = self.text.find("\n", self.at, self.stop)
                stop = self.stop if stop < 0 else stop
                line = self.text[self.at : stop].rstrip("\r")
                begin, self.at = self.at, min(stop + 1, self.stop)
                if (line.lstrip("\t") if tabs else line) == ending:
                    self.documents[at] = (start, begin)
                    break
            else:
                self.documents[at] = (start, self.stop)
        self.pending = []

    def word(self) -> Word:
        """The word that starts here."""
        start = self.at
        pieces: list[Piece] = []
        while self.at < self.stop:
            before = self.at
            pieces += self.pieces()
            if self.at == before:
                break
        if self.at == start:  # a character that starts nothing
            self.at += 1
            pieces = [Piece("text", self.text[start : self.at], start, self.at)]
        return Word(tuple(pieces), start, self.at)

    def pieces(self) -> list[Piece]:
        """The pieces that start here outside of quotes; none at the end of a word."""
        char = self.text[self.at]
        if plain := _PLAIN.match(self.text, self.at, self.stop):
            self.at = plain.end()
            return [Piece("text", plain.group(), plain.start(), plain.end())]
        if char == "'":
            return [self.single_quoted()]
        if char == '"':
            return self.double_quoted()
        if char == "\\":
            return self.escape(quoted=False)
        if char == "`":
            return [self.backticks(quoted=False)]
        if char == "$":
            if self.text.startswith(("$'", '$"'), self.at):
                self.at += 1
                return self.pieces()
            return [self.dollar(quoted=False)]
        return []

    def line_end(self) -> int:
        """The offset of the end of this line."""
        stop = self.text.find("\n", self.at, self.stop)
        return self.stop if stop < 0 else stop

    def single_quoted(self) -> Piece:
        """`'...'`, up to its line's end where it never closes."""
        start = self.at + 1
        end = self.text.find("'", start, self.stop)
        if end < 0:
            end = self.line_end()
            self.at = end
        else:
            self.at = end + 1
        return Piece("text", self.text[start:end], start, end, quoted=True)

    def double_quoted(self) -> list[Piece]:
        """`"..."`, up to its line's end where it never closes."""
        opened, pieces = self.at, []
        self.at += 1
        while self.at < self.stop and self.text[self.at] != '"':
            pieces += self.in_quotes()
        if self.at >= self.stop:  # never closed: the quote means its own line
            self.at = opened + 1
            end = self.line_end()
            self.at = end
            return [Piece("text", self.text[opened + 1 : end], opened + 1, end, quoted=True)]
        self.at += 1
        return pieces or [Piece("text", "", opened + 1, opened + 1, quoted=True)]

    def in_quotes(self) -> list[Piece]:
        """The pieces that start here inside of double quotes."""
        if plain := _IN_QUOTES.match(self.text, self.at, self.stop):
            self.at = plain.end()
            return [Piece("text", plain.group(), plain.start(), plain.end(), quoted=True)]
        char = self.text[self.at]
        if char == "\\":
            return self.escape(quoted=True)
        return [self.backticks(quoted=True) if char == "`" else self.dollar(quoted=True)]

    def escape(self, *, quoted: bool) -> list[Piece]:
        """A backslash with what it escapes; a continued line yields nothing."""
        match = _ESCAPE.match(self.text, self.at, self.stop)
        start, self.at = self.at, match.end() if match else self.at + 1
        char = (match.group(1) or "") if match else ""
        if char.endswith("\n"):
            return []
        if quoted and char not in tuple('$`"\\'):
            char = "\\" + char
        return [Piece("text", char, start, self.at, quoted=quoted or bool(char))]

    def backticks(self, *, quoted: bool) -> Piece:
        """A command's output, as its text."""
        start = self.at
        end = self.text.find("`", start + 1, self.stop)
        self.at = self.line_end() if end < 0 else end + 1
        return Piece("command", self.text[start : self.at], start, self.at, quoted=quoted)

    def dollar(self, *, quoted: bool) -> Piece:
        """An expansion, or a lone dollar sign."""
        start = self.at
        if self.text.startswith("$((", start):
            return self.arithmetic(quoted=quoted)
        if self.text.startswith("$(", start):
            self.at += 1
            self.substitution()
            return Piece("command", self.text[start : self.at], start, self.at, quoted=quoted)
        if self.text.startswith("${", start):
            return self.braced(quoted=quoted)
        name = _NAME.match(self.text, start + 1, self.stop)
        self.at = name.end() if name else start + 1
        if name is None:
            return Piece("text", "$", start, self.at, quoted=quoted)
        return Piece("param", "", start, self.at, quoted=quoted, name=name.group())

    def arithmetic(self, *, quoted: bool) -> Piece:
        """`$(( ... ))`."""
        start = self.at
        self.at += 1
        end = self.substitution()
        inner = self.text[start + 3 : end - 2] if self.text[end - 2 : end] == "))" else ""
        kind = "arithmetic" if inner else "command"
        return Piece(kind, inner, start, self.at, quoted=quoted)

    def substitution(self) -> int:
        """Steps over a balanced "(...)"; quotes inside hide brackets. The offset behind it."""
        level = 0
        while self.at < self.stop:
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif char in "'\"":
                end = self.text.find(char, self.at + 1, self.stop)
                self.at = self.at if end < 0 else end
            elif char == "(":
                level += 1
            elif char == ")":
                level -= 1
            self.at += 1
            if level == 0:
                break
        self.at = min(self.at, self.stop)
        return self.at

    def braced(self, *, quoted: bool) -> Piece:
        """`${NAME}`, `${NAME:-word}`, `${NAME[@]}` and their kin."""
        start = self.at
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.refuse("expansions nested too deep", start)
        head = _BRACED.match(self.text, start + 2, self.stop)
        self.at = head.end() if head else start + 2
        word: list[Piece] = []
        while self.at < self.stop and self.text[self.at] not in "}\n":
            before = self.at
            word += self.in_quotes() if quoted else self.pieces()
            if self.at == before or "}" in "".join(p.text for p in word[-1:]):
                word, self.at = self.cut_at_brace(word, before)
        self.at = min(self.at + 1, self.stop)
        self.depth -= 1
        if head is None:
            return Piece("command", self.text[start : self.at], start, self.at, quoted=quoted)
        operator = head.group(1) + (head.group(4) or "")
        return Piece(
            "param",
            self.text[start : self.at],
            start,
            self.at,
            quoted=quoted,
            name=head.group(2),
            index=head.group(3) or "",
            operator=operator,
            word=tuple(word),
        )

    def cut_at_brace(self, word: list[Piece], before: int) -> tuple[list[Piece], int]:
        """Ends a plain piece at the brace in it; a character no piece takes is text."""
        if self.at == before:
            end = before + 1
            return [*word, Piece("text", self.text[before:end], before, end)], end
        last = word[-1]
        if (
            last.kind != "text"
            or last.end - last.start != len(last.text)
            or (last.quoted and self.text[last.start - 1 : last.start] in ("'", '"'))
        ):
            return word, self.at
        end = last.start + last.text.index("}")
        kept = Piece("text", self.text[last.start : end], last.start, end, quoted=last.quoted)
        return [*word[:-1], kept] if end > last.start else word[:-1], end

    def refuse(self, reason: str, at: int) -> InvalidInput:
        """The error of a script that cannot be read."""
        return malformed(self.file, reason, place=Lines(self.text).place(at))
