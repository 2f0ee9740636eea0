"""What `adapters/experts.py` takes from transformers 5.24 and torch 2.13, and makes of it."""

# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from meshwright.base.errors import MeshwrightError
from meshwright.train.adapters import experts as fused
from meshwright.train.model.tiny import tiny_config

FAMILIES = ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "glm4_moe")
TWO = [[0, 12], [12, 24]]


def experts_of(family: str) -> nn.Module:
    config = tiny_config(family, layers=2)
    config._experts_implementation = "eager"
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    (module,) = [m for m in model.model.layers[-1].modules() if fused.is_experts(m)]
    module.to_empty(device="cpu").double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_marks_experts_and_calls_them_as_we_expect(family):
    module = experts_of(family)
    names = {name for name, _ in module.named_parameters()}
    biases = {"gate_up_proj_bias", "down_proj_bias"} if family == "gpt_oss" else set()
    assert names == {"gate_up_proj", "down_proj"} | biases
    assert names <= set(fused.width_placements(module))
    assert module.num_experts == 8
    fused.check(module)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_products_and_the_gate_are_transformers_own_forward(family):
    module = experts_of(family)
    rows = torch.randn(10, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    numbers = torch.tensor([0, 0, 1, 3, 3, 3, 4, 6, 7, 7])
    ends = torch.bincount(numbers, minlength=8).cumsum(0).int()
    weights = fused.weights_of(module)
    inner = fused.product(rows, weights.up, ends)
    inner = inner if weights.up_bias is None else inner + weights.up_bias[numbers]
    out = fused.product(fused.activated(module, inner), weights.down, ends)
    out = out if weights.down_bias is None else out + weights.down_bias[numbers]
    theirs = module(rows, numbers.unsqueeze(1), torch.ones(10, 1, dtype=torch.float64))
    torch.testing.assert_close(out, theirs, rtol=1e-12, atol=1e-12)


def test_a_layer_without_routed_experts_is_none():
    assert not fused.is_experts(nn.Linear(2, 2))


def test_experts_that_normalize_their_outputs_are_refused():
    module = experts_of("mixtral")
    module.has_post_expert_norm = True
    with pytest.raises(MeshwrightError, match="normalizes the output"):
        fused.check(module)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_each_half_of_the_width_has_the_same_columns_of_gate_and_up(family):
    """Whatever way gate and up lie, gating the halves is gating the whole and cutting it."""
    module = experts_of(family)
    placement = fused.width_placements(module)["gate_up_proj"]
    inner = torch.randn(5, 48, dtype=torch.float64)
    factor = getattr(placement, "split_factor", 1)
    whole = fused.activated(module, inner)
    for half, (start, end) in enumerate(TWO):
        parts = [group.chunk(2, dim=1)[half] for group in inner.chunk(factor, dim=1)]
        mine = fused.activated(module, torch.cat(parts, dim=1))
        torch.testing.assert_close(mine, whole[:, start:end], rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    widths=st.tuples(st.sampled_from([2, 8, 24]), st.sampled_from([4, 6, 16])),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_products_take_any_counts_widths_and_formats(counts, widths, dtype):
    """Among them no rows at all, and rows that torch's grouped kernel refuses as not aligned."""
    generator = torch.Generator().manual_seed(3)
    total = sum(counts)
    rows = torch.randn(total, widths[0], generator=generator).to(dtype).requires_grad_()
    stored = torch.randn(len(counts), widths[1], widths[0], generator=generator).to(dtype)
    weight = stored.requires_grad_()
    ends = torch.tensor(counts).cumsum(0).int()
    out = fused.product(rows, weight.transpose(-2, -1), ends)
    slope = torch.randn(out.shape, generator=generator).to(dtype)
    got = torch.autograd.grad(out, (rows, weight), slope)
    loop = torch.cat([r @ w.T for r, w in zip(rows.split(counts), weight, strict=True)])
    wanted = torch.autograd.grad(loop, (rows, weight), slope)
    near = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    for mine, theirs in zip((out, *got), (loop, *wanted), strict=True):
        torch.testing.assert_close(mine, theirs, **near)
