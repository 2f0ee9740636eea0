"""How many layers are built where a split leaves some over, and MindSpeed's own lists."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_text


def checked(text, framework="megatron-lm"):
    return check_text(text, given=Given(framework=framework), compare=False)


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("--num-layers 30 --pipeline-model-parallel-size 4", 28),
        ("--num-layers 32 --pipeline-model-parallel-size 4", None),
        (
            "--num-layers 20 --pipeline-model-parallel-size 1 --decoder-last-pipeline-num-layers 1",
            1,
        ),
        (
            "--num-layers 80 --pipeline-model-parallel-size 16 "
            "--num-layers-per-virtual-pipeline-stage 2",
            64,
        ),
        (
            "--num-layers 46 --pipeline-model-parallel-size 4 "
            "--decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11",
            None,
        ),
    ],
)
def test_layers_that_whole_divisions_build(text, built):
    assert checked(text).figures.get("layers_built") == built


@pytest.mark.parametrize(("layers", "refused"), [("8,8,7,7", False), ("8,8,7,6", True)])
def test_a_list_of_stages_is_a_split(layers, refused):
    text = f"--num-layers 30 --pipeline-model-parallel-size 4 --num-layer-list {layers}"
    errors = [f.code for f in checked(text, "mindspeed").findings if f.severity == 2]
    assert bool(errors) == refused
    assert "MOD113" not in errors
