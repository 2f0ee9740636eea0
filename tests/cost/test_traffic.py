"""Traffic in closed form, against sums done by hand for a model of a few numbers."""

from __future__ import annotations

import pytest

from meshwright.cost.traffic import pieces_of, traffic_of, traffic_terms
from meshwright.cost.traffic.layout import chunks_of
from meshwright.cost.traffic.shapes import Weight, dense_weights, elements, expert_weights
from meshwright.cost.traffic.sharding import gathers, reductions
from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.catalogue import load
from meshwright.model.count import block_parameters
from meshwright.model.generic import decoder
from meshwright.plan.job import Job, Workload, world_size
from meshwright.plan.plan import ContextParallel, Plan, Recompute, Schedule

H, KV, V, FF, S = 64, 32, 100, 96, 128  # hidden, key/value width, vocabulary, feed-forward, tokens
LAYERS = 3
LAYER = 2 * H * H + 2 * KV * H + 3 * H * FF + 2 * H  # parameters
WIDE = S * H * 2  # bytes of the hidden states of a micro-batch
STATES = {"param_bytes": 4, "grad_bytes": 4, "master_weights": False, "zero_stage": 3}


def job_of(microbatches=1, *, layers=LAYERS, experts=0, **fields):
    plan = Plan(**{**STATES, **fields})
    moe = {"experts": experts, "top_k": 2, "expert_intermediate_size": 48} if experts else {}
    model = decoder(
        layers=layers,
        hidden_size=H,
        heads=8,
        kv_heads=4,
        vocab_size=V,
        intermediate_size=FF,
        **moe,
    )
    gpu = Gpu(name="any", generation="any", memory_bytes=0, memory_bytes_per_s=0, peak_flops={})
    link = Link(name="any", kind="nvlink", domain=8, bytes_per_s=1, latency_s=1)
    ranks = int(world_size(plan))
    cluster = Cluster(gpu=gpu, num_gpus=ranks, gpus_per_node=8, links=(link,))
    batch = int(plan.dp) * int(plan.micro_batch_size) * microbatches
    workload = Workload(seq_len=S, global_batch_size=batch)
    return Job(model=model, cluster=cluster, workload=workload, plan=plan)


def on(axis, job, rank=0):
    """{collective: (calls, bytes)} on one axis."""
    return {c: value for (a, c), value in traffic_of(job, rank).items() if a == axis}


def test_one_rank_sends_nothing():
    assert traffic_of(job_of(dp=1), 0) == {}


def test_fsdp_gathers_twice_and_scatters_once():
    """Head and final norm stay gathered; the vocabulary's 100 rows are padded to 104."""
    found = on("fsdp", job_of(dp=8))
    embedding, head = 104 * H, 104 * H + H
    gathered = 2 * LAYERS * LAYER + 2 * embedding + head
    scattered = LAYERS * LAYER + embedding + head
    assert found == {
        "all_gather": (2 * LAYERS + 3, 2 * gathered),
        "reduce_scatter": (LAYERS + 2, 4 * scattered),
    }


def test_rows_are_padded_to_the_ranks():
    weight = Weight(name="w", rows=10, columns=3)
    assert weight.padded(8) == 16 * 3
    assert weight.padded(16) == 16 * 3
    assert weight.padded(5) == 10 * 3


@pytest.mark.parametrize(
    ("fields", "passes", "stays", "expected"),
    [
        ({}, "FB", False, 2),
        ({}, "FBFB", False, 4),
        ({}, "FBFB", True, 2),
        ({"reshard_after_forward": False}, "FBFB", False, 2),
        ({"zero_stage": 2}, "FBFBFB", False, 1),
        ({"pp": 2}, "FFBB", False, 3),  # the second backward pass finds it gathered
        ({"pp": 2}, "FBFB", False, 3),  # so does the second forward pass
        ({"pp": 2}, "FFBB", True, 1),
    ],
)
def test_a_unit_is_gathered_when_a_pass_finds_it_sharded(fields, passes, stays, expected):
    job = job_of(dp=8, microbatches=2, **fields)
    assert gathers(job, passes, stays=stays) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, 3), ({"zero_stage": 2}, 3), ({"zero_stage": 1}, 1), ({"pp": 2}, 1)],
)
def test_gradients_are_reduced_after_every_pass_or_once(fields, expected):
    assert reductions(job_of(dp=8, microbatches=3, **fields), "FBFBFB") == expected


def test_hsdp_sums_shards_over_replicas():
    job = job_of(dp=16, dp_replicate=2)
    scattered = on("fsdp", job)["reduce_scatter"]
    assert on("dp_replicate", job)["all_reduce"] == (scattered[0], scattered[1] / 8)


def test_without_zero_whole_gradients_are_summed():
    job = job_of(dp=4, zero_stage=0, microbatches=5)
    parameters = LAYERS * LAYER + 2 * V * H + H
    assert on("fsdp", job) == {}
    assert on("dp_replicate", job) == {"all_reduce": (LAYERS + 2, 4 * parameters)}


