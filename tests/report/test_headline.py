"""The first line: what was read, in the figures that publishers state."""

from __future__ import annotations

import pytest

from meshwright import api
from meshwright.report.headline import cluster_words, model_words, step_words


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("llama-3.1-70b", "llama-3.1-70b, 70.6B parameters"),
        (
            "deepseek-v3",
            "deepseek-v3, 671B parameters (37.6B active), 11.6B more to predict further tokens",
        ),
        ("mixtral-8x7b", "mixtral-8x7b, 46.7B parameters (12.9B active)"),
    ],
)
def test_models(name, says):
    assert model_words(api.load_model(name)) == says


def test_clusters_and_steps():
    words = cluster_words(api.cluster("H100:8", nodes=2))
    assert words.startswith("16 x H100")
    assert "2 nodes, nvlink 450 GB/s, infiniband 50.0 GB/s a GPU" in words
    assert "1 node, " in cluster_words(api.cluster("H100:8"))
    work = api.workload(seq_len=8192, global_batch="4Mtok")
    assert step_words(work) == "512 x 8,192 tokens a step (4.19M)"
