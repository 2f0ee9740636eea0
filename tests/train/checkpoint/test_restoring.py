import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import checkpointing as runs  # noqa: E402
from small import EVERY, adam, net, numbers, step  # noqa: E402

from meshwright.base.errors import InvalidInput, MeshwrightError  # noqa: E402
from meshwright.train.checkpoint import Saver, restore, state_of  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402


@pytest.mark.parametrize(
    ("optimizer", "layout", "ranks"), [("muon", "fsdp2", 2), ("adafactor", "one", 1)]
)
def test_other_optimizers_resume_bit_for_bit(tmp_path, optimizer, layout, ranks):
    # torch 2.13's Adafactor does not step over DTensors, whatever is done here
    def both():
        first = runs.saved_run(str(tmp_path), layout, optimizer=optimizer)
        return first, *runs.resumed_run(str(tmp_path), layout, optimizer=optimizer)

    first, again, facts = run_ranks(both, ranks)[0]
    assert again == first
    assert facts == {"tokens": 192, "loader": {"row": 12}}
    if layout == "fsdp2":  # Muon orthogonalizes in bfloat16, where sums in another order show
        other = run_ranks(lambda: runs.resumed_run(str(tmp_path), "tp2", optimizer=optimizer), 2)
        assert other[0][0] == pytest.approx(first, rel=1e-3)


def test_a_parameter_never_touched_has_no_state_after_either(tmp_path):
    def run():
        module = net()
        module[1].requires_grad_(requires_grad=False)
        optimizers = adam(module)
        step(module, optimizers)
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module], optimizers), 1, {})
        saver.close()
        fresh = net(3)
        again = adam(fresh)  # in which everything trains
        restore(tmp_path / "step-1", [fresh], again)
        held = [p in again[0].state for p in fresh.parameters()]
        return held, numbers(fresh) == numbers(module)

    assert run_ranks(run, 1) == [([True, True, False, False], True)]


def test_another_optimizer_is_told_and_weights_alone_can_be_read(tmp_path):
    def run():
        module = net()
        optimizers = adam(module)
        step(module, optimizers)
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module], optimizers), 1, {})
        saver.close()
        fresh = net(3)
        momentum = [torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)]
        with pytest.raises(InvalidInput) as caught:
            restore(tmp_path / "step-1", [fresh], momentum)
        restore(tmp_path / "step-1", [fresh])
        assert numbers(fresh) == numbers(module)
        return [finding.message for finding in caught.value.findings]

    assert run_ranks(run, 1)[0] == [
        "the checkpoint has no optimizer state 'momentum_buffer' of 0.weight and 3 more; "
        "it has exp_avg, exp_avg_sq, step"
    ]


def test_options_stay_the_runs_own_and_changes_are_told(tmp_path):
    def run():
        module = net()
        optimizers = adam(module, weight_decay=0.1, betas=(0.9, 0.95))
        step(module, optimizers)
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module], optimizers), 1, {})
        saver.close()
        again = adam(module, weight_decay=0.2, betas=(0.9, 0.99))
        restored = restore(tmp_path / "step-1", [module], again)
        changes = [(c.kind, c.option, c.then, c.now) for c in restored.changes]
        return changes, again[0].param_groups[0]["weight_decay"]

    assert run_ranks(run, 1)[0] == (
        [("AdamW", "betas", (0.9, 0.95), (0.9, 0.99)), ("AdamW", "weight_decay", 0.1, 0.2)],
        0.2,
    )


def test_random_generators_go_on_where_they_were(tmp_path):
    def run():
        module = net()
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module]), 1, {})
        drawn = float(torch.rand(()))
        saver.close()
        torch.manual_seed(1234)
        restore(tmp_path / "step-1", [module])
        return drawn, float(torch.rand(()))

    for before, after in run_ranks(run, 2):
        assert before == after


def test_values_are_cast_to_the_types_of_the_run(tmp_path):
    def run():
        module = net().double()
        saver = Saver(tmp_path, every=EVERY)
        saver.save(state_of([module]), 1, {})
        saver.close()
        narrow = net(4).to(torch.bfloat16)
        restore(tmp_path / "step-1", [narrow])
        pairs = zip(module.parameters(), narrow.parameters(), strict=True)
        return all(torch.equal(a.to(torch.bfloat16), b) for a, b in pairs)

    assert run_ranks(run, 1) == [True]


def test_a_state_that_no_other_layout_could_read_is_refused():
    def run():
        module = net()
        optimizers = adam(module)
        step(module, optimizers)
        parameter = next(iter(module.parameters()))
        optimizers[0].state[parameter]["exp_avg"] = torch.ones(3)  # each rank's own, with no mesh
        with pytest.raises(MeshwrightError, match="keeps 'exp_avg' as Tensor"):
            state_of([module], optimizers)

    run_ranks(run, 2)
