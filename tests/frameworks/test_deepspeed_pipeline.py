"""A comment about the program's pipeline gives its stages; the file's own key counts more."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text


@pytest.mark.parametrize(
    ("comment", "stages"),
    [
        ("# model is a deepspeed.pipe.PipelineModule with 2 stages", 2),
        ("# PipelineModule(num_stages=4)", 4),
        ("# ZeRO has 3 stages", None),
        ("# a PipelineModule", None),
    ],
)
def test_stages_of_a_comment(comment: str, stages: int | None) -> None:
    text = f'{{"train_batch_size": 8, "zero_optimization": {{"stage": 2}}}}\n{comment}'
    reading = read_text(text, framework="deepspeed")
    assert reading.value("pp") in (stages, 1 if stages is None else stages)
    assert reading.is_stated("pp") == (stages is not None)


def test_the_key_counts_more_than_the_comment() -> None:
    text = '{"train_batch_size": 8, "pipeline": {"stages": 8}}\n# PipelineModule with 2 stages'
    assert read_text(text, framework="deepspeed").value("pp") == 8
