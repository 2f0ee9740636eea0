from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.clean import pii
from meshwright.data.clean.pii import iban
from meshwright.data.documents import documents_of
from meshwright.data.settings import Pii

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = Pii(kinds=pii.KINDS)


def masked(text: str, *kinds: str) -> str:
    return pii.mask(documents_of([text]), Pii(kinds=kinds or pii.KINDS))[0].string(0)


def counts(text: str, *kinds: str) -> dict[str, int]:
    return pii.mask(documents_of([text]), Pii(kinds=kinds or pii.KINDS))[1]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("write to ann.lee+x@mail.uni-bonn.de, soon", "ann.lee+x@mail.uni-bonn.de"),
        ("<bob@gmail.com>", "bob@gmail.com"),
        ("mailto:bob@gmail.com?subject", "bob@gmail.com"),
        ("联系foo@qq.com谢谢", "foo@qq.com"),
        ("end of a sentence: me@site.org.", "me@site.org"),
        ("'quoted@site.co.uk'", "quoted@site.co.uk"),
        ("a_b-c@x.io", "a_b-c@x.io"),
        ("ANN@GMAIL.COM", "ANN@GMAIL.COM"),
        ("x@münchen.de y@xn--mnchen-3ya.de", "y@xn--mnchen-3ya.de"),
        ("a..b@site.org", "b@site.org"),
        ("ann@site.org: see x.git", "ann@site.org"),
        ("scp x ann@site.org:/srv/y", "ann@site.org"),
    ],
)
def test_addresses_are_masked(text: str, address: str) -> None:
    found = masked(text, "email")
    before, _, after = text.partition(address)
    assert found.startswith(before)
    assert found.endswith(after)
    placeholder = found[len(before) : len(found) - len(after)]
    assert placeholder.startswith("user")
    assert placeholder.endswith("@example.com")
    assert counts(text, "email") == {"email": 1}


@pytest.mark.parametrize(
    "text",
    [
        "@decorator",
        "a @ b",
        "x@y",
        "root@localhost",
        "root@host.internal",
        "weights = a@self.weight + b@c.T",
        "me@example.com you@mail.example.org it@host.test x@sub.invalid",
        "git@",
        "@@@@",
        "pkg@1.2.3",
        "git clone git@github.com:foo/bar.git",
        "ssh -T git@github.com",
        "url = ann@git.sr.ht:~ann/x.git and ssh://git@gitlab.com/a/b",
        "",
    ],
)
def test_what_is_no_address_stays(text: str) -> None:
    assert masked(text, "email") == text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("from 91.8.88.8 port 22", "91.8.88.8"),
        ("http://93.184.216.34/index", "93.184.216.34"),
        ("ip=141.1.1.81;", "141.1.1.81"),
        ("(94.2.2.22)", "94.2.2.22"),
        ("to 88.8.24.4.", "88.8.24.4"),
        ("91.8.88.8:53", "91.8.88.8"),
        ("91.8.88.0/24", "91.8.88.0"),
        ("root@91.8.88.8", "91.8.88.8"),
        ("dns 2001:4860:4860::8888.", "2001:4860:4860::8888"),
        ("[2606:4700:4700:0:0:0:0:1111]:443", "2606:4700:4700:0:0:0:0:1111"),
        ("from 2a00:1450:4001:80b::200e: icmp", "2a00:1450:4001:80b::200e"),
        ("2003:db8::/29", "2003:db8::"),
        ("lat,lon,ip 48.15,-11.58,91.8.88.8,200", "91.8.88.8"),
        ("1286536309.450    180 91.8.88.8 TCP_HIT", "91.8.88.8"),
        ("eth0 91.8.88.8 e3c1", "91.8.88.8"),
        ("06.05.24 91.8.88.8 - - 2.5 s", "91.8.88.8"),
    ],
)
def test_public_ip_addresses_are_masked(text: str, address: str) -> None:
    found = masked(text, "ip")
    before, _, after = text.partition(address)
    placeholder = found[len(before) : len(found) - len(after)]
    assert found == before + placeholder + after
    assert placeholder.startswith(("192.0.2.", "198.51.100.", "203.0.113.", "2001:db8::"))


