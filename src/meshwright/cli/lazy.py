"""Groups of commands that import a command only when it is run or its own help is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class Lazy(click.Group):
    """Commands by name; `table` has, of each, the module that defines it and its line of help."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from the attribute of its module that bears its name."""
        if cmd_name not in self.table:
            return None
        module, _ = self.table[cmd_name]
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command to run; a wrong name fails with the nearest ones."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            from meshwright.base.errors import UnknownName
            from meshwright.base.names import nearest

            raise UnknownName("command", name, suggestions=nearest(name, self.table))
        return super().resolve_command(ctx, args)