def test_sequence_parallelism_gathers_and_scatters_four_times_a_layer():
    found = on("tp", job_of(tp=2, dp=1, reduce_bytes=2, param_bytes=2))
    pairs = 2 * (2 * LAYERS + 1)
    assert found["all_gather"] == (pairs, pairs * WIDE)
    assert found["reduce_scatter"] == (pairs, pairs * WIDE)
    norms = (2 * LAYERS + 1) * H * 2
    assert found["all_reduce"] == (1 + 2, norms + (4 + 8) * S)  # norms, all together


def test_without_it_every_exchange_is_a_sum():
    found = on("tp", job_of(tp=2, dp=1, reduce_bytes=2, param_bytes=2, sequence_parallel=False))
    sums = 2 * (2 * LAYERS + 1)
    assert found == {"all_reduce": (sums + 2, sums * WIDE + (4 + 8) * S)}


def test_recompute_repeats_all_but_the_last_sum():
    plain = on("tp", job_of(tp=2, dp=1))
    again = on("tp", job_of(tp=2, dp=1, recompute=int(Recompute.FULL)))
    assert again["all_gather"][0] - plain["all_gather"][0] == 2 * LAYERS
    assert again["reduce_scatter"][0] - plain["reduce_scatter"][0] == LAYERS


@pytest.mark.parametrize("method", list(ContextParallel)[:3])
def test_context_parallelism(method):
    """Two ranks with 64 tokens each of 8 heads and 4 key/value heads of 8."""
    found = on("cp", job_of(cp=2, dp=1, context_parallel=int(method)))
    keys = S // 2 * KV  # elements, and as many values
    queries = S // 2 * H
    around = LAYERS * (4 * keys * 2 + 4 * keys * 4)
    gathered = (LAYERS, LAYERS * 2 * 2 * keys * 2)
    expected = {
        ContextParallel.RING: dict.fromkeys(("send", "receive"), (8 * LAYERS, around)),
        ContextParallel.ALL_GATHER: dict.fromkeys(("all_gather", "reduce_scatter"), gathered),
        ContextParallel.ULYSSES: {
            "all_to_all": (4 * LAYERS, LAYERS * 2 * (2 * queries + 2 * keys) * 2)
        },
    }
    assert found == expected[method]


def test_expert_parallelism_sends_every_chosen_row_four_times():
    found = on("ep", job_of(dp=4, ep=4, experts=8))
    assert found == {"all_to_all": (4 * LAYERS, 4 * LAYERS * S * 2 * H * 2)}


def test_recompute_dispatches_again():
    found = on("ep", job_of(dp=4, ep=4, experts=8, recompute=int(Recompute.FULL)))
    assert found["all_to_all"][0] == 6 * LAYERS


def test_experts_are_sharded_over_their_own_axis():
    found = on("efsdp", job_of(dp=8, ep=4, experts=8))
    expert = 3 * H * 48
    assert found["all_gather"] == (2 * LAYERS, 2 * 2 * LAYERS * 2 * expert)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZB_H1])
def test_stages_hand_over_every_micro_batch_twice(schedule):
    job = job_of(pp=4, dp=1, microbatches=8, layers=8, schedule=int(schedule))
    assert on("pp", job, 0) == {"send": (8, 8 * WIDE), "receive": (8, 8 * WIDE)}
    assert on("pp", job, 1) == {"send": (16, 16 * WIDE), "receive": (16, 16 * WIDE)}
    assert on("pp", job, 3) == on("pp", job, 0)


def test_the_turn_of_a_v_is_on_one_rank():
    job = job_of(pp=2, dp=1, microbatches=4, layers=8, schedule=int(Schedule.ZB_V))
    assert on("pp", job, 1)["send"] == (8, 8 * WIDE)  # stages 1 and 2 of 4, both on rank 1


def test_the_weights_are_those_of_the_count():
    """Shapes and counts are two readings of one model."""
    for name in (
        "llama-3-8b",
        "qwen3-30b-a3b",
        "deepseek-v3",
        "gpt-oss-20b",
        "gemma-2-9b",
        "phi-3-mini",
    ):
        model = load(name)
        for block in model.kinds:
            found = elements(dense_weights(block, model))
            found += elements(expert_weights(block, model.hidden_size))
            assert found == block_parameters(block, model.hidden_size).total, name


def test_terms_add_up_to_the_traffic():
    job = job_of(pp=2, dp=4, tp=2, microbatches=4, layers=4)
    terms = traffic_terms(job)
    for rank in range(2):
        total = sum(piece.total_bytes for piece in pieces_of(job, rank))
        assert terms[f"traffic.stage{rank}"].value == total
    leaf = terms["traffic.stage0.fsdp.all_gather.layers"]
    assert leaf.value == leaf.operands["calls"] * leaf.operands["call_bytes"]


def test_every_layer_is_on_one_stage():
    job = job_of(pp=4, dp=1, microbatches=4, layers=10)
    assert [len(chunk.blocks) for rank in range(4) for chunk in chunks_of(job, rank)] == [
        3,
        3,
        2,
        2,
    ]