@pytest.mark.parametrize(
    "text",
    [
        "10.1.2.3 172.16.5.4 192.168.0.1 127.0.0.1 169.254.1.1 100.64.0.9 0.0.0.0",
        "192.0.2.7 198.51.100.8 203.0.113.9 224.0.0.1 255.255.255.255",
        "version 1.72.33.4, Version: 44.33.2.1 ver. 99.8.77.6 release 5.66.7.88",
        "v1.22.3.44 libx.so.1.22.33.4 foo-1.22.33.4 foo_1.22.33.4",
        "1.2.33.44.5 and 1.3.6.1.4.1.311.2.1.14",
        "1.22.33.4-5ubuntu1 1.22.33.4rc1 1.22.33.4-beta",
        "Chrome/120.0.60.99 Safari",
        "pkg==1.22.33.4 pkg>=1.22.33.4 pkg ~=1.22.33.4 ^1.22.33.4",
        "see section 4.41.2.23 and § 5.51.2.23",
        "8.8.8.8 and heading 5.5.1.1 Parameters, libxcb 1.1.90.1",
        "01.02.03.04 256.1.1.1 1.2.3 1.2.3.999",
        '<path d="M3.5 51.98c-.7 3.51.98.32 1.2 4z"/>',
        "l1.5-2 3.51.98.32,7 0",
        "4.2 3.51.98.32 5.1l2.5c.2",
        "fe80::1 ::1 fd00::17 2001:db8::5 2002:808:808::1 2001:0:1::2",
        "12:34:56 2024:05:06 std::vector dead::beef 2024::x 3000:",
        "",
    ],
)
def test_other_numbers_with_dots_and_colons_stay(text: str) -> None:
    assert masked(text, "ip") == text


def test_both_ends_of_a_range_are_masked() -> None:
    assert counts("91.8.88.0-91.8.88.255", "ip") == {"ip": 2}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("call +49 30 1234567, please", "+49 30 1234567"),
        ("+1 (415) 555-2671", "+1 (415) 555-2671"),
        ("+44 (0)20 7946 0958", "+44 (0)20 7946 0958"),
        ("tel:+33123456789", "+33123456789"),
        ("(415) 555-2671.", "(415) 555-2671"),
        ("415-555-2671", "415-555-2671"),
        ("1-800-356-9377 x3", "1-800-356-9377"),
        ("415.555.2671", "415.555.2671"),
    ],
)
def test_phone_numbers_are_masked(text: str, number: str) -> None:
    found = masked(text, "phone")
    before, _, after = text.partition(number)
    placeholder = found[len(before) : len(found) - len(after)]
    assert found == before + placeholder + after
    assert "202-555-01" in placeholder


