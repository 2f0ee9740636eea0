"""Whatever stands in a file of the family, its meaning is told without a fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.framework import framework
from meshwright.frameworks.inverse import reading_of
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.setting import UNKNOWN

FAMILY = ("deepspeed", "accelerate", "hf-trainer", "llama-factory", "axolotl", "torch-fsdp")
WORDS = (
    "auto",
    "none",
    "cpu",
    "full",
    "full_shard",
    "bf16",
    "lora",
    "true",
    "",
    "-1",
    "zero3.json",
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.integers(),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.just(UNKNOWN),
)
VALUES = st.one_of(PLAIN, st.lists(PLAIN, max_size=3), st.dictionaries(st.text(max_size=3), PLAIN))


def typed(name: str, field: str, value: Any) -> Any:
    """The value as the table hands it on: unknown where it is not of the field's type."""
    read, reason = framework(name).table.named(field).read(value)
    return UNKNOWN if reason else read


@pytest.mark.parametrize("name", FAMILY)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_values_of_any_fields(name: str, data: st.DataObject) -> None:
    table = framework(name).table
    weighty = [f.name for f in table.fields if f.variable]
    every = [f.name for f in table.fields if not f.name.endswith(".*")]
    fields = st.lists(st.sampled_from(weighty) | st.sampled_from(every), max_size=12, unique=True)
    stated = {f: typed(name, f, data.draw(VALUES)) for f in data.draw(fields)}
    reading = reading_of(framework(name), "", stated, num_gpus=8)
    try:
        plan = draft(reading).job.plan.row(0)
    except MeshwrightError:  # so many GPUs that no cluster has them
        return
    assert plan.dp >= 1
