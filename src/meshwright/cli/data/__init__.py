"""`meshwright data`: the commands that make and read shards of tokens."""

from __future__ import annotations

import click

from meshwright.cli.lazy import Lazy

COMMANDS = {
    "build": ("meshwright.cli.data.build", "Clean, deduplicate, tokenize and pack text."),
    "stats": ("meshwright.cli.data.stats", "What a folder of shards holds, and how it was made."),
    "verify": ("meshwright.cli.data.verify", "Check every byte of a folder of shards."),
    "show": ("meshwright.cli.data.show", "Rows of a folder of shards, decoded."),
    "mix": ("meshwright.cli.data.mix", "Blend several folders of shards by weight."),
    "plan": ("meshwright.cli.data.plan", "Bytes, files and throughput that a run will need."),
}


class Commands(Lazy):
    """The commands of meshwright data."""

    table = COMMANDS


@click.group(
    cls=Commands,
    epilog="`meshwright data COMMAND --help` shows the options of a command, with examples.",
)
def data() -> None:
    """From raw text to packed shards: clean, deduplicated, the same for any number of workers."""
