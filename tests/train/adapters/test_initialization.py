import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import PreTrainedModel, initialization  # noqa: E402

from meshwright.train.adapters.initialization import Operation, recipes_of  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402
from meshwright.train.model.twin import twin_of  # noqa: E402


def test_transformers_still_initializes_as_it_is_recorded_here():
    # if this fails: read modeling_utils.py and initialization.py of the new transformers, and mend
    # adapters/initialization.py
    for name in ("initialize_weights", "_initialize_weights", "_init_weights"):
        assert callable(getattr(PreTrainedModel, name))
    for name in ("normal_", "zeros_", "ones_", "copy_", "constant_"):
        assert callable(getattr(initialization, name))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_family_can_be_drawn_in_parts(family):
    config = tiny_config(family, layers=2)
    recipes = recipes_of(config)
    shapes = {name: tuple(p.shape) for name, p in twin_of(config).named_parameters()}
    assert {name: recipe.shape for name, recipe in recipes.items()} == shapes


def test_a_recipe_is_what_the_family_does():
    recipes = recipes_of(tiny_config("llama", layers=2, pad_token_id=3))
    drawn = Operation(name="normal_", arguments=(0.0, 0.2))
    assert recipes["model.layers.1.mlp.up_proj.weight"].operations == (drawn,)
    assert recipes["model.norm.weight"].operations == (Operation(name="fill_", arguments=(1.0,)),)
    padding = Operation(name="zero_", arguments=(), row=3)
    assert [op.row for op in recipes["model.embed_tokens.weight"].operations] == [None, 3]
    assert recipes["model.embed_tokens.weight"].operations[-1].row == padding.row
