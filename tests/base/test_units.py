"""Units: what is read, what is refused, and that printing stays near the value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidUnit
from meshwright.base.units import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_rate,
    parse_bytes,
    parse_duration,
    parse_rate,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_bytes, "80GiB", 80 * 2**30),
        (parse_bytes, "80GB", 80e9),
        (parse_bytes, " 1.5 TB ", 1.5e12),
        (parse_bytes, "4096", 4096),
        (parse_bytes, "1_024KiB", 2**20),
        (parse_rate, "400Gb/s", 50e9),
        (parse_rate, "50GB/s", 50e9),
        (parse_rate, "200Gbps", 25e9),
        (parse_duration, "3.5us", 3.5e-6),
        (parse_duration, "2h", 7200),
        (parse_tokens, "4Mtok", 4e6),
        (parse_tokens, "4Mitok", 4 * 2**20),
        (parse_tokens, "1.5T", 1.5e12),
        (parse_tokens, "300Btokens", 300e9),
        (parse_tokens, 1024, 1024),
        (parse_tokens, "1e9", 1e9),
    ],
)
def test_reads_what_people_write(parse, text, expected):
    assert parse(text) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_bytes, "80G", "no unit"),
        (parse_bytes, "80Gb", "bits"),
        (parse_bytes, "80gib", "'GiB'"),
        (parse_bytes, "many", "number"),
        (parse_bytes, "", "number"),
        (parse_bytes, "-1GiB", "negative"),
        (parse_bytes, "1e40", "absurdly"),
        (parse_bytes, float("nan"), "not a number"),
        (parse_bytes, float("inf"), "absurdly"),
        (parse_bytes, True, "not a number"),
        (parse_bytes, 10**400, "absurdly"),
        (parse_rate, "400GB", "no unit of a rate"),
        (parse_tokens, "4MB", "no unit"),
        (parse_tokens, "9" * 500, "absurdly"),
        (parse_duration, "3 parsecs", "no unit"),
    ],
)
def test_refuses_with_reason_and_hint(parse, text, reason):
    with pytest.raises(InvalidUnit) as caught:
        parse(text)
    assert reason in caught.value.message
    assert "such as" in caught.value.hint
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_duration, parse_tokens])
@given(
    text=st.text(max_size=30) | st.from_regex(r"-?[0-9.e+_,]{1,8} ?[kKMGTPi]{0,2}[a-zA-Z/]{0,4}")
)
def test_any_text_is_read_or_refused(parse, text):
    try:
        value = parse(text)
    except InvalidUnit:
        return
    assert 0 <= value <= 1e30


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (format_bytes(68.2 * 2**30), "68.2 GiB"),
        (format_bytes(1023.9 * 2**30), "1.00 TiB"),
        (format_bytes(0), "0 B"),
        (format_rate(450e9), "450 GB/s"),
        (format_duration(0.32), "320 ms"),
        (format_duration(86400 * 3.4), "3.40 d"),
        (format_count(70.6e9), "70.6B"),
        (format_count(512), "512"),
        (format_count(22), "22"),
        (format_count(6.0), "6"),
        (format_count(0.25), "0.250"),
        (format_number(1812), "1,812"),
        (format_number(0.01234), "0.0123"),
        (format_number(float("inf")), "inf"),
    ],
)
def test_prints_three_digits(printed, expected):
    assert printed == expected


@given(st.floats(min_value=1, max_value=1e15))
def test_printed_bytes_read_back_within_half_a_percent(value):
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=0.006)


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_printed_durations_read_back_within_half_a_percent(value):
    assert parse_duration(format_duration(value)) == pytest.approx(value, rel=0.006)
