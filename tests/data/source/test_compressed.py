"""gz and zst: several members and frames, cut short, damaged, followed by garbage, bombs."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.data.settings import Limits
from meshwright.data.source.gzip import gunzipped
from meshwright.data.source.zstd import unzstandard

LINES = b"".join(b'{"text":"line %d %d"}\n' % (i, i * i) for i in range(400))
NOISE = random.Random(5).randbytes(300_000)
MIB = 1 << 20


def zst(content: bytes, **options) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(content)


def streamed(content: bytes, **options) -> bytes:
    """A frame that does not say how much it holds."""
    frame = zstandard.ZstdCompressor(**options).compressobj()
    return frame.compress(content) + frame.flush()


COMPRESSED = {
    "gz": gzip.compress(LINES),
    "gz of two members": gzip.compress(LINES[:5000]) + gzip.compress(LINES[5000:], 1),
    "gz with a name and zeros behind": b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\0"
    + zlib.compress(LINES, wbits=-15)
    + zlib.crc32(LINES).to_bytes(4, "little")
    + len(LINES).to_bytes(4, "little")
    + b"\0" * 512,
    "gz with an empty member": gzip.compress(b"") + gzip.compress(LINES) + gzip.compress(b""),
    "zst": zst(LINES),
    "zst of unknown size with a checksum": streamed(LINES, write_checksum=True),
    "zst of two frames": zst(LINES[:5000]) + streamed(LINES[5000:]),
    "zst with skippable frames": b"\x5f\x2a\x4d\x18\4\0\0\0abcd"
    + zst(LINES)
    + b"\x50\x2a\x4d\x18"
    + bytes(4),
}


def outcome(expand, pieces) -> tuple[bytes, Finding | None]:
    """What comes out, and what is told at the end."""
    got = b""
    try:
        for piece in expand(iter(pieces), "x"):
            got += piece
    except InvalidInput as error:
        return got, error.findings[0]
    return got, None


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst", "x.jsonl", "x"])
def test_what_is_inside_is_read_whatever_the_name_says(read, kind, name):
    found = read(name, COMPRESSED[kind])
    assert [line for _, line, _ in found.documents] == list(range(1, 401))
    assert found.texts[399] == "line 399 159201"
    assert found.units == 1


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_file_cut_short_anywhere_is_told(read, kind):
    content = COMPRESSED[kind]
    expand = gunzipped if kind.startswith("gz") else unzstandard
    for size in range(1, len(content)):
        got, told = outcome(expand, [content[:size]])
        if told is None:  # between members or frames, or within padding, nothing shows
            assert got in (b"", LINES[:5000], LINES)
        else:
            assert "cut short" in told.message
            assert told.file == "x"


@pytest.mark.parametrize("kind", COMPRESSED)
def test_how_far_a_cut_file_goes_is_told_by_the_reader(read, kind):
    content = COMPRESSED[kind].rstrip(b"\0")
    cut = content[: len(content) * 2 // 3]
    with pytest.raises(InvalidInput, match=r"after [\d,]+ (stored )?bytes") as caught:
        read("x.jsonl." + kind[:3].strip(), cut)
    assert caught.value.findings[0].file.endswith("x.jsonl." + kind[:3].strip())
    assert caught.value.findings[0].hint


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_garbage_behind_the_end_is_told(read, kind):
    with pytest.raises(InvalidInput, match="follow"):
        read(f"x.jsonl.{kind}", COMPRESSED[kind] + b"garbage of some length")


@given(st.data(), st.sampled_from(sorted(COMPRESSED)))
def test_any_damage_is_an_error_of_ours_or_none(data, kind):
    content = bytearray(COMPRESSED[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(1, 500))
    pieces = [bytes(content[at : at + size]) for at in range(0, len(content), size)]
    expand = gunzipped if kind.startswith("gz") else unzstandard
    got, told = outcome(expand, pieces)
    assert told or len(got) <= len(LINES)
    assert told is None or told.file == "x"


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"]),
)
def test_any_bytes_are_an_error_of_ours_or_content(noise, start):
    for expand in (gunzipped, unzstandard):
        got, told = outcome(expand, [start + noise])
        assert told is None or told.hint
        assert len(got) < 64 << 20


@pytest.mark.parametrize("expand", [gunzipped, unzstandard])
@pytest.mark.parametrize("content", [NOISE, bytes(3 * MIB), NOISE[:5] * 300_000])
def test_no_piece_is_larger_than_a_mib_and_all_come_through(expand, content):
    stored = gzip.compress(content) if expand is gunzipped else streamed(content)
    pieces = list(expand(iter([stored]), "x"))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= MIB


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_bomb_stops_at_its_limit_in_little_memory(read, monkeypatch, kind):
    monkeypatch.setattr("meshwright.data.source.opening.FREE_BYTES", 4 * MIB)
    line = b'{"text":"%s"}\n' % (b"a" * MIB)
    packer = (
        zlib.compressobj(wbits=31) if kind == "gz" else zstandard.ZstdCompressor().compressobj()
    )
    bomb = b"".join(packer.compress(line) for _ in range(24)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="bomb"):
        read(f"x.jsonl.{kind}", bomb, limits=Limits(expansion=10))
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    tracemalloc.stop()
    assert len(read(f"x.jsonl.{kind}", bomb, limits=Limits(expansion=1e6)).documents) == 24


def test_a_line_of_gigabytes_is_not_held(read):
    packer = zstandard.ZstdCompressor().compressobj()
    zeros = b" " * MIB
    bomb = packer.compress(b'{"text":"a"}\n') + b"".join(packer.compress(zeros) for _ in range(200))
    tracemalloc.start()
    found = read("x.jsonl.zst", bomb + packer.flush(), limits=Limits(document_bytes=MIB))
    assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    tracemalloc.stop()
    assert found.texts == ["a"]
    assert found.rejected == [(0, 2, "too_long")]


def test_windows_and_dictionaries_that_cannot_be_met_are_told(read):
    wide = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1)
    with pytest.raises(InvalidInput, match="window of 268,435,456"):
        read("x.jsonl.zst", streamed(LINES, compression_params=wide))
    samples = [b"%d sample of text %d" % (i, i * i) for i in range(2000)]
    trained = zstandard.train_dictionary(1000, samples)
    with pytest.raises(InvalidInput, match="needs dictionary"):
        read("x.jsonl.zst", zst(LINES, dict_data=trained))
