import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch.nn import functional  # noqa: E402
from transformers import AttentionInterface, AutoModelForCausalLM  # noqa: E402
from transformers.masking_utils import AttentionMaskInterface  # noqa: E402

from meshwright.base.errors import MeshwrightError  # noqa: E402
from meshwright.train.adapters.attention import NAME, choose, register  # noqa: E402
from meshwright.train.attention.function import attention  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402
from meshwright.train.span import Span  # noqa: E402

TOKENS = 12
PIECES = ((0, 5, 12), (0, 1, 12))
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] + [1] * 11], dtype=torch.int32)
SPAN = Span(positions=torch.arange(TOKENS), documents=DOCUMENTS, pieces=PIECES)


def test_the_interfaces_of_transformers_are_those_we_know():
    register()
    assert AttentionInterface().get_interface(NAME, None) is attention
    message = "transformers would build masks for our name: see masking_utils"
    assert NAME not in AttentionMaskInterface._global_mapping, message


@pytest.fixture(name="exact_softmax")
def _exact_softmax(monkeypatch):
    """transformers' eager attention rounds the weights to float32 whatever the model's dtype."""
    real = functional.softmax

    def softmax(scores, dim=None, dtype=None, **options):
        return real(scores, dim, dtype=torch.promote_types(dtype or scores.dtype, scores.dtype))

    monkeypatch.setattr(functional, "softmax", softmax)


def model_of(family):
    config = tiny_config(family, layers=2)
    choose(config)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    return lm.train()


def mask_of(window):
    places = torch.arange(TOKENS)
    ago = places[:, None] - places[None, :]
    seen = (ago >= 0) & (ago < (window or TOKENS))
    seen = seen & (DOCUMENTS[:, :, None] == DOCUMENTS[:, None, :])
    return torch.zeros(2, 1, TOKENS, TOKENS, dtype=torch.float64).masked_fill(
        ~seen[:, None], float("-inf")
    )


def assert_equals_eager(module, query, key, value, mask, **keywords):
    """Output and gradients of ours and of the family's own function; ours."""
    assert mask is None
    assert keywords["span"] is SPAN
    leaves = [t.detach().requires_grad_() for t in (query, key, value)]
    sinks = [module.sinks] if keywords.get("s_aux") is not None else []
    eager = sys.modules[type(module).__module__].eager_attention_forward
    theirs, _ = eager(module, *leaves, mask_of(keywords.get("sliding_window")), **keywords)
    ours, _ = attention(module, *leaves, None, **keywords)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    up = torch.randn_like(ours)
    pairs = [torch.autograd.grad((o * up).sum(), leaves + sinks) for o in (ours, theirs)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
    return attention(module, query, key, value, None, **keywords)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("exact_softmax")
def test_equals_the_familys_eager_attention(family):
    layers = []

    def compared(module, *tensors, **keywords):
        layers.append(module.layer_idx if hasattr(module, "layer_idx") else len(layers))
        return assert_equals_eager(module, *tensors, **keywords)

    lm = model_of(family)
    AttentionInterface.register("compared", compared)
    lm.config._attn_implementation = "compared"
    tokens = torch.randint(0, 90, (2, TOKENS))
    lm(input_ids=tokens, use_cache=False, span=SPAN).logits.sum().backward()
    assert len(layers) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_span_arrives_again_when_layers_are_recomputed(family):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    spans = []

    def noted(*tensors, span=None, **keywords):
        spans.append(span)
        return attention(*tensors, span=span, **keywords)

    lm = model_of(family)
    AttentionInterface.register("noted", noted)
    lm.config._attn_implementation = "noted"
    for i, layer in enumerate(lm.model.layers):
        lm.model.layers[i] = checkpoint_wrapper(layer, preserve_rng_state=False)
    tokens = torch.randint(0, 90, (2, TOKENS))
    lm.model(input_ids=tokens, use_cache=False, span=SPAN).last_hidden_state.sum().backward()
    assert len(spans) == 4
    assert all(span is SPAN for span in spans)


def one_layer():
    module = torch.nn.Module()
    q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    return module, q, k, v


def results_and_kept(recomputed):
    """Output, gradients, and how many tensors the forward pass kept for them."""
    torch.manual_seed(0)
    module, q, k, v = one_layer()
    module.recomputed = recomputed
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out, _ = attention(module, q, k, v, None, softcap=3.0)
    return [out, *torch.autograd.grad(out.square().sum(), [q, k, v])], len(kept)


def test_a_module_marked_recomputed_keeps_query_key_and_value_alone():
    (ours, three), (theirs, five) = results_and_kept(True), results_and_kept(False)
    assert (three, five) == (3, 5)  # without output and log-sum-exp
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"attention_mask": torch.zeros(1, 1, 8, 8)}, "mask"),
        ({"attention_mask": None, "dropout": 0.1}, "dropout of 0.1"),
    ],
)
def test_what_would_be_left_out_is_refused(keywords, words):
    module, q, k, v = one_layer()
    with pytest.raises(MeshwrightError, match=words):
        attention(module, q, k, v, **keywords)


def test_a_layer_that_looks_ahead_is_refused():
    module, q, k, v = one_layer()
    module.is_causal = False
    with pytest.raises(MeshwrightError, match="both directions"):
        attention(module, q, k, v, None)
