"""The space: what it must contain, and what pins and bans make of it."""

from itertools import product

import numpy as np
import pytest
from spaces import search

from meshwright.base.errors import UnknownName
from meshwright.plan.plan import Recompute, RecomputeModule, Schedule
from meshwright.search.menu import sensible
from meshwright.search.space import Options, divisors, length, space


def test_the_175b_space_contains_all_of_calculon():
    """Its tp, pp, vpp, micro-batches and options (caa4b11, all_executions.py) for 4096 GPUs.

    Where dp does not divide 1536 sequences Calculon trains on fewer; those are other workloads.
    """
    _job, found = search(
        "gpt3-175b", gpus="A100-80GB:8", nodes=512, seq_len=2048, batch=1536, exhaustive=True
    )
    fits = sensible(found.mesh, found.batch, layers=96, settings=found.settings)
    mesh = zip(*(found.mesh[n].tolist() for n in ("tp", "pp", "dp", "cp")), strict=True)
    batch = zip(
        *(
            found.batch[n].tolist()
            for n in ("schedule", "embedding_in_split", "vpp", "micro_batch_size")
        ),
        strict=True,
    )
    meshes = {(tp, pp, dp): i for i, (tp, pp, dp, cp) in enumerate(mesh) if cp == 1}
    plain = (Schedule.ONE_F_ONE_B, False)
    batches = {key[2:]: i for i, key in enumerate(batch) if key[:2] == plain}
    wanted = 0
    for tp, pp in product(divisors(96), divisors(96)):
        dp, rest = divmod(4096, tp * pp)
        if rest or 1536 % dp:
            continue
        for vpp in divisors(96 // pp) if pp > 1 else [1]:
            for micro in divisors(1536 // dp):
                assert fits[meshes[tp, pp, dp], batches[vpp, micro]], (tp, pp, vpp, micro)
                wanted += 1
    assert wanted > 300
    inner = {tuple(r) for r in zip(*(c.tolist() for c in found.inner.values()), strict=True)}
    core = int(RecomputeModule.CORE_ATTENTION)
    kinds = [int(r) for r in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)]
    for kind, sharded, overlap, offload in product(kinds, *[[False, True]] * 3):
        assert (kind, core, 0, sharded, overlap, float(offload)) in inner
    outer = {tuple(r) for r in zip(*(c.tolist() for c in found.outer.values()), strict=True)}
    for stage, offload, overlap in product([0, 1], [0.0, 1.0], [False, True]):
        assert (stage, True, offload, False, overlap, overlap) in outer


def test_the_moe_space_has_every_dimension():
    _, found = search("deepseek-v3", gpus="H800:8", nodes=256, batch=15360, exhaustive=True)
    for name in ("tp", "etp", "ep", "cp", "pp", "dp_replicate", "context_parallel"):
        assert len(np.unique(found.mesh[name])) > 1, name
    for name in ("vpp", "schedule", "micro_batch_size"):
        assert len(np.unique(found.batch[name])) > 4, name
    assert set(found.outer["zero_stage"].tolist()) == {0, 1, 2, 3}
    for name in ("offload_optimizer", "offload_params"):
        assert len(np.unique(found.outer[name])) == 2, name
    for name in ("recompute", "offload_activations"):
        assert len(np.unique(found.inner[name])) > 1, name


def test_a_pinned_field_has_the_pinned_values_in_every_plan():
    pins = {
        "tp": [2, 4],
        "zero_stage": 3,
        "micro_batch_size": 5,
        "recompute": ["none", "full"],
        "precision": ["bf16", "fp8"],
        "vpp": 2,
        "offload_optimizer": 0.5,
    }
    _, found = search(pins=pins)
    values = found.mesh | found.batch | found.inner | found.outer
    assert set(values["tp"].tolist()) == {2, 4}
    assert set(values["zero_stage"].tolist()) == {3}
    assert set(values["micro_batch_size"].tolist()) == {5}
    assert set(values["recompute"].tolist()) == {0, 2}
    assert set(values["precision"].tolist()) == {1, 3}
    assert set(values["vpp"].tolist()) == {2}
    assert set(values["offload_optimizer"].tolist()) == {0.5}


def test_a_banned_value_is_in_no_plan():
    _, found = search(bans={"tp": [4, 8], "schedule": ["zb-v", "dualpipe-v"], "zero_stage": 3})
    assert set(found.mesh["tp"].tolist()) == {1, 2}
    assert not set(found.batch["schedule"].tolist()) & {Schedule.ZB_V, Schedule.DUALPIPE_V}
    assert set(found.outer["zero_stage"].tolist()) == {1}


def test_banning_the_only_value_leaves_nothing():
    _, found = search(bans={"precision": ["bf16"]})
    assert length(found.batch) == 0


def test_pinned_modules_mean_selective_recompute_and_layers_full():
    _, found = search(pins={"recompute_layers": [3]})
    assert set(found.inner["recompute"].tolist()) == {Recompute.FULL}
    assert set(found.inner["recompute_layers"].tolist()) == {3}
    _, found = search(pins={"recompute_modules": [["norm", "mlp"]]})
    assert set(found.inner["recompute"].tolist()) == {Recompute.SELECTIVE}


def test_an_unusual_schedule_comes_when_pinned():
    assert Schedule.GPIPE not in search()[1].batch["schedule"]
    assert set(search(pins={"schedule": "gpipe"})[1].batch["schedule"].tolist()) == {0}


def test_unknown_fields_are_refused():
    job, _found = search()
    with pytest.raises(UnknownName, match="tpp"):
        space(job.model, job.cluster, job.workload, Options(pins={"tpp": (1,)}))
