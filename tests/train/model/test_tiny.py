import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from meshwright.base.errors import UnknownName  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402

MAX_PARAMETERS = 120_000


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_model_of_every_family_gives_finite_logits(family):
    config = tiny_config(family)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tokens = torch.arange(32).reshape(2, 16)
    logits = model(input_ids=tokens, use_cache=False).logits
    assert config.model_type == family
    assert logits.shape == (2, 16, config.vocab_size)
    assert torch.isfinite(logits).all()
    assert sum(p.numel() for p in model.parameters()) < MAX_PARAMETERS


@pytest.mark.parametrize("family", FAMILIES)
def test_only_gemma_ties_by_itself_and_every_family_does_when_told(family):
    assert tiny_config(family).tie_word_embeddings == family.startswith("gemma")
    assert tiny_config(family, tie_word_embeddings=True).tie_word_embeddings


def test_windows_experts_and_dense_layers_are_there():
    assert tiny_config("mistral").sliding_window == 8
    assert tiny_config("gemma2").layer_types[:2] == ["sliding_attention", "full_attention"]
    assert tiny_config("deepseek_v3", layers=3).first_k_dense_replace == 1
    assert tiny_config("mixtral").num_local_experts == 8


def test_an_unknown_family_is_named():
    with pytest.raises(UnknownName, match="unknown model family"):
        tiny_config("lama")
