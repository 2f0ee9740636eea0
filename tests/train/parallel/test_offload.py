"""Parameters and saved activations on the host: the same numbers, and what is let go of."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")

from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from meshwright.plan.plan import Plan, Recompute, Schedule  # noqa: E402
from meshwright.plan.stages import num_chunks  # noqa: E402
from meshwright.train.model.tiny import tiny_config  # noqa: E402
from meshwright.train.parallel import offload  # noqa: E402
from meshwright.train.verify import judge  # noqa: E402
from meshwright.train.verify.shrinking import Trial  # noqa: E402

ALL = {"offload_params": True, "offload_activations": 1.0}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama", ALL),
        ("qwen3_moe", ALL | {"dp": 2, "ep": 2, "zero_stage": 3, "recompute": Recompute.FULL}),
        ("llama", {"offload_activations": 0.5, "tp": 2}),
        ("llama", {"offload_activations": 1.0, "pp": 2, "schedule": Schedule.ZB_V}),
    ],
)
def test_what_lies_on_the_host_changes_no_number(family, fields):
    plan = Plan(**fields)
    trial = Trial(
        plan=plan,
        layers=max(int(num_chunks(plan)), 2),
        heads_multiple=int(plan.tp),
        experts_multiple=int(plan.ep),
        microbatches=4 if int(plan.pp) > 1 else 2,
    )
    verdict = judge(trial, tiny_config(family, layers=trial.layers), steps=2)
    assert not verdict.error, verdict.error
    assert verdict.exact, verdict.differing[:5]


class Layer(nn.Sequential):
    """Saves its input, what lies between its products, and its weights."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


def test_saved_activations_leave_and_weights_stay(monkeypatch):
    layers = [Layer() for _ in range(3)]
    offload.apply(layers, share=0.6)  # rounded up: the first two
    left, kept = [], []
    pack = offload._out

    def told(layer, tensor):
        packed = pack(layer, tensor)
        (left if isinstance(packed, tuple) else kept).append(
            (StorageWeakRef(tensor.untyped_storage()), layer)
        )
        return packed

    monkeypatch.setattr(offload, "_out", told)
    x = torch.randn(4, 8, requires_grad=True)
    for layer in layers:
        x = layer(x)
    assert {layer for _, layer in left} == set(layers[:2])
    first_input = 1  # the test holds it
    assert sum(not ref.expired() for ref, _ in left) <= first_input
    weights = {p.untyped_storage().data_ptr() for layer in layers for p in layer.parameters()}
    assert kept
    assert all(ref.cdata for ref, _ in kept)
    assert weights  # every one that is kept is one of them
    x.sum().backward()
    assert all(p.grad is not None for layer in layers for p in layer.parameters())


def test_gradients_through_the_host_are_the_same():
    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(4, 8)
    layer(x).sum().backward()
    plain = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    offload.apply([layer], share=1.0)
    layer(x).sum().backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(layer.parameters(), plain, strict=True))
