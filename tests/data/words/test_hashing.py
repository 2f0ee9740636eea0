"""Hashes of stretches: the same wherever they stand, different when the bytes are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.words.hashing import hashes_of, mixed

STRETCHES = st.lists(st.binary(min_size=1, max_size=70), min_size=1, max_size=30)


def hashed(stretches: list[bytes], *, before: bytes = b"") -> list[int]:
    lengths = np.array([len(s) for s in stretches], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths + len(before)
    values = hashes_of(before + b"".join(stretches) + bytes(8), starts, lengths)
    return [int(value) for value in values]


@given(STRETCHES, st.binary(max_size=9))
def test_equal_exactly_where_the_stretches_are(stretches: list[bytes], before: bytes) -> None:
    values = hashed(stretches, before=before)
    assert values == [hashed([stretch])[0] for stretch in stretches]
    assert len(set(values)) == len(set(stretches))


def thue_morse(order: int) -> bytes:
    text = b"a"
    for _ in range(order):
        text += bytes(ord("a") + ord("b") - byte for byte in text)
    return text


def test_thue_morse_strings_do_not_collide() -> None:
    """They and their complements collide under every polynomial modulo 2^64 from order 11 on."""
    for order in range(4, 14):
        text = thue_morse(order)
        complement = bytes(ord("a") + ord("b") - byte for byte in text)
        assert len(set(hashed([text, complement]))) == 2


def test_blocks_that_change_places_do_not_collide() -> None:
    a, b, c = b"abcdefgh", b"ijklmnop", b"qrstuvwx"
    assert len(set(hashed([a + b + c, a + c + b, b + a + c, b + c + a, c + a + b, c + b + a]))) == 6


def test_zeros_at_the_end_count() -> None:
    stretches = [b"a" + bytes(n) for n in range(30)] + [bytes(n) for n in range(1, 30)]
    assert len(set(hashed(stretches))) == len(stretches)


def test_hashes_of_numbers_spread_over_all_bits() -> None:
    values = np.array(hashed([b"%d" % n for n in range(20_000)]), dtype=np.uint64)
    assert len(np.unique(values)) == 20_000
    shares = [(values >> np.uint64(bit) & np.uint64(1)).mean() for bit in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 0.02
    assert len(np.unique(values >> np.uint64(44))) > 19_700  # of 2^20 places: 19,810 expected


def test_flipping_one_bit_flips_half_of_the_hash() -> None:
    first = hashed([b"abcdefghijkl"])[0]
    flips = [
        bin(
            first
            ^ hashed(
                [bytes(b ^ (1 << bit if i == at else 0) for i, b in enumerate(b"abcdefghijkl"))]
            )[0]
        ).count("1")
        for at in range(12)
        for bit in range(8)
    ]
    assert 28 < sum(flips) / len(flips) < 36
    assert min(flips) > 12


def test_mixing_is_a_bijection_on_a_sample() -> None:
    values = np.arange(200_000, dtype=np.uint64)
    assert len(np.unique(mixed(values))) == 200_000
