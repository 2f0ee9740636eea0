# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn
from torch.distributed.tensor import DTensor

from expert_cases import FAMILIES, batches, block_of, differences, own, reference, run, spread
from meshwright.base.errors import MeshwrightError
from meshwright.plan.plan import Plan
from meshwright.train.adapters.fake import fake_tensors, fake_world
from meshwright.train.local import run_ranks
from meshwright.train.mesh import Mesh
from meshwright.train.model.share import boxes_of, part_of
from meshwright.train.parallel import expert

EXACT = 1e-9


def plan(**axes: int) -> Plan:
    return Plan(zero_stage=1, **axes)


ON_TWO = {
    "dp2 ep2": plan(dp=2, ep=2),
    "dp2 etp2": plan(dp=2, etp=2),
    "cp2 ep2": plan(cp=2, ep=2),
    "tp2 ep2": plan(tp=2, ep=2),
    "tp2 etp2": plan(tp=2, etp=2),
    "tp2": plan(tp=2),
}
ON_FOUR = {
    "dp4 ep4": plan(dp=4, ep=4),
    "dp4 ep2 etp2": plan(dp=4, ep=2, etp=2),
    "dp4 ep2, replicated": plan(dp=4, ep=2, dp_replicate=2),
    "dp2 tp2 ep4": plan(dp=2, tp=2, ep=4),
    "dp2 tp2 ep2": plan(dp=2, tp=2, ep=2),
    "dp2 tp2 ep2 etp2": plan(dp=2, tp=2, ep=2, etp=2),
    "dp2 cp2 ep4": plan(dp=2, cp=2, ep=4),
    "cp2 tp2 ep4": plan(cp=2, tp=2, ep=4),
    "tp4 ep2": plan(tp=4, ep=2),
}


@pytest.mark.parametrize(("size", "plans"), [(2, ON_TWO), (4, ON_FOUR)])
def test_gradients_are_those_of_one_process(size, plans):
    cases = [*((family, 4) for family in FAMILIES), ("deepseek_v3", 1)]
    references = {case: reference(*case) for case in cases}
    for rank in run_ranks(worst, size, plans, references):
        assert len(rank) == len(plans) * len(references)
        assert {case: off for case, off in rank.items() if not off < EXACT} == {}


def worst(plans, references) -> dict[str, float]:
    """On a rank: the largest difference of every case, under a name that says where it is."""
    found = {}
    for name, case in plans.items():
        mesh = Mesh(case, device_type="cpu")  # its groups cost more than all that is done with it
        for (family, count), wanted in references.items():
            off = differences(wanted, spread(block_of(family), count, mesh))
            where = max(off, key=lambda n: off[n])
            found[f"{family} {name} x{count}: {where}"] = off[where]
    return found


def test_a_recomputed_block_sends_its_tokens_the_same_way_again():
    wanted = reference("deepseek_v3", 2)
    for off in run_ranks(recomputed, 4, plan(dp=2, tp=2, ep=2, etp=2), wanted):
        assert max(off.values()) < EXACT


def recomputed(case, wanted) -> dict[str, float]:
    mesh = Mesh(case, device_type="cpu")
    return differences(wanted, spread(block_of("deepseek_v3"), 2, mesh, recompute=True))


def test_experts_without_tokens_have_gradients_of_zero():
    """All tokens choose experts 0 and 1: one rank of four has all the work, three have none."""
    block = favouring(block_of("gpt_oss"))
    run(block, *batches(1))
    wanted = {n: p.grad for n, p in block.named_parameters()}
    assert wanted["experts.down_proj"][2:].abs().max() == 0
    for off in run_ranks(lopsided, 4, plan(dp=4, ep=4), wanted):
        assert max(off.values()) < EXACT


def favouring(block: nn.Module) -> nn.Module:
    with torch.no_grad():
        block.router.bias[:2] += 1e3
    return block


