import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import checkpointing as runs  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from meshwright.plan.plan import Plan  # noqa: E402
from meshwright.train.adapters.initialization import Operation, Recipe  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.model import initial  # noqa: E402
from meshwright.train.model.initial import fill, initialize  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402
from meshwright.train.model.twin import twin_of  # noqa: E402
from meshwright.train.verify.comparing import engine_of  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_starts_by_its_own_scheme(family):
    config = tiny_config(family, layers=2, initializer_range=0.02)
    mine = twin_of(config)
    initialize([mine], config, seed=1, device="cpu")
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    parameters = dict(mine.named_parameters())
    assert parameters.keys() == dict(theirs.named_parameters()).keys()  # ties are kept
    for name, parameter in theirs.named_parameters():
        drawn = parameters[name].detach()
        if parameter.unique().numel() == 1:  # a norm, a bias
            assert torch.equal(drawn, parameter), name
        else:
            bound = 6 * 0.02 / drawn.numel() ** 0.5
            assert float(drawn.mean()) == pytest.approx(0, abs=bound)
            assert float(drawn.std()) == pytest.approx(0.02, abs=bound)
    for name, buffer in theirs.named_buffers():
        assert torch.equal(dict(mine.named_buffers())[name], buffer), name


def test_seed_and_name_decide():
    config = tiny_config("llama", layers=2)

    def drawn(seed):
        model = twin_of(config)
        initialize([model], config, seed=seed, device="cpu")
        return dict(model.named_parameters())

    one, same, other = drawn(1), drawn(1), drawn(2)
    name, sibling = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"
    assert all(torch.equal(one[n], same[n]) for n in one)
    assert not torch.equal(one[name], other[name])
    assert not torch.equal(one[name], one[sibling])


def test_the_padding_row_is_zero_as_in_transformers():
    config = tiny_config("llama", layers=2, pad_token_id=5)
    model = twin_of(config)
    initialize([model], config, seed=1, device="cpu")
    rows = model.model.embed_tokens.weight.abs().sum(dim=1)
    assert (rows == 0).nonzero().flatten().tolist() == [5]


PLANS = (
    Plan(tp=2, dp=2, zero_stage=3),
    Plan(pp=2, tp=2, vpp=2),
    Plan(dp=4, ep=2, etp=2, zero_stage=3),
    Plan(dp=2, tp=2, ep=4, zero_stage=3),
)


def test_any_layout_starts_equal_bit_for_bit():
    config = tiny_config("qwen3_moe", layers=4)

    def values(plan):
        engine = engine_of(config, plan, seq_len=16, seed=3)
        return {name: runs.whole(p).numpy() for name, p in engine.named_parameters()}

    def every():
        return [values(plan) for plan in PLANS]

    alone = run_ranks(lambda: values(Plan()), 1)[0]
    by_rank = run_ranks(every, 4)
    for index in range(len(PLANS)):
        seen = set()
        for found in by_rank:
            for name, value in found[index].items():
                assert np.array_equal(value, alone[name]), (PLANS[index], name)
                seen.add(name)
        assert seen == alone.keys()


@pytest.mark.parametrize("shape", [(), (7,), (9, 5), (4, 6, 5)])
def test_parts_of_blocks_are_parts_of_the_whole(shape, monkeypatch):
    # small blocks, so that a part begins and ends inside of them
    normal = Operation(name="normal_", arguments=(1.0, 2.0))
    recipe = Recipe(shape=shape, operations=(normal,))
    monkeypatch.setattr(initial, "BLOCK", 15)

    def run():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        whole = torch.empty(shape)
        fill(whole, recipe, seed=1, name="w")
        mesh = init_device_mesh("cpu", (2,))
        for dim in range(len(shape)):
            cut = distribute_tensor(torch.zeros(shape), mesh, [Shard(dim)])
            fill(cut, recipe, seed=1, name="w")
            assert torch.equal(cut.full_tensor(), whole)
        return float(whole.double().mean()), whole.unique().numel()

    (_, distinct), _ = run_ranks(run, 2)
    assert distinct == torch.Size(shape).numel()


def test_drawing_a_share_takes_no_more_than_blocks_of_it(cpu_s):
    recipe = Recipe(
        shape=(1 << 22, 64), operations=(Operation(name="normal_", arguments=(0.0, 1.0)),)
    )

    class Share:  # a million of 256 million values
        shape = recipe.shape

    part = torch.empty(1 << 14, 64)
    box = initial.boxes_of(torch.empty(1, 1))[0]
    mine = type(box)(start=(1 << 21, 0), local=(0, 0), size=(1 << 14, 64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initial, "boxes_of", lambda _: (mine,))
        patch.setattr(initial, "part_of", lambda _: part)
        assert cpu_s(lambda: fill(Share(), recipe, seed=0, name="w")) < 1.0  # all of it: 3 s
    assert float(part.std()) == pytest.approx(1, rel=0.01)
