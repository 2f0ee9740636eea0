"""The dictionary of knobs."""

from __future__ import annotations

import re
from pathlib import Path

import meshwright
from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.names import dictionary, find, shared
from meshwright.frameworks.variables import variables

SOURCES = Path(meshwright.__file__).parent


def entry(variable):
    return next(e for e in dictionary() if e.variable == variable)


def test_one_knob_has_many_names():
    names = entry("tp").spellings
    assert names["megatron-lm"][0] == "--tensor-model-parallel-size"
    assert names["torchtitan"][0] == "parallelism.tensor_parallel_degree"
    assert names["nanotron"] == ("parallelism.tp",)
    assert len(entry("tp")) > 10


def test_names_carry_default_and_versions():
    newest, oldest = entry("local_batch_size").names["torchtitan"]
    assert (newest.field, newest.default, newest.versions) == (
        "training.local_batch_size",
        8,
        "from 0.1",
    )
    assert oldest.versions == "up to 0.0.2"


def test_every_variable_of_every_table_is_defined():
    known = variables()
    for item in all_frameworks():
        undefined = {f.variable for f in item.table.fields if f.variable} - {*known}
        assert not undefined, item.name


def test_a_word_finds_its_knob_first():
    assert find("tensor_parallel_degree")[0].variable == "tp"
    assert find("--seq-length")[0].variable == "seq_len"
    assert find("no such thing") == ()


def test_shared_knobs_are_in_several_frameworks():
    assert all(len(e) >= 3 for e in shared(3))
    assert {"tp", "pp", "micro_batch_size", "seq_len"} <= {e.variable for e in shared(5)}


def test_every_variable_is_set_or_read_somewhere():
    """One that neither a table nor the code knows could be given by --set, to no effect."""
    tables = {field.variable for item in all_frameworks() for field in item.table.fields}
    texts = (path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    read = {word for text in texts for word in re.findall(r"\w+", text)}
    by_environment = {v for v in variables() if v.startswith(("nccl_", "saved_"))}
    assert set(variables()) - tables - read - by_environment == set()
