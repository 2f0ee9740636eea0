import inspect

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import core_model_loading as core  # noqa: E402
from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: E402

from meshwright.train.adapters.conversion import tied_names  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402
from meshwright.train.model.twin import twin_of  # noqa: E402

KNOWN = {"MergeModulelist", "Concatenate", "Chunk", "SplitModulelist", "Transpose"}


def test_transformers_still_converts_weights_as_it_is_done_here():
    # if this fails: read core_model_loading.py of the new transformers, and mend
    # adapters/conversion.py
    assert list(inspect.signature(core.rename_source_key).parameters)[:5] == [
        "source_key",
        "weight_renamings",
        "weight_converters",
        "base_model_prefix",
        "meta_state_dict",
    ]
    for name in ("apply_converters", "apply_renamings", "dot_natural_key", "PrefixChange"):
        assert hasattr(core, name)
    assert all(hasattr(core, name) for name in KNOWN)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_needs_an_operation_that_is_not_known(family):
    model = twin_of(tiny_config(family, layers=2))
    for rule in get_model_conversion_mapping(model):
        for operation in getattr(rule, "operations", ()):
            assert type(operation).__name__ in KNOWN
            assert type(operation.reverse_op).__name__ in KNOWN


def test_ties_are_known_by_name():
    tied = tied_names(twin_of(tiny_config("gemma2", layers=2)))
    assert tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert tied_names(twin_of(tiny_config("llama", layers=2))) == {}
