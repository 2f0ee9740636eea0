"""Adapters by peft: exact under every axis, resumed, merged, and what peft makes of a layer."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("torch._dynamo")

from running import CONFIG, spec_of, trained  # noqa: E402
from torch import nn  # noqa: E402

from meshwright.plan.plan import Plan, Schedule  # noqa: E402
from meshwright.plan.stages import num_chunks  # noqa: E402
from meshwright.train import safetensors  # noqa: E402,F401
from meshwright.train.adapters import lora  # noqa: E402
from meshwright.train.export import export  # noqa: E402
from meshwright.train.model.configuration import configuration_from_keys  # noqa: E402
from meshwright.train.model.tiny import tiny_config  # noqa: E402
from meshwright.train.model.twin import twin_of  # noqa: E402
from meshwright.train.settings import Saving  # noqa: E402
from meshwright.train.stage import canonical_name  # noqa: E402
from meshwright.train.verify import judge  # noqa: E402
from meshwright.train.verify.shrinking import Trial  # noqa: E402


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("qwen3", {"dp": 2, "zero_stage": 3, "lora_all_linear": False}),
        ("gemma2", {"pp": 2, "schedule": Schedule.ZB_V}),  # tied, both ends frozen
        ("deepseek_v3", {"cp": 2}),
        ("qwen3_moe", {"dp": 2, "ep": 2, "zero_stage": 3}),
    ],
)
def test_adapters_are_trained_as_in_one_process(family, fields):
    plan = Plan(**fields, lora_rank=4)
    trial = Trial(
        plan=plan,
        layers=max(int(num_chunks(plan)), 2),
        heads_multiple=int(plan.cp),
        experts_multiple=int(plan.ep),
        microbatches=4 if int(plan.pp) > 1 else 2,
    )
    verdict = judge(trial, tiny_config(family, layers=trial.layers), steps=3)
    assert not verdict.error, verdict.error
    assert verdict.exact, verdict.differing[:5]


def _adapted(**fields):
    model = twin_of(configuration_from_keys(CONFIG))
    names = {name for name, _ in model.named_parameters()}
    lora.apply(model, Plan(lora_rank=4, **fields))
    return names, {canonical_name(name): p for name, p in model.named_parameters()}


@pytest.mark.parametrize(("every", "adapted"), [(True, 7), (False, 4)])
def test_frozen_weights_keep_their_names(every, adapted):
    names, parameters = _adapted(lora_all_linear=every)
    new = set(parameters) - names
    assert names <= set(parameters)
    assert new == {n for n, p in parameters.items() if p.requires_grad}
    assert all(lora.is_adapter(name) for name in new)
    assert len(new) == 2 * adapted * CONFIG["num_hidden_layers"]
    for name in names:
        pair = lora.adapters_of(name)
        assert pair is None or (pair[0] in new) == (pair[1] in new)


def test_adapters_begin_as_those_of_peft():
    layer = nn.ModuleList([nn.Linear(24, 12)])
    config = peft.LoraConfig(r=4, lora_alpha=lora.SCALING * 4, target_modules=["0"])
    peft.inject_adapter_in_model(config, layer)
    assert layer[0].scaling == {"default": lora.SCALING}
    down, up = layer[0].lora_A["default"].weight, layer[0].lora_B["default"].weight
    assert tuple(down.shape) == (4, 24)
    assert not up.detach().any()
    (step,) = lora.first_value("x.lora_A.weight", down).operations
    assert step.arguments[1] == pytest.approx(24**-0.5)
    assert 0.8 * step.arguments[1] < float(down.detach().abs().max()) <= step.arguments[1]


def test_a_run_goes_on_and_its_export_is_merged(tmp_path):
    plan = 'precision = "fp32"\nlora_rank = 4\nzero_stage = 3\n'
    saving = Saving(every_steps=2, asynchronous=False)
    given = {"ranks": 2, "saving": saving}
    straight = trained(spec_of(tmp_path / "a", plan + "dp = 2", steps=4, **given), ranks=2)
    trained(spec_of(tmp_path / "b", plan + "dp = 2", steps=2, **given), ranks=2)
    piped = spec_of(tmp_path / "b", plan + "pp = 2", steps=4, resume=True, **given)
    resumed = trained(piped, ranks=2)
    assert resumed[-1]["loss"] == pytest.approx(straight[-1]["loss"], rel=1e-5)
    found = export(tmp_path / "b", tmp_path / "hf")
    assert set(found.files) >= {"model.safetensors", "config.json"}
    from safetensors.torch import load_file

    first = load_file(
        export(tmp_path / "b" / "step-2", tmp_path / "two").folder / "model.safetensors"
    )
    last = load_file(tmp_path / "hf" / "model.safetensors")
    changed = {name for name in last if not torch.equal(first[name], last[name])}
    assert changed == {n for n in last if "_proj" in n}
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "llama"
