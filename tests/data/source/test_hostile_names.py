"""Names of fields and URLs that libraries choke on."""

from __future__ import annotations

import json

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.settings import Source
from meshwright.data.source.jsonl import LONG_BYTES, Fields, jsonl_rows
from meshwright.data.source.lines import Lines
from meshwright.data.source.listing import list_inputs


@pytest.mark.parametrize("name", ['"', "te\nxt", "te\0xt", "back\\slash", "a.b\tc", "plain"])
@pytest.mark.parametrize("key", ["text", "id"])
def test_any_name_of_a_field_is_found_in_a_long_line(name, key):
    other = {"text": "t", "id": "i"} | {key: name}
    record = {other["text"]: "x" * LONG_BYTES, other["id"]: "x"}
    block = Lines(1, [json.dumps(record).encode()])
    (rows,) = jsonl_rows([block], Fields(**other), lambda *_: pytest.fail("set aside"))
    assert [len(text) for text in rows.texts] == [LONG_BYTES]
    assert rows.ids == ["x"]


@pytest.mark.parametrize(
    "url", ["reference://x", "dir://x", "generic://x", "github://x", "ab::cd", "::", "cached://x"]
)
def test_whatever_a_protocol_raises_is_told(url):
    with pytest.raises(InvalidInput) as caught:
        list_inputs([Source(files=(url,))])
    (finding,) = caught.value.findings
    assert finding.file == url
    assert finding.reason
    assert finding.hint
