"""Arguments that hold a mapping as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.read import read_text
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source
from meshwright.frameworks.text.edit import replace_value

LINE = '--fsdp "full_shard" --fsdp_config \'{"state_dict_type": "FULL_STATE_DICT", "version": 1}\''


def _settings(text: str) -> dict[str, object]:
    return {
        s.name: s.value for s in parse_source(Source(file="", text=text, syntax="shell")).settings
    }


def test_leaves_have_dotted_names() -> None:
    assert _settings(LINE) == {
        "--fsdp": "full_shard",
        "--fsdp_config.state_dict_type": "FULL_STATE_DICT",
        "--fsdp_config.version": 1,
    }


def test_a_trainer_reads_them() -> None:
    reading = read_text(f"{LINE} --per_device_train_batch_size 1", framework="hf-trainer")
    assert reading.value("checkpoint_gathered") is True


@pytest.mark.parametrize("value", ["{not json}", "{}", "${HOME}/x.json", "{a,b}"])
def test_other_braces_stay_as_they_are(value: str) -> None:
    assert "--fsdp_config.a" not in _settings(f"--fsdp_config '{value}'")
    assert "--fsdp_config" in _settings(f"--fsdp_config '{value}'")


def test_no_edit_replaces_the_whole_mapping_by_one_value() -> None:
    parsed = parse_source(Source(file="", text=LINE, syntax="shell"))
    inner = next(s for s in parsed.settings if s.name.endswith("version"))
    with pytest.raises(MeshwrightError):
        replace_value(inner, 2)


@given(
    st.dictionaries(
        st.text("abcxyz_", min_size=1, max_size=8), st.integers() | st.booleans(), min_size=1
    )
)
def test_every_leaf_is_found(stated: dict[str, object]) -> None:
    found = _settings(f"--config '{json.dumps(stated)}'")
    assert found == {f"--config.{name}": value for name, value in stated.items()}
