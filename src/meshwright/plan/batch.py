"""The global batch as people state it, in tokens, and as a step needs it, in sequences."""

from __future__ import annotations

TOLERANCE = 0.05


def sequences_for(tokens: float, seq_len: int) -> int:
    """Sequences of `seq_len` in a global batch stated as about `tokens` tokens, at least 1.

    An exact multiple is taken as it stands, unless it is millions in round figures. These were
    rounded for speech ("4M tokens" of 8192 are 512 sequences, not 488.28; "64M" of 4096 are 16,384,
    not 15,625, which no power of two divides): among the counts within 5% the one divisible by the
    largest power of two is taken, the nearest of several. DeepSeek-V3's "63M tokens" of 4096 become
    15,360 sequences and Llama-3's "16M" of 8192 become 2,048, as both reports state.
    """
    exact = tokens / seq_len
    if exact == int(exact) and exact >= 1 and not _is_spoken(tokens):
        return int(exact)
    low, high = exact * (1 - TOLERANCE), exact * (1 + TOLERANCE)
    power = 1
    while _multiple_near(exact, 2 * power, low, high):
        power *= 2
    return _multiple_near(exact, power, low, high) or max(1, round(exact))


def _is_spoken(tokens: float) -> bool:
    """Whether a figure is a million or more in at most three digits, as "4M" and "62.9M" are."""
    return tokens >= 1e6 and tokens == float(f"{tokens:.2e}")


def _multiple_near(exact: float, step: int, low: float, high: float) -> int:
    """The multiple of `step` nearest to `exact`, 0 when none lies between `low` and `high`."""
    nearest = round(exact / step) * step
    return nearest if low <= nearest <= high else 0
