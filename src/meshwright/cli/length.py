"""`--seq-len 8192` or `--seq-len 128k`: a number of tokens, k being 1,024 as in "128k context"."""

from __future__ import annotations

import click

from meshwright.base.pattern import pattern
from meshwright.base.units import parse_length

_LENGTH = pattern(r"\d{1,10}[kKmM]?\Z")


def sequence_length(context: click.Context, parameter: click.Parameter, text: str) -> int:
    """The whole number of tokens that the text spells; click.BadParameter when it spells none."""
    digits = text.strip().replace(",", "")
    tokens = int(parse_length(digits)) if _LENGTH.match(digits) else 0
    if tokens < 1:
        message = f"{text!r} is no number of tokens, such as 8192 or 128k"
        raise click.BadParameter(message, ctx=context, param=parameter)
    return tokens


def optional_length(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | None:
    """The same where the option may be left out."""
    return None if text is None else sequence_length(context, parameter, text)
