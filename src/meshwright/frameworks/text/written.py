"""Values as the texts that each syntax has for them."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAIN_YAML = pattern(r"[A-Za-z_./][\w./+-]*(?: [\w./+-]+)*\Z")
_YAML_WORDS = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n", "~"])
_BARE_KEY = pattern(r"[A-Za-z_][\w-]*\Z")
_FLAG_LIKE = pattern(r"--?[A-Za-z_]|[+~]{0,2}[A-Za-z_][\w@/-]*(?:\.[\w@/*-]+)+=|[+~]{1,2}[A-Za-z_]")


def value_text(syntax: str, value: Any) -> str:
    """A value as JSON, TOML, YAML or Python writes it, on one line."""
    if value is UNKNOWN:
        raise MeshwrightError("a value that is not known cannot be written")
    if syntax == "json":
        return json.dumps(value, ensure_ascii=False)
    if syntax == "toml":
        return _toml(value)
    return _yaml(value) if syntax == "yaml" else repr(value)


def _toml(value: Any) -> str:
    from meshwright.base.encode import to_toml

    if value is None:
        raise MeshwrightError("TOML has no word for a missing value", hint="leave the key out")
    return to_toml({"v": value}).removeprefix("v = ").rstrip("\n")


def _yaml(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN_YAML.match(value) and value.lower() not in _YAML_WORDS
        return value if plain and not value.startswith(".") else _quoted(value)
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text('yaml', k)}: {_yaml(v)}" for k, v in value.items()) + "}"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _quoted(text: str) -> str:
    """A string in double quotes; what is not printed is escaped as YAML wants it."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escaped(char) for char in quoted)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def key_text(syntax: str, name: str) -> str:
    """A key as JSON, TOML or YAML writes it."""
    if syntax == "json":
        return json.dumps(name, ensure_ascii=False)
    if _BARE_KEY.match(name) and (syntax == "toml" or name.lower() not in _YAML_WORDS):
        return name
    return _quoted(name) if syntax == "yaml" else json.dumps(name, ensure_ascii=False)


def plain_text(value: Any) -> str:
    """A value as an argument's text, without quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(plain_text(item) for item in value) + "]"
    return str(value)


def argument_words(name: str, value: Any) -> list[str]:
    """The words that state one setting: `--flag value`, `--flag` for true, or `a.b=value`.

    Names without dashes are overrides when they have a dot, flags otherwise.
    """
    if value is UNKNOWN:
        raise MeshwrightError(f"{name}: a value that is not known cannot be written")
    if not name.startswith("-") and "." in name:
        return [shlex.quote(f"{name}={plain_text(value)}")]
    flag = name if name.startswith("-") else f"--{name}"
    if value is True:
        return [flag]
    if isinstance(value, list | tuple) and value:
        texts = [plain_text(item) for item in value]
        if len(texts) > 1 and not any(_FLAG_LIKE.match(text) for text in texts):
            return [flag, *map(shlex.quote, texts)]
    text = plain_text(value)
    if _FLAG_LIKE.match(text):
        return [shlex.quote(f"{flag}={text}")]
    return [flag, shlex.quote(text)]


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested tables; tables with the keys 0, 1, ... become lists.

    MeshwrightError where one name is both a value and a table.
    """
    root: dict[str, Any] = {}
    for name, value in settings.items():
        node = root
        *path, last = name.split(".")
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise MeshwrightError(f"{name}: {part} is a value and a table of values")
        if isinstance(node.get(last), dict) and node[last]:
            raise MeshwrightError(f"{name} is a value and a table of values")
        node[last] = value
    return {name: _with_lists(value) for name, value in root.items()}


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {name: _with_lists(value) for name, value in node.items()}
    in_order: Sequence[str] = [str(number) for number in range(len(inner))]
    return list(inner.values()) if inner and list(inner) == in_order else inner
