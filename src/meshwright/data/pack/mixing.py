"""How much of each source goes into the output, and which of its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.base.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Column
    from meshwright.data.settings import Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What a source has for training."""

    name: str
    weight: float | None  # None = it shares what the weights leave, by what it has
    tokens: int


def quotas(stocks: Sequence[Stock], mix: Mix) -> list[int]:
    """Tokens of each source in the output, by weight; InvalidInput when they cannot be had.

    Weights that are all given need not add up to 1. Without `mix.tokens` the output is as large as
    it takes to use every source whole, or as `mix.max_repeats` of the scarcest one allows.
    """
    shares = _shares(stocks)
    _refuse([s for s, share in zip(stocks, shares, strict=True) if share and not s.tokens])
    rates = [share / s.tokens for s, share in zip(stocks, shares, strict=True) if share]
    most = mix.max_repeats / max(rates)
    total = mix.tokens if mix.tokens is not None else min(1 / min(rates), most)
    if total > most * (1 + 1e-9):
        raise _too_many(stocks, shares, total=total, mix=mix)
    return [round(share * total) for share in shares]


def _shares(stocks: Sequence[Stock]) -> list[float]:
    """Shares of the output, which add up to 1."""
    given = sum(stock.weight for stock in stocks if stock.weight is not None)
    free = sum(stock.tokens for stock in stocks if stock.weight is None)
    if all(stock.weight is not None for stock in stocks):
        if given <= 0:
            raise _invalid("no source has a weight above 0", hint="give one a weight")
        return [(stock.weight or 0.0) / given for stock in stocks]
    if given >= 1:
        reason = f"the weights given add up to {given:g}, which leaves nothing for the others"
        raise _invalid(reason, hint="give every source a weight, or let them add up to below 1")
    left = (1 - given) / max(1, free)
    return [s.tokens * left if s.weight is None else s.weight for s in stocks]


def _refuse(empty: Sequence[Stock]) -> None:
    """Sources that are wanted and have nothing."""
    if empty:
        names = ", ".join(stock.name for stock in empty)
        raise _invalid(
            f"no document of {names} is left for training, yet it has a weight",
            hint="relax what drops them (meshwright explain REASON names the keys) or leave it out",
        )


def _too_many(
    stocks: Sequence[Stock], shares: Sequence[float], *, total: float, mix: Mix
) -> InvalidInput:
    """The error for a source that would be repeated more often than is allowed."""
    pairs = [(share / s.tokens, s.name) for s, share in zip(stocks, shares, strict=True) if share]
    rate, name = max(pairs)
    most = int(mix.max_repeats / rate)
    reason = (
        f"{format_count(total)} tokens would repeat {name} {total * rate:.1f} times; "
        f"mix.max_repeats is {mix.max_repeats:g}"
    )
    hint = f"set mix.tokens to {most} or less, give {name} less weight, or raise mix.max_repeats"
    return _invalid(reason, hint=hint)


def _invalid(reason: str, *, hint: str) -> InvalidInput:
    finding = Finding(message=f"the sources cannot be mixed: {reason}", reason=reason, hint=hint)
    return InvalidInput([finding], hint=hint)


def chosen(documents: Column, lengths: NDArray[np.int32], quota: int) -> Column:
    """Documents until they hold `quota` tokens, from the first again when all are used.

    `lengths` is indexed by document. Off by less than half the document at the border.
    """
    ends = np.cumsum(lengths[documents], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return documents[:0]
    rounds, rest = divmod(quota, total)
    last = int(np.searchsorted(ends - lengths[documents] / 2, rest, side="left"))
    return np.concatenate([np.tile(documents, rounds), documents[:last]])
