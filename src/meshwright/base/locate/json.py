"""JSON with places. Stricter than the standard library: no NaN, no Infinity, no key twice.

The lenient dialect is that of configuration files people write by hand, which hjson and json5
readers accept: comments as `# ...`, `// ...` and `/* ... */`, and a comma before a bracket.
"""

from __future__ import annotations

import math
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

from meshwright.base.locate.document import DEEPEST, Document, Key, Lines, Place, Stretch, malformed
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from meshwright.base.errors import InvalidInput

_SPACE = pattern(r"[ \t\n\r]*")
_SPACE_OR_COMMENT = pattern(r"(?:[ \t\n\r]+|#[^\n]*|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_NUMBER = pattern(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORD = pattern(r"[-+]?[A-Za-z_]\w*")
_CONSTANTS = {"true": True, "false": False, "null": None}
_MOST_DIGITS = 400


def parse_json(text: str, file: str = "", *, lenient: bool = False) -> Document:
    """The document in a JSON text; InvalidInput with line and column when it is not JSON.

    `lenient` accepts comments and trailing commas.
    """
    return _Scanner(text, file, lenient=lenient).document()


class _Scanner:
    """A recursive descent over one text; `at` is the offset of the next character."""

    def __init__(self, text: str, file: str, *, lenient: bool) -> None:
        self.text = text
        self.file = file
        self.lenient = lenient
        self.space = _SPACE_OR_COMMENT if lenient else _SPACE
        self.at = 0
        self.lines = Lines(text)
        self.places: dict[Key, Place] = {}
        self.spans: dict[Key, Stretch] = {}
        self.key_spans: dict[Key, Stretch] = {}

    def document(self) -> Document:
        self.places[()] = Place(1, 1)
        data = self.value(())
        self.skip_space()
        if self.at < len(self.text):
            raise self.refuse("there is more text after the end of the value")
        return Document(
            data=data,
            file=self.file,
            places=self.places,
            spans=self.spans,
            key_spans=self.key_spans,
        )

    def value(self, key: Key) -> Any:
        self.skip_space()
        if len(key) > DEEPEST:
            raise self.refuse(f"nested deeper than {DEEPEST} levels")
        start = self.at
        self.places.setdefault(key, self.lines.place(start))
        found = self.unplaced(key)
        self.spans[key] = (start, self.at)
        return found

    def unplaced(self, key: Key) -> Any:
        """The value that starts here."""
        char = self.peek()
        if char == "{":
            return self.object(key)
        if char == "[":
            return self.array(key)
        if char == '"':
            return self.string()
        return self.number_or_word()

    def object(self, key: Key) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        self.at += 1
        while not self.closes("}", first=not entries):
            start = self.at
            if self.peek() != '"':
                raise self.refuse("expected a key in quotes")
            name = self.string()
            if name in entries:
                raise self.refuse(
                    f"key {name!r} stands twice", at=start, hint="keep one of the two"
                )
            self.places[(*key, name)] = self.lines.place(start)
            self.key_spans[(*key, name)] = (start, self.at)
            self.skip_space()
            if self.peek() != ":":
                raise self.refuse("expected ':' after the key")
            self.at += 1
            entries[name] = self.value((*key, name))
        return entries

    def array(self, key: Key) -> list[Any]:
        items: list[Any] = []
        self.at += 1
        while not self.closes("]", first=not items):
            items.append(self.value((*key, len(items))))
        return items

    def closes(self, bracket: str, *, first: bool) -> bool:
        """Steps over the comma or the closing bracket; True at the bracket."""
        self.skip_space()
        if self.peek() == bracket:
            self.at += 1
            return True
        if first:
            return False
        if self.peek() != ",":
            raise self.refuse(f"expected ',' or '{bracket}'")
        self.at += 1
        self.skip_space()
        if self.peek() != bracket:
            return False
        if not self.lenient:
            raise self.refuse(f"a comma before '{bracket}'", hint="remove the comma")
        self.at += 1
        return True

    def string(self) -> str:
        try:
            text: str
            text, self.at = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            raise self.refuse(
                error.msg[:1].lower() + error.msg[1:], at=min(error.pos, len(self.text))
            ) from None
        return text

    def number_or_word(self) -> Any:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            return self.word()
        digits = match.group()
        if len(digits) > _MOST_DIGITS:
            raise self.refuse("the number has too many digits")
        number = float(digits) if match.group(1) or match.group(2) else int(digits)
        if isinstance(number, float) and math.isinf(number):
            raise self.refuse(f"{digits} is too large for a number")
        self.at = match.end()
        return number

    def word(self) -> bool | None:
        match = _WORD.match(self.text, self.at)
        found = match.group() if match else self.peek()
        if found in _CONSTANTS:
            self.at += len(found)
            return _CONSTANTS[found]
        if found.lstrip("+-") in {"NaN", "Infinity", "nan", "inf"}:
            raise self.refuse(
                f"{found} is not a number that can be used", hint="write a finite number"
            )
        raise self.refuse(
            f"expected a value, found {found!r}" if found else "the text ends too early"
        )

    def skip_space(self) -> None:
        match = self.space.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def refuse(self, reason: str, *, at: int | None = None, hint: str = "") -> InvalidInput:
        place = self.lines.place(self.at if at is None else at)
        return malformed(self.file, f"not valid JSON: {reason}", place=place, hint=hint)
