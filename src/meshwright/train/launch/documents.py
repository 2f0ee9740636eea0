"""YAML documents whose values cannot leave their places."""

from __future__ import annotations

from typing import Any

import yaml


def to_yaml(*documents: dict[str, Any], comment: str) -> str:
    """The documents one after another under a line of comment, keys in their order.

    Text of several lines is a literal block, which is how people write scripts.
    """
    body = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
        explicit_start=len(documents) > 1,
    )
    return f"# {comment}\n{body}"


class _Dumper(yaml.SafeDumper):
    """Safe, with blocks for scripts and lists set in."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Lists below a key are set in, as kubectl and sky write them."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
