"""Moments of a job: they agree with the memory model, and follow how programs build and save."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.memory import memory
from meshwright.cost.memory.moments import (
    NAMES,
    Lifecycle,
    lifecycle_of,
    moments,
)
from meshwright.plan.plan import Plan, Recompute

from .jobs import job, llama

PARAMETERS = 8.03e9
STEADY = ("optimizer_step", "forward", "backward")  # those of every later step
STACKS = ("default", "fsdp", "deepspeed", "torchtitan", "nanotron", "megatron")
plans = st.builds(
    Plan,
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 4]),
    zero_stage=st.integers(0, 3),
    reshard_after_forward=st.booleans(),
    recompute=st.sampled_from([int(r) for r in Recompute]),
    offload_optimizer=st.sampled_from([0.0, 1.0]),
    loss_chunks=st.sampled_from([1, 8]),
    micro_batch_size=st.sampled_from([1, 4]),
)


@settings(max_examples=30, deadline=None)
@given(plan=plans, stack=st.sampled_from(STACKS))
def test_the_steady_peak_is_the_memory_models(plan: Plan, stack: str) -> None:
    one = job(llama(), plan, stack=stack)
    found = moments(one)
    peak = max(max(found.named(name).device_bytes) for name in STEADY)
    assert peak == pytest.approx(float(memory(one).peak_bytes), rel=1e-9)
    assert found.steady_bytes == pytest.approx(peak, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(plan=plans, stack=st.sampled_from(STACKS))
def test_terms_sum_to_their_moment(plan: Plan, stack: str) -> None:
    found = moments(job(llama(), plan, stack=stack))
    assert [m.name for m in found.moments] == list(NAMES)
    for moment in found.moments:
        for total, terms in zip(moment.device_bytes, moment.terms, strict=True):
            assert total == pytest.approx(sum(terms.values()), rel=1e-9)
            assert all(value > 0 for value in terms.values())
        assert moment.host_bytes == pytest.approx(sum(moment.host_terms.values()))


def test_adam_moments_appear_in_the_first_step() -> None:
    found = moments(job(llama(), Plan(dp=8, zero_stage=3), stack="deepspeed"))
    assert "optimizer moments" not in found.named("first_backward").terms[0]
    created = found.named("optimizer_step").terms[0]["optimizer moments"]
    assert created == pytest.approx(8 * PARAMETERS / 8, rel=0.01)
    gained = max(found.named("backward").device_bytes) - max(
        found.named("first_backward").device_bytes
    )
    assert gained == pytest.approx(created)


def test_states_that_exist_from_the_start_are_there_in_the_first_pass() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="deepspeed")
    found = moments(one, replace(lifecycle_of("deepspeed"), lazy_states=False))
    assert found.named("first_forward").device_bytes == found.named("forward").device_bytes


def test_every_rank_loading_the_whole_model_fills_the_host() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="deepspeed")
    each = moments(one, Lifecycle(build="host", build_bytes=2.0)).named("load")
    once = moments(one, Lifecycle(build="first_rank", build_bytes=2.0)).named("load")
    none = moments(one, Lifecycle(build="sharded")).named("load")
    assert each.host_terms["copies of the model"] == pytest.approx(8 * 2 * PARAMETERS, rel=0.01)
    assert once.host_terms["copies of the model"] == pytest.approx(2 * PARAMETERS, rel=0.01)
    assert "copies of the model" not in none.host_terms


def test_a_model_built_before_it_is_sharded_stands_whole_on_the_device() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="deepspeed")
    whole = moments(one, Lifecycle(build="device")).named("load").fullest_bytes
    sharded = moments(one, Lifecycle(build="sharded")).named("load").fullest_bytes
    assert whole >= 2 * PARAMETERS
    assert sharded < whole / 2


def test_a_full_state_dict_passes_through_the_first_host() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="fsdp")
    full = Lifecycle(save="full", saves_optimizer=True)
    found = moments(one, full).named("checkpoint").host_terms["checkpoint on its way"]
    assert found == pytest.approx(12 * PARAMETERS, rel=0.01)
    assert "checkpoint on its way" not in moments(one, Lifecycle()).named("checkpoint").host_terms


def test_a_full_state_dict_on_the_device_is_the_whole_model() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="fsdp")
    saved = moments(one, Lifecycle(save="full_on_device")).named("checkpoint")
    assert saved.terms[0]["gathered state dict"] == pytest.approx(4 * PARAMETERS, rel=0.01)


def test_the_first_backward_pass_lacks_the_moments_of_later_ones() -> None:
    one = job(llama(), Plan(dp=8, zero_stage=3), stack="deepspeed")
    found = moments(one, Lifecycle(build="sharded"))
    assert found.named("first_backward").fullest_bytes < found.named("backward").fullest_bytes


def test_stages_differ() -> None:
    found = moments(job(llama(), Plan(pp=4, dp=2), stack="megatron"))
    assert len(found.named("backward").device_bytes) == 4
    assert found.named("forward").stage == 0


@pytest.mark.parametrize(
    ("stack", "build"),
    [("megatron-lm-2025", "device"), ("fsdp", "first_rank"), ("torchtitan", "sharded")],
)
def test_a_stack_has_its_habits(stack: str, build: str) -> None:
    assert lifecycle_of(stack).build == build
    assert lifecycle_of(stack).source
