"""TOML with places: values from `tomllib`, places from a scan of the text it accepted."""

from __future__ import annotations

import re
import tomllib

from meshwright.base.locate.document import DEEPEST, Document, Key, Lines, Place, Stretch, malformed
from meshwright.base.pattern import pattern

_AT = pattern(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
_BLANK = pattern(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = pattern(r"[A-Za-z0-9_-]+")
_DATE_WITH_SPACE = pattern(r"\d{4}-\d\d-\d\d \d\d:[0-9:.+Zz-]+")
_SCALAR = pattern(r"[^\s,\]}#]+")
_LONG_KEY = pattern(rf"(?:[A-Za-z0-9_-]+[ \t]*\.[ \t]*){{{DEEPEST}}}")
_LITERALS = (
    pattern(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    pattern(r"'''.*?'{3,5}", re.DOTALL),
    pattern(r'"(?:[^"\\]|\\.)*"'),
    pattern(r"'[^']*'"),
)


def parse_toml(text: str, file: str = "") -> Document:
    """The document in a TOML text; InvalidInput with line and column when it is not TOML."""
    if long_key := _LONG_KEY.search(text):  # tomllib takes quadratic time over these
        place = Lines(text).place(long_key.start())
        raise malformed(file, f"a key nested deeper than {DEEPEST} levels", place=place)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(error, text, file) from None
    except RecursionError:
        raise malformed(file, f"nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise malformed(file, f"not valid TOML: {error}") from None
    scanner = _Scanner(text, file)
    scanner.scan()
    return Document(
        data=data,
        file=file,
        places=scanner.found,
        spans=scanner.spans,
        key_spans=scanner.key_spans,
    )


def _not_toml(error: tomllib.TOMLDecodeError, text: str, file: str) -> Exception:
    match = _AT.search(str(error))
    reason = _AT.sub("", str(error)).strip()
    if match and match.group(1):
        place = Place(line=int(match.group(1)), column=int(match.group(2)))
    else:
        place = Lines(text).place(len(text))
    return malformed(file, f"not valid TOML: {reason[:1].lower()}{reason[1:]}", place=place)


class _Scanner:
    """Walks a valid TOML text and notes where keys and list entries stand."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.at = 0
        self.end_of_key = 0
        self.lines = Lines(text)
        self.found: dict[Key, Place] = {(): Place(1, 1)}
        self.spans: dict[Key, Stretch] = {(): (0, len(text))}
        self.key_spans: dict[Key, Stretch] = {}
        self.last: dict[Key, int] = {}  # arrays of tables: index of their newest entry

    def scan(self) -> None:
        """Fills `found`, `spans` and `key_spans`; a table's span is that of its header."""
        table: Key = ()
        self.skip_blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.assignment(table)
            self.skip_blank()

    def header(self) -> Key:
        """Reads `[a.b]` or `[[a.b]]` and returns the key path it opens."""
        start = self.at
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        key = self.resolve(self.dotted_key(), last=not is_array)
        self.at = self.text.index("]", self.at) + (2 if is_array else 1)
        if is_array:
            self.last[key] = self.last.get(key, -1) + 1
            self.note(key, start)
            key = (*key, self.last[key])
        self.note(key, start)
        self.spans.setdefault(key, (start, self.at))
        return key

    def resolve(self, parts: Key, *, last: bool) -> Key:
        """`parts` with the newest index put in after every array of tables on the way."""
        key: Key = ()
        for number, part in enumerate(parts, start=1):
            key = (*key, part)
            if key in self.last and (last or number < len(parts)):
                key = (*key, self.last[key])
        return key

    def assignment(self, table: Key) -> None:
        start = self.at
        key = table
        for part in self.dotted_key():
            key = (*key, part)
            self.note(key, start)
        self.key_spans[key] = (start, self.end_of_key)
        self.at = self.text.index("=", self.at) + 1
        self.value(key)

    def dotted_key(self) -> Key:
        parts: list[str] = []
        while True:
            self.skip_blank()
            parts.append(self.key_part())
            self.end_of_key = self.at
            self.skip_blank()
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def key_part(self) -> str:
        match = _BARE.match(self.text, self.at)
        if match:
            self.at = match.end()
            return match.group()
        quoted = self.literal()
        return next(iter(tomllib.loads(f"{quoted} = 0")))

    def value(self, key: Key) -> None:
        self.skip_blank()
        if len(key) > DEEPEST:
            place = self.lines.place(self.at)
            raise malformed(self.file, f"nested deeper than {DEEPEST} levels", place=place)
        start = self.at
        self.note(key, start)
        self.step_over(key)
        self.spans[key] = (start, self.at)

    def step_over(self, key: Key) -> None:
        """Moves behind the value that starts here."""
        char = self.text[self.at]
        if char == "[":
            self.array(key)
        elif char == "{":
            self.inline_table(key)
        elif char in "\"'":
            self.literal()
        else:
            match = _DATE_WITH_SPACE.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            self.at = match.end() if match else len(self.text)

    def array(self, key: Key) -> None:
        self.at += 1
        index = 0
        while not self.closes("]"):
            self.value((*key, index))
            index += 1

    def inline_table(self, key: Key) -> None:
        self.at += 1
        while not self.closes("}"):
            self.assignment(key)

    def closes(self, bracket: str) -> bool:
        """Steps over blanks and commas; True when it stepped over the bracket."""
        self.skip_blank()
        while self.text.startswith(",", self.at):
            self.at += 1
            self.skip_blank()
        if self.text.startswith(bracket, self.at):
            self.at += 1
            return True
        return False

    def literal(self) -> str:
        """Steps over a quoted string of any of the four kinds and returns its source."""
        for literal in _LITERALS:
            match = literal.match(self.text, self.at)
            if match:
                self.at = match.end()
                return match.group()
        raise malformed(self.file, "unreadable string", place=self.lines.place(self.at))

    def skip_blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def note(self, key: Key, offset: int) -> None:
        self.found.setdefault(key, self.lines.place(offset))