def lopsided(case, wanted) -> dict[str, float]:
    mesh = Mesh(case, device_type="cpu")
    got = spread(favouring(block_of("gpt_oss")), 1, mesh)
    off = {n: (got[n] - w).abs().max() / w.abs().max().clamp(min=1e-9) for n, w in wanted.items()}
    return {name: float(value) for name, value in off.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_formats_are_as_near_to_float64_as_one_process_is(dtype):
    """torch's grouped product, ranks and all, against transformers' loop over the experts."""
    y, _ = run(block_of("qwen3_moe"), *batches(1))
    rough, _ = run(block_of("qwen3_moe", dtype=dtype), *batches(1, dtype=dtype), lifted=False)
    error = float((rough.double() - y).abs().max())
    ranks = run_ranks(narrow, 2, plan(dp=2, ep=2), dtype, y.tolist())
    assert 0 < max(ranks) <= 1.5 * error


def narrow(case, dtype, y) -> float:
    """On a rank: how far its outputs are from the exact ones."""
    mesh = Mesh(case, device_type="cpu")
    block = block_of("qwen3_moe", dtype=dtype)
    expert.apply(block, mesh)
    mine, gradient = run(block, *(own(t, mesh) for t in batches(1, dtype=dtype)), lifted=False)
    assert mine.dtype is gradient.dtype is dtype
    exact = own(torch.tensor(y, dtype=torch.float64), mesh)
    return float((mine.double() - exact).abs().max())


def test_weights_keep_their_names_and_every_rank_its_part():
    for family in ("qwen3_moe", "gpt_oss"):
        run_ranks(parts, 4, plan(dp=4, ep=2, etp=2), family)


def parts(case, family) -> None:
    block = block_of(family)
    whole = {name: p.detach().clone() for name, p in block.named_parameters()}
    expert.apply(block, Mesh(case, device_type="cpu"))
    (module,) = expert.expert_modules(block)
    for name, parameter in block.named_parameters():
        assert parameter.shape == whole[name].shape
        assert isinstance(parameter, DTensor) == name.startswith("experts.")
        for box in boxes_of(parameter):
            assert torch.equal(box.of(part_of(parameter)), whole[name][box.whole])
    assert part_of(module.down_proj).numel() * 4 == module.down_proj.numel()


FORMATS = [*((f, torch.bfloat16) for f in FAMILIES), ("gpt_oss", torch.float32)]


@pytest.mark.parametrize(("family", "dtype"), FORMATS)
def test_balanced_routing_runs_on_fake_tensors(family, dtype):
    block = block_of(family, dtype=dtype)
    with fake_world(world_size=16, rank=5):
        mesh = Mesh(plan(dp=8, tp=2, ep=4, etp=2), device_type="cpu")
        expert.apply(block, mesh, routing="balanced")
        with fake_tensors():
            x = torch.empty(2, 16, 32, dtype=dtype, requires_grad=True)
            y = block(x)
            y = y[0] if isinstance(y, tuple) else y
            y.backward(torch.empty_like(y))
        assert y.shape == x.shape
        assert all(p.grad is not None for p in block.parameters())


@pytest.mark.parametrize(("ep", "etp"), [(8, 1), (4, 2), (1, 1)])
def test_no_more_is_kept_for_the_backward_pass_than_the_cost_model_says(ep, etp):
    """Terms of cost/memory/activations.py: input, tokens at the experts, inner, product, output."""
    tokens, k, hidden, width = 64, 2, 32, 24
    block = block_of("mixtral", dtype=torch.bfloat16)
    kept: dict[int, int] = {}

    def keep(tensor):
        if tensor.dtype is torch.bfloat16 and not isinstance(tensor, nn.Parameter):
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes() // 2
        return tensor

    with fake_world(world_size=8):
        mesh = Mesh(plan(dp=8, ep=ep, etp=etp), device_type="cpu")
        expert.apply(block, mesh, routing="balanced")
        with fake_tensors():
            for module in block.modules():
                for name, p in list(module.named_parameters(recurse=False)):
                    setattr(module, name, nn.Parameter(torch.empty_like(p)))
            x = torch.empty(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                block(x)
            for p in block.parameters():
                kept.pop(part_of(p).untyped_storage()._cdata, None)
    rows = tokens * k * etp
    inner = 3 * rows * width // etp
    terms = tokens * hidden, rows * hidden, inner, rows * width // etp, tokens * k * hidden
    assert sum(kept.values()) == sum(terms)


def test_balanced_routing_gives_every_expert_its_share_and_runs_on_real_tensors():
    for arrived in run_ranks(balanced, 2, plan(dp=2, ep=2)):
        assert arrived == [[8] * 4] * 2  # each rank's 64 rows over 8 experts, of which 4 are here


def balanced(case) -> list[list[int]]:
    from meshwright.train.parallel.experts import forward

    seen = []
    original = forward.routes
    forward.routes = lambda *a: seen.append(original(*a)) or seen[-1]
    mesh, block = Mesh(case, device_type="cpu"), block_of("mixtral")
    expert.apply(block, mesh, routing="balanced")
    y, gradient = run(block, *(own(t, mesh) for t in batches(2)))
    assert y.isfinite().all()
    assert gradient.isfinite().all()
    return seen[0].arrived.tolist()


def test_experts_that_do_not_divide_are_refused():
    block = block_of("qwen3_moe")
    for axes, words in (
        ({"dp": 3, "ep": 3}, "8 experts do not divide by ep = 3"),
        ({"dp": 5, "etp": 5}, "the expert width 24 does not divide by etp = 5"),
    ):
        with fake_world(world_size=axes["dp"]):
            mesh = Mesh(plan(**axes), device_type="cpu")
            with pytest.raises(MeshwrightError, match=words) as refusal:
                expert.apply(block, mesh)
            assert "a divisor of" in refusal.value.hint


def test_a_stage_of_dense_layers_takes_part_in_making_the_mesh():
    run_ranks(dense_first, 2, plan(pp=2), timeout_s=60)  # would wait for the other for ever


def dense_first(case) -> None:
    mesh = Mesh(case, device_type="cpu")
    block = block_of("glm4_moe") if mesh.rank("pp") else nn.Linear(2, 2)
    expert.apply(block, mesh)


def test_layers_that_are_elsewhere_and_dense_ones_have_no_experts():
    assert expert.expert_modules(nn.ModuleList([nn.Identity(), nn.Linear(2, 2)])) == []
