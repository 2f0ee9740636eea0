from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tensor_cases import hidden_of, mesh_of_all, model_of, rows  # noqa: E402
from torch.nn import functional  # noqa: E402

from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.loss import cut_cross_entropy, head, token_loss  # noqa: E402
from meshwright.train.model.tiny import FAMILIES  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_makes_the_logits_of_the_model_itself(family):
    model = model_of(family)
    tokens = rows(1)[0][0]
    seen = []
    model.model.register_forward_hook(lambda _, __, out: seen.append(out.last_hidden_state))
    with torch.no_grad():
        places = torch.arange(tokens.shape[1])
        hidden = hidden_of(model, tokens)
        seen.clear()
        model.config._attn_implementation = "eager"
        logits = model(input_ids=tokens, position_ids=places[None], use_cache=False).logits
        assert hidden.shape == seen[0].shape
        assert torch.equal(head(model, seen[0]), logits)


def test_gemma_2_caps_its_logits():
    model = model_of("gemma2")
    cap = model.config.final_logit_softcapping
    logits = head(model, 1e4 * torch.ones(1, 1, 32, dtype=torch.float64))
    assert logits.abs().max() <= cap
    assert model.lm_head(1e4 * torch.ones(1, 1, 32, dtype=torch.float64)).abs().max() > cap


def given_hidden():
    source = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 9, 32, generator=source, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 96, (2, 9), generator=source)
    labels[0, :4] = -100
    return hidden, labels


@settings(max_examples=20, deadline=None)
@given(chunks=st.integers(1, 18))
def test_chunks_change_neither_loss_nor_gradients(chunks):
    model = model_of("gemma2", layers=1)
    hidden, labels = given_hidden()
    expected = functional.cross_entropy(
        head(model, hidden).flatten(0, 1), labels.flatten(), reduction="sum"
    )
    wanted = torch.autograd.grad(expected, [hidden, model.lm_head.weight])
    loss = token_loss(model, hidden, labels, chunks=chunks)
    got = torch.autograd.grad(loss.sum(), [hidden, model.lm_head.weight])
    assert loss.shape == (1,)
    torch.testing.assert_close(loss[0], expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)


def test_logits_of_all_tokens_are_never_whole():
    model = model_of("llama", layers=1)
    hidden, labels = given_hidden()
    rows_made = []
    model.lm_head.register_forward_hook(lambda _, __, out: rows_made.append(out.shape[0]))
    token_loss(model, hidden, labels, chunks=6).sum().backward()
    assert max(rows_made) == 3
    assert sum(rows_made) == 2 * 18  # once forward, once backward


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", "float32"), ("float64", "float64")])
def test_narrow_logits_are_widened_and_wide_ones_kept(dtype, expected):
    model = model_of("llama", layers=1).to(getattr(torch, dtype))
    hidden, labels = given_hidden()
    loss = token_loss(model, hidden.to(getattr(torch, dtype)), labels)
    assert loss.dtype is getattr(torch, expected)


def test_labels_that_do_not_count_add_nothing():
    model = model_of("llama", layers=1)
    hidden, labels = given_hidden()
    loss = token_loss(model, hidden, torch.full_like(labels, -100))
    loss.sum().backward()
    assert loss.item() == 0
    assert hidden.grad.abs().max() == 0


# Cut over the vocabulary


def cut_and_whole(cases):
    """On a rank: (loss, gradient of own columns) beside those of the whole."""
    mesh = mesh_of_all()
    worst = 0.0
    for tokens, vocab_size, scale, seed in cases:
        source = torch.Generator().manual_seed(seed)
        whole = scale * torch.randn(tokens, vocab_size, generator=source, dtype=torch.float64)
        labels = torch.randint(-1, vocab_size, (tokens,), generator=source)
        labels[labels < 0] = -100
        whole.requires_grad_()
        expected = functional.cross_entropy(whole, labels, reduction="sum")
        expected.backward()
        mine = whole.detach().chunk(mesh.size(), dim=1)[mesh.get_local_rank()].clone()
        mine.requires_grad_()
        loss = cut_cross_entropy(mine, labels, vocab_size, mesh=mesh)
        (3 * loss).sum().backward()
        wanted = whole.grad.chunk(mesh.size(), dim=1)[mesh.get_local_rank()]
        worst = max(worst, (mine.grad - 3 * wanted).abs().max().item())
        worst = max(worst, (loss[0] - expected).abs().item() / max(expected.item(), 1))
    return worst


def test_a_cut_vocabulary_gives_the_same_loss_and_gradients():
    # logits up to 1e3: exp of them alone would overflow; 7 over 3 ranks cuts unevenly
    sizes = [(1, 3, 1.0), (5, 7, 1.0), (4, 96, 10.0), (3, 12, 1e3), (16, 50, 1e-3)]
    cases = [(*size, seed) for seed in range(4) for size in sizes]
    assert max(run_ranks(cut_and_whole, 3, cases)) < 1e-12
