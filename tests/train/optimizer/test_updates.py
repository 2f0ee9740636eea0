"""Every optimizer under every way of cutting parameters, beside torch's own on one process."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")  # the first optimizer would import it in every rank

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from meshwright.plan.plan import Optimizer, Plan, Schedule  # noqa: E402
from meshwright.plan.stages import num_chunks  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.model.share import boxes_of, part_of  # noqa: E402
from meshwright.train.model.tiny import tiny_config  # noqa: E402
from meshwright.train.optimizer.muon import Muon, orthogonal  # noqa: E402
from meshwright.train.optimizer.roles import decays, is_hidden_matrix  # noqa: E402
from meshwright.train.verify import judge  # noqa: E402
from meshwright.train.verify.shrinking import Trial  # noqa: E402

FSDP2, TP2 = {"dp": 2, "zero_stage": 3}, {"tp": 2}
PP2 = {"pp": 2, "schedule": Schedule.ZB_V}
EP2, ETP2 = {"dp": 2, "ep": 2, "zero_stage": 3}, {"dp": 2, "etp": 2, "zero_stage": 3}


@pytest.mark.parametrize(
    ("optimizer", "family", "fields"),
    [
        (Optimizer.MUON, "llama", FSDP2),
        (Optimizer.MUON, "qwen3", TP2),
        (Optimizer.MUON, "gemma2", PP2),
        (Optimizer.MUON, "qwen3_moe", ETP2),
        (Optimizer.ADAFACTOR, "llama", FSDP2 | TP2),
        (Optimizer.ADAFACTOR, "gemma2", PP2),
        (Optimizer.ADAFACTOR, "gpt_oss", ETP2),
        (Optimizer.ADAM, "gpt_oss", EP2),
        (Optimizer.SGD, "llama", FSDP2),
        (Optimizer.SGD_MOMENTUM, "llama", TP2),
    ],
)
def test_a_plan_updates_as_one_process(optimizer, family, fields):
    plan = Plan(**fields, optimizer=int(optimizer))
    trial = Trial(
        plan=plan,
        layers=max(int(num_chunks(plan)), 2),
        heads_multiple=int(plan.tp),
        experts_multiple=int(plan.ep),
        microbatches=4 if int(plan.pp) > 1 else 2,
    )
    verdict = judge(trial, tiny_config(family, layers=trial.layers), steps=3)
    assert not verdict.error, verdict.error
    assert verdict.parameter <= 1e-11, verdict.differing[:5]
    assert verdict.exact


# Muon as it runs, in bf16

SIZES = {"wide": (12, 40), "tall": (36, 8), "odd": (7, 9)}
MOE = (6, 16, 10)  # experts, rows of gate and up, columns


def _values(shape, step):
    seeded = torch.Generator().manual_seed(1000 * len(shape) + sum(shape) + step)
    return torch.randn(shape, generator=seeded)


def _whole_muon(steps=3):
    """torch's own Muon, of a stack of experts one by one."""
    parameters = {n: torch.nn.Parameter(_values(s, 0)) for n, s in SIZES.items()}
    parameters |= {f"moe{e}": torch.nn.Parameter(_values(MOE, 0)[e]) for e in range(MOE[0])}
    muon = torch.optim.Muon(
        list(parameters.values()), lr=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(1, steps + 1):
        for name, parameter in parameters.items():
            shape = SIZES.get(name, MOE)
            gradient = _values(shape, step)
            parameter.grad = gradient[int(name[3:])] if name.startswith("moe") else gradient
        muon.step()
    stack = torch.stack([parameters.pop(f"moe{e}").detach() for e in range(MOE[0])])
    return {n: p.detach() for n, p in parameters.items()} | {"moe": stack}


def _cut_muon(expected, steps=3):
    """Ours, over 2 x 2 ranks; the elements of this rank that differ."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    layouts = {
        "wide": (mesh, [Shard(0), Shard(1)]),
        "tall": (mesh["fsdp"], [Shard(0)]),
        "odd": (mesh, [Shard(1), Shard(0)]),
        "moe": (mesh, [Shard(0), _StridedShard(1, split_factor=2)]),
    }

    def laid(name, values):
        on, placements = layouts[name]
        return distribute_tensor(values, on, placements, src_data_rank=None)

    shapes = SIZES | {"moe": MOE}
    parameters = {n: torch.nn.Parameter(laid(n, _values(s, 0))) for n, s in shapes.items()}
    muon = Muon(
        parameters.values(),
        lr=0.1,
        weight_decay=0.1,
        momentum=0.9,
        ranks=torch.distributed.group.WORLD,
    )
    for step in range(1, steps + 1):
        for name, parameter in parameters.items():
            parameter.grad = laid(name, _values(shapes[name], step))
        muon.step()
    return {
        name: sum(
            int((box.of(part_of(p)) != expected[name][box.whole]).sum()) for box in boxes_of(p)
        )
        for name, p in parameters.items()
    }


def test_cut_matrices_get_the_very_bits_of_one_process():
    expected = _whole_muon()
    for differing in run_ranks(_cut_muon, 4, expected):
        assert differing == {"wide": 0, "tall": 0, "odd": 0, "moe": 0}


def test_updates_are_nearly_orthogonal():
    values = torch.linalg.svdvals(orthogonal(_values((3, 16, 24), 0)))
    assert values.shape == (3, 16)
    assert 0.3 < float(values.min()) < float(values.max()) < 1.3


def test_biases_of_experts_are_no_matrices():
    matrix, vector = torch.zeros(4, 6), torch.zeros(6)
    assert decays("model.layers.0.mlp.experts.gate_up_proj", matrix)
    assert not decays("model.layers.0.mlp.experts.gate_up_proj_bias", matrix)
    assert not decays("model.norm.weight", vector)
    assert decays("lm_head.weight", matrix)
    assert not is_hidden_matrix("lm_head.weight", matrix)
    assert not is_hidden_matrix("model.embed_tokens.weight", matrix)
    assert is_hidden_matrix("model.layers.0.self_attn.q_proj.weight", matrix)
