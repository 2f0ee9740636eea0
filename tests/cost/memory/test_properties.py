"""Properties: memory grows with the model, falls with sharding; columns equal scalars."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.memory import LAYER_FIELDS, layer_bytes, memory, operands_of, stage_memory
from meshwright.plan.distinct import distinct
from meshwright.plan.plan import (
    Optimizer,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
)

from .jobs import job, llama, routed

STACKS = ("default", "megatron-lm-2025", "megatron-deepspeed-2022", "nanotron", "fsdp", "torchtune")
powers = st.sampled_from([1, 2, 4])

plans = st.builds(
    Plan,
    tp=powers,
    pp=powers,
    cp=powers,
    dp=st.sampled_from([4, 8, 64]),
    ep=powers,
    vpp=st.sampled_from([1, 2]),
    micro_batch_size=powers,
    schedule=st.sampled_from([int(s) for s in Schedule]),
    zero_stage=st.integers(0, 3),
    reshard_after_forward=st.booleans(),
    sequence_parallel=st.booleans(),
    loss_parallel=st.booleans(),
    loss_chunks=powers,
    fused_loss=st.booleans(),
    recompute=st.sampled_from([int(r) for r in Recompute]),
    recompute_modules=st.sampled_from([int(m) for m in RecomputeModule] + [3, 31]),
    recompute_layers=st.integers(0, 2),
    recompute_uniform=st.booleans(),
    precision=st.sampled_from([int(p) for p in Precision]),
    master_weights=st.booleans(),
    optimizer=st.sampled_from([int(o) for o in Optimizer]),
    flash_attention=st.booleans(),
    offload_optimizer=st.sampled_from([0.0, 0.5, 1.0]),
    offload_activations=st.sampled_from([0.0, 1.0]),
    lora_rank=st.sampled_from([0, 16]),
    base_weight_bits=st.sampled_from([0, 4]),
    compile=st.booleans(),
)
stacks = st.sampled_from(STACKS)


def peak(plan: Plan, stack: str = "default", *, layers: int = 8, dense: bool = False) -> float:
    model = llama(layers) if dense else routed(layers)
    return float(memory(job(model, plan, batch=256, stack=stack)).peak_bytes)


@given(plans, stacks)
@settings(max_examples=150, deadline=None)
def test_finite_and_positive(plan: Plan, stack: str) -> None:
    result = memory(job(routed(), plan, batch=256, stack=stack))
    values = [float(v) for v in result.terms.values()]
    assert all(math.isfinite(v) and v >= 0 for v in values)
    assert 0 < float(result.peak_bytes) < float(result.upper_bytes)
    assert float(result.upper_bytes) < float(result.required_bytes)
    assert float(result.host_bytes) > 0


@given(plans, stacks)
@settings(max_examples=60, deadline=None)
def test_grows_with_the_model(plan: Plan, stack: str) -> None:
    small = job(routed(8), plan, batch=256, stack=stack)
    base = float(memory(small).peak_bytes)
    wider = {
        "expert_intermediate_size": 1024,
        "vocab_size": 64000,
        "hidden_size": 2048,
        "shared_intermediate_size": 1024,
    }
    for name, value in wider.items():
        grown = job(routed(8, **{name: value}), plan, batch=256, stack=stack)
        assert float(memory(grown).peak_bytes) >= base * (1 - 1e-12), name
    deeper = job(routed(16), plan, batch=256, stack=stack)
    assert float(memory(deeper).peak_bytes) >= base * (1 - 1e-12)


@given(plans, stacks, st.booleans())
@settings(max_examples=100, deadline=None)
def test_does_not_grow_with_sharding(plan: Plan, stack: str, dense: bool) -> None:
    plan = plan.replace(sequence_parallel=True, precision=int(Precision.BF16))
    base = peak(plan, stack, dense=dense)
    assert peak(plan.replace(tp=plan.tp * 2), stack, dense=dense) <= base * (1 + 1e-9)
    if plan.zero_stage in (0, 1):
        plan = plan.replace(reduce_bytes=0)
    if plan.zero_stage == 1:
        assert peak(plan.replace(dp=plan.dp * 2), stack, dense=dense) <= base * (1 + 1e-9)


@given(plans, stacks)
@settings(max_examples=60, deadline=None)
def test_states_fall_with_the_zero_stage(plan: Plan, stack: str) -> None:
    terms = [
        memory(job(routed(), plan.replace(zero_stage=stage), batch=256, stack=stack)).terms
        for stage in range(4)
    ]
    for name in ("weights", "gradients", "optimizer"):
        values = [float(t[f"memory.stage0.{name}"]) for t in terms]
        assert values == sorted(values, reverse=True)


@given(plans, stacks)
@settings(max_examples=60, deadline=None)
def test_recompute_keeps_less(plan: Plan, stack: str) -> None:
    kept = [
        float(
            memory(
                job(
                    llama(8),
                    plan.replace(recompute=int(kind), recompute_layers=0),
                    batch=256,
                    stack=stack,
                )
            ).terms["memory.stage0.activations"]
        )
        for kind in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    ]
    assert kept[0] >= kept[1] - 1e-6
    assert kept[0] >= kept[2] - 1e-6


def column_of(rows: list[Plan]) -> Plan:
    names = [f.name for f in fields(Plan) if f.name != "layout"]
    return Plan(**{name: np.array([getattr(r, name) for r in rows]) for name in names})


@given(st.lists(plans, min_size=2, max_size=6), stacks, st.booleans())
@settings(max_examples=60, deadline=None)
def test_columns_equal_scalars(rows: list[Plan], stack: str, dense: bool) -> None:
    model = llama(8) if dense else routed(8)
    column = memory(job(model, column_of(rows), batch=256, stack=stack))
    for index, row in enumerate(rows):
        alone = memory(job(model, row, batch=256, stack=stack))
        for name in ("weights", "gradients", "optimizer", "activations", "peak"):
            want = float(alone.terms[f"memory.stage0.{name}"])
            got = float(np.broadcast_to(column.terms[f"memory.first.{name}"], len(rows))[index])
            assert got == pytest.approx(want, rel=1e-12)


@given(plans, stacks)
@settings(max_examples=100, deadline=None)
def test_representatives_hold_the_fullest_rank(plan: Plan, stack: str) -> None:
    one = job(llama(16), plan, batch=256, stack=stack)
    every = memory(one)
    column = memory(one.with_plan(column_of([plan, plan])))
    assert float(column.peak_bytes[0]) == pytest.approx(float(every.peak_bytes), rel=1e-9)


@given(st.lists(plans, min_size=2, max_size=8), stacks)
@settings(max_examples=30, deadline=None)
def test_sharing_the_layers_changes_nothing(rows: list[Plan], stack: str) -> None:
    whole = job(routed(), column_of(rows), batch=256, stack=stack)
    keys = [getattr(whole.plan, name) for name in LAYER_FIELDS]
    first, inverse = distinct(*keys)
    few = {name: np.asarray(getattr(whole.plan, name))[first] for name in LAYER_FIELDS}
    shared = layer_bytes(whole.with_plan(whole.plan.replace(**few))).take(inverse)
    got, want = stage_memory(whole, shared), stage_memory(whole, layer_bytes(whole))
    assert np.allclose(got.peak_bytes, want.peak_bytes, rtol=1e-12)


def test_offload_moves_bytes_to_the_host() -> None:
    here = memory(job(llama(8), Plan(dp=8)))
    there = memory(job(llama(8), Plan(dp=8, offload_optimizer=1.0)))
    moved = float(here.terms["memory.stage0.optimizer"])
    assert float(there.terms["memory.stage0.optimizer"]) == 0
    moved += 4 / 12 * moved  # gradients in 4 B beside 12 B of states
    assert float(there.terms["memory.stage0.host"]) == pytest.approx(moved)
    assert float(there.host_bytes) - float(here.host_bytes) == pytest.approx(8 * moved)


@pytest.mark.parametrize(("weights", "bytes_per_parameter"), [(False, 18), (True, 20)])
def test_the_host_holds_what_zero_offload_puts_there(
    weights: bool, bytes_per_parameter: int
) -> None:
    """16 or 18 B by DeepSpeed's own estimate (estimate_zero3_model_states_mem_needs).

    It leaves out the partition of 16-bit gradients, stage3.py grad_partitions_flat_buffer, which
    lies on the device of the optimizer.
    """
    plan = Plan(dp=8, zero_stage=3, grad_bytes=2, offload_optimizer=1.0, offload_params=weights)
    held = float(memory(job(llama(8), plan)).terms["memory.stage0.host"])
    shard = float(operands_of(job(llama(8), plan), 0)["parameters"]) / 8
    assert held == pytest.approx(bytes_per_parameter * shard)


def test_frozen_weights_are_gathered_but_never_reduced() -> None:
    full: Any = memory(job(llama(8), Plan(dp=8, zero_stage=3), stack="fsdp")).terms
    lora: Any = memory(job(llama(8), Plan(dp=8, zero_stage=3, lora_rank=16), stack="fsdp")).terms
    gathered, reduced = "memory.stage0.transient.gathered_layer", "memory.stage0.buffers.reduce"
    assert float(lora[gathered]) > float(full[gathered]) > 0
    assert 0 < float(lora[reduced]) < 0.02 * float(full[reduced])


def test_frozen_weights_move_to_the_host_too() -> None:
    plan = Plan(dp=8, zero_stage=3, lora_rank=16, offload_params=True)
    held = memory(job(llama(8), plan)).terms
    shard = float(operands_of(job(llama(8), plan), 0)["parameters"]) / 8
    assert float(held["memory.stage0.weights"]) == 0
    assert float(held["memory.stage0.host"]) == pytest.approx(2 * shard)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_deepspeed_casts_the_gradients_of_its_shard(zero_stage: int) -> None:
    plan = Plan(dp=2, zero_stage=zero_stage)
    terms = memory(job(llama(8), plan, stack="deepspeed")).terms
    shard = float(operands_of(job(llama(8), plan, stack="deepspeed"), 0)["parameters"]) / 2
    at_once = min(shard, 1e9) if zero_stage == 3 else shard
    assert shard > 1e9
    assert float(terms["memory.stage0.transient.optimizer"]) == pytest.approx(6 * at_once)
    away = plan.replace(offload_optimizer=1.0)
    terms = memory(job(llama(8), away, stack="deepspeed")).terms
    assert float(terms["memory.stage0.transient.optimizer"]) == 0


def test_only_adam_makes_temporaries_of_a_moment() -> None:
    plan = Plan(dp=8, zero_stage=3, optimizer=int(Optimizer.ADAM))
    adam = memory(job(llama(8), plan, stack="fsdp")).terms
    plain = plan.replace(optimizer=int(Optimizer.SGD))
    sgd = memory(job(llama(8), plain, stack="fsdp")).terms
    assert float(adam["memory.stage0.transient.optimizer"]) > 0
    assert float(sgd["memory.stage0.transient.optimizer"]) == 0


def test_lora_trains_little_and_qlora_stores_less() -> None:
    full: Any = memory(job(llama(), Plan(dp=8, zero_stage=0))).terms
    lora: Any = memory(job(llama(), Plan(dp=8, zero_stage=0, lora_rank=16))).terms
    four: Any = memory(
        job(llama(), Plan(dp=8, zero_stage=0, lora_rank=16, base_weight_bits=4))
    ).terms
    trained = lora["memory.stage0.gradients"] / full["memory.stage0.gradients"]
    assert 0.003 < float(trained) < 0.01  # 41.9 million adapters of 8.03 billion
    assert float(four["memory.stage0.weights"]) < 0.3 * float(lora["memory.stage0.weights"])


def test_gradients_of_stage_three_lie_where_the_optimizer_does() -> None:
    """DeepSpeed runtime/zero/stage3.py: grad_partitions_flat_buffer on `self.device`."""
    here = memory(job(llama(8), Plan(dp=8, zero_stage=3)))
    there = memory(job(llama(8), Plan(dp=8, zero_stage=3, offload_optimizer=1.0)))
    assert float(here.terms["memory.stage0.gradients"]) > 0
    assert float(there.terms["memory.stage0.gradients"]) == 0


def test_a_packed_base_is_offloaded_as_packed() -> None:
    packed = Plan(dp=2, zero_stage=3, lora_rank=8, base_weight_bits=4, offload_params=True)
    wide = Plan(dp=2, zero_stage=3, lora_rank=8, offload_params=True)
    few, many = (
        float(memory(job(llama(8), plan)).terms["memory.stage0.host"]) for plan in (packed, wide)
    )
    assert few < 0.35 * many
    assert float(memory(job(llama(8), packed)).terms["memory.stage0.weights"]) < few
