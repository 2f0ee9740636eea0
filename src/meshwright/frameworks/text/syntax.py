"""Which syntax a text is written in: by the file's ending, else by its look."""

from __future__ import annotations

from pathlib import PurePath

from meshwright.base.pattern import pattern

ENDINGS = {
    ".sh": "shell",
    ".bash": "shell",
    ".zsh": "shell",
    ".slurm": "shell",
    ".sbatch": "shell",
    ".sub": "shell",
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".hjson": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".py": "python",
}
_OVERRIDE = pattern(
    r"(?:[+~]{0,2}[A-Za-z_][\w@/-]*(?:\.[\w@/-]+)*=(?!=)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])*|~[A-Za-z_][\w.@/-]*)\s*\\?$"
)
_DOTTED = pattern(r"[+~]{0,2}[A-Za-z_][\w@/-]*\.[\w.@/-]+=")
_FLAG = pattern(r"--?[A-Za-z]")
_HEADER = pattern(r"\[\[?[\w.\"' -]+\]\]?\s*(?:#.*)?$")
_YAML_ENTRY = pattern(r"(?:- )?[\w.\"'*/-]+(?: [\w.-]+){0,3}\s*:(?:\s|$)")
_STATEMENT = pattern(r"(?:import|from|def|class|async|with|@\w)\b|[A-Za-z_][\w.]*\s*=\s*[\w.]+\(")
_TABLE_ENTRY = pattern(r"[\w.\"'-]+\s*=\s*\S")
_LOOKED_AT = 4000  # lines


def syntax_of(file: str, text: str) -> str:
    """ "shell", "json", "toml", "yaml", "python" or "overrides"."""
    known = ENDINGS.get(PurePath(file).suffix.lower())
    return known or _by_look(text)


def _by_look(text: str) -> str:
    first = text.lstrip("\ufeff \t\r\n")
    if first.startswith("#!"):
        return "python" if "python" in first.split("\n", 1)[0] else "shell"
    lines = [line.strip() for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT]]
    said = [line for line in lines if line and not line.startswith(("#", "//"))]
    if not said:
        return "shell"
    if said[0].startswith(("{", "/*")):
        return "json"
    if all(_OVERRIDE.match(line) for line in said) and any(map(_DOTTED.match, said)):
        return "overrides"
    return _by_lines(said, text)


def _by_lines(said: list[str], text: str) -> str:
    """The syntax of lines that are neither JSON nor all overrides."""
    if any(_FLAG.match(line) for line in said):
        return "shell"
    is_table = any(map(_HEADER.match, said)) or all(map(_TABLE_ENTRY.match, said))
    if is_table and _is_toml(text):
        return "toml"
    if any(_STATEMENT.match(line) for line in said) and _is_python(text):
        return "python"
    entries = sum(bool(_YAML_ENTRY.match(line)) for line in said)
    if said[0] == "---" or entries > len(said) / 2 or _YAML_ENTRY.match(said[0]):
        return "yaml"
    return "shell"


def _is_toml(text: str) -> bool:
    import tomllib

    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return False
    return True


def _is_python(text: str) -> bool:
    import ast

    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
