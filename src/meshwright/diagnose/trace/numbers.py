"""Things numbered in the order of their appearance, within bounds that no file can pass."""

from __future__ import annotations

from typing import Any

NAME_LIMIT = 8192  # characters of a name that are kept
MANY = "(one of too many names)"


class Numbers(dict[Any, int]):
    """`numbers[thing]` is the thing's number; -1 for every new one past `limit` things."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.refused = 0

    def __missing__(self, thing: Any) -> int:
        if len(self) >= self.limit:
            self.refused += 1
            return -1
        self[thing] = number = len(self)
        return number


class Names(dict[str, int]):
    """Numbers of names, cut to `NAME_LIMIT` characters; `texts` are the names in order."""

    def __init__(self, limit: int, *, limit_characters: int) -> None:
        super().__init__()
        self.limit = limit
        self.room = limit_characters
        self.refused = 0
        self.texts: list[str] = []

    def __missing__(self, name: str) -> int:
        if len(name) > NAME_LIMIT:
            return self[name[:NAME_LIMIT]]
        full = len(self) >= self.limit or self.room < 0
        if full and name != MANY:
            self.refused += 1
            return self[MANY]
        self.room -= len(name)
        self.texts.append(name)
        self[name] = number = len(self)
        return number


class Threads(dict[tuple[Any, Any], int]):
    """Numbers of threads by process and thread, whether the file states numbers or text."""

    def __init__(self) -> None:
        super().__init__()
        self.by_text: dict[tuple[str, str], int] = {}

    def __missing__(self, key: tuple[Any, Any]) -> int:
        text = (str(key[0]), str(key[1]))
        number = self.by_text.setdefault(text, len(self.by_text))
        if len(self) < 100_000:
            self[key] = number
        return number