@pytest.mark.parametrize(
    "text",
    [
        "1234567890 12345678",
        "C++11 a+12345678901 +0530 +12345.6789 +12345678",
        "+100 000 000 000 000 000",
        "123-456-7890 415-155-2671",
        "id 9415-555-2671-8 415-555-26710",
        "202-555-0142 +1 202-555-0199",
        "2024-05-06 10.1000/182.5551234",
        "ISBN 978-3-16-148410-0",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    assert masked(text, "phone") == text


def test_ibans_are_masked_when_their_check_digits_fit() -> None:
    good, grouped, bad = (
        "DE75512108001245126199",
        "DE75 5121 0800 1245 1261 99",
        "DE75512108001245126198",
    )
    text = f"to {good}, {grouped} or {bad} or XX{good[2:]} or A{good}"
    found = masked(text, "iban")
    assert counts(text, "iban") == {"iban": 2}
    assert found.count(good) == 1  # the one that continues a word
    assert bad in found
    placeholder = found[3 : found.index(",")]
    assert placeholder.encode() in iban._EXAMPLES
    assert f"{placeholder}, {placeholder} or" in found


def test_an_iban_ends_where_its_country_says() -> None:
    assert masked("BE71096123456769 EUR", "iban").endswith(" EUR")
    assert counts("BE71096123456769 EUR", "iban") == {"iban": 1}
    assert masked("NL02ABNA0123456789X", "iban") == "NL02ABNA0123456789X"


def test_a_placeholder_depends_on_the_match_alone() -> None:
    text = "a@gmail.com 91.8.88.8 b@gmail.com"
    alone = [masked(part) for part in text.split()]
    assert masked(text).split() == alone
    assert masked("b@gmail.com " * 3 + text).split()[3:] == alone
    documents = documents_of(["b@gmail.com", "no", "a@gmail.com"])
    assert pii.mask(documents, ALL)[0].strings() == [alone[2], "no", alone[0]]
    assert masked("A@GMail.com") == masked("a@gmail.com")
    assert masked("b@gmail.com") != masked("a@gmail.com")


def test_counts_by_kind_and_untouched_batches() -> None:
    documents = documents_of(["x a@gmail.com", "141.1.1.81 82.2.2.32 c@d.org", "plain"])
    changed, found = pii.mask(documents, Pii())
    assert found == {"email": 2, "ip": 2}
    assert changed.string(2) == "plain"
    assert changed.line.tolist() == [1, 2, 3]
    plain = documents_of(["nothing", "to see"])
    assert pii.mask(plain, ALL) == (plain, dict.fromkeys(pii.KINDS, 0))


PIECES = (
    "a@b.com @ . 91.8.88.8 1.22.33.4 : 2606:4700::1 - 415-555-2671 x é ( / 9 +1"
    " DE75512108001245126199 +49\u00a030\u00a01234567 \u00a0 version"
)
pieces = st.lists(
    st.sampled_from([piece.replace("\u00a0", " ") for piece in PIECES.split(" ")]), max_size=12
).map("".join)


@given(st.lists(pieces | st.text(), max_size=4))
def test_masking_twice_changes_nothing_more(texts: list[str]) -> None:
    once, _ = pii.mask(documents_of(texts), ALL)
    again, found = pii.mask(once, ALL)
    assert again.strings() == once.strings()
    assert not any(found.values())


@given(st.lists(pieces, max_size=5))
def test_a_document_does_not_depend_on_its_neighbours(texts: list[str]) -> None:
    together, found = pii.mask(documents_of(texts), ALL)
    assert together.strings() == [masked(text) for text in texts]
    alone = [counts(text) for text in texts]
    assert found == {kind: sum(one[kind] for one in alone) for kind in pii.KINDS}


HOSTILE = {  # what is repeated, between what stands before and behind it
    "at": ("", "a@", ""),
    "ats": ("", "@", ""),
    "local": ("", "a", "@"),
    "domain": ("a@", "b.", ""),
    "labels": ("a@b-", "-c.d", ""),
    "dots": ("", "1.", ""),
    "digits": ("", "1", ""),
    "addresses": ("", "91.8.88.8", ""),
    "colons": ("", "2001:", ""),
    "colons only": ("", ":", ""),
    "pluses": ("", "+4", ""),
    "plus spaces": ("", "+4 ", ""),
    "phones": ("", "415-555-2671-", ""),
    "breaks": ("", "555-5555 ", ""),
    "iban": ("", "DE89", ""),
    "iban spaces": ("", "DE89 ", ""),
    "words": ("", "version ", "1.22.33.4"),
    "brackets": ("", "(", ""),
    "remotes": ("", "a@b.org:", ""),
    "remote": ("a@b.org:", "b/", ""),
    "coordinates": ("", "91.8.88.8 .5 ", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_anything_takes_linear_time(name: str, assert_linear) -> None:
    """And some seconds at the most: 1 where nothing else runs."""
    before, piece, behind = HOSTILE[name]

    def masking(size: int) -> Callable[[], object]:
        documents = documents_of([before + piece * (size // len(piece)) + behind])
        return lambda: pii.mask(documents, ALL)

    assert_linear(masking, 1_000_000, limit_s=20)


def test_random_bytes_of_digits_and_signs_never_fail() -> None:
    source = random.Random(3)
    for _ in range(300):
        text = "".join(source.choices("0123456789.:-+ ()@abDE/", k=source.randrange(200)))
        assert masked(masked(text)) == masked(text)
