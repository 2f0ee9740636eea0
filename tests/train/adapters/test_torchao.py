"""What is taken from torchao: 8-bit AdamW and fp8 layers, where it is installed."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from meshwright.base.errors import InvalidInput, MeshwrightError  # noqa: E402
from meshwright.train.adapters import eight_bit, float8  # noqa: E402
from meshwright.train.settings import Recipe  # noqa: E402

needs_torchao = pytest.mark.skipif(not float8.is_here(), reason="torchao is not installed")


def _stage():
    torch.manual_seed(0)
    layers = nn.ModuleDict({"fits": nn.Linear(32, 48), "not": nn.Linear(32, 20)})
    return SimpleNamespace(layers=[layers])


@needs_torchao
def test_layers_that_fit_multiply_in_eight_bits():
    stage = _stage()
    names = [name for name, _ in stage.layers[0].named_parameters()]
    float8.apply(stage, device_type="cpu", emulate=True)
    layer = stage.layers[0]
    assert type(layer["fits"]).__name__ == "Float8Linear"
    assert type(layer["not"]) is nn.Linear
    assert [name for name, _ in layer.named_parameters()] == names
    x = torch.randn(16, 32)
    wanted, found = (
        nn.functional.linear(x, layer["fits"].weight, layer["fits"].bias),
        layer["fits"](x),
    )
    error = float((found - wanted).detach().abs().max() / wanted.detach().abs().max())
    assert 0 < error < 0.1
    found.sum().backward()
    assert layer["fits"].weight.grad is not None


@needs_torchao
def test_a_device_without_such_products_is_refused():
    with pytest.raises(InvalidInput, match=r"8\.9"):
        float8.apply(_stage(), device_type="cpu")


@needs_torchao
def test_states_of_eight_bits_update_nearly_as_those_of_four_bytes():
    mine, theirs = (nn.Parameter(torch.ones(64, 128)) for _ in range(2))
    optimizer = eight_bit.adamw(
        [{"params": [mine], "weight_decay": 0.1}], Recipe(learning_rate=0.1)
    )
    plain = torch.optim.AdamW([theirs], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(3):
        gradient = torch.randn(64, 128, generator=torch.Generator().manual_seed(step))
        mine.grad, theirs.grad = gradient, gradient.clone()
        optimizer.step()
        plain.step()
    moved = (theirs - 1).abs().max()
    assert (mine - theirs).abs().max() < 0.1 * moved
    assert optimizer.state[mine]["exp_avg"].codes.dtype is torch.uint8


@pytest.mark.skipif(float8.is_here(), reason="torchao is installed")
def test_without_it_the_answer_is_what_to_install():
    with pytest.raises(MeshwrightError) as told:
        eight_bit.adamw([], Recipe())
    assert told.value.hint == "pip install torchao"
    with pytest.raises(MeshwrightError):
        float8.apply(_stage(), device_type="cpu")
