from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import SETTINGS, Inexpressible, Row
from meshwright.model.count import parameters
from meshwright.plan.job import Job, world_size
from meshwright.plan.plan import Optimizer, Precision, Recompute, RecomputeModule, Schedule


def job(row: Row) -> Job:
    found = job_of(row)
    assert isinstance(found, Job), found
    return found


def reason(row: Row) -> str:
    found = job_of(row)
    assert isinstance(found, Inexpressible)
    return found.reason


def test_nearly_every_complete_row_is_a_job(reference, jobs) -> None:
    judged = [j for run, j in zip(reference, jobs, strict=True) if run.is_judged]
    refused = Counter(j.reason for j in judged if isinstance(j, Inexpressible))
    assert len(judged) - refused.total() >= 0.99 * len(judged), refused


def test_every_job_occupies_its_gpus(reference, jobs) -> None:
    for run, found in zip(reference, jobs, strict=True):
        if isinstance(found, Job):
            assert world_size(found.plan) == found.cluster.num_gpus == run.row.integer("num_gpus")


def test_every_refusal_says_why(jobs) -> None:
    assert all(j.reason for j in jobs if isinstance(j, Inexpressible))


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("llama3-70b", 70.6),
        ("llama3.1-405b", 405.9),
        ("deepseek-v3", 671),
        ("kimi-k2", 1026),
        ("qwen3-235b-a22b", 235),
        ("gpt-oss-120b", 117),
        ("nemotron4-340b", 341),
        ("mixtral-8x22b", 141),
        ("bloom-176b", 176),
        ("mpt-7b", 6.6589),
        ("llama4-maverick", 400),
        ("gemma2-9b", 9.24),
        ("nanotron-llama-3B", 3.573),
        ("internlm-7b", 7.3),
    ],
)
def test_parameters_are_those_of_the_known_model(reference, model: str, billions: float) -> None:
    rows = (r.row for r in reference if r.row.text("model") == model and r.is_judged)
    found = parameters(job(next(rows)).model, mtp=False)
    assert found.total / 1e9 == pytest.approx(billions, rel=0.02)


def test_plain_fields(make_row) -> None:
    found = job(make_row())
    plan = found.plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch_size) == (2, 2, 4, 2)
    assert plan.sequence_parallel is True
    assert found.workload.global_batch_size == 128
    assert found.model.vocab_size == 50304  # padded to a multiple of 128, as Megatron does
    assert found.model.position_embeddings == 2048
    assert found.stack == "nemo-2024"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"micro_batch": ""}, "micro_batch is not stated"),
        ({"recompute": ""}, "recompute is not stated"),
        ({"vpp": ""}, "vpp is not stated"),
        ({"tp": "3"}, "is not num_gpus"),
        ({"tp": "two"}, "'two'"),
        ({"hidden": "-4096"}, "below 1"),
        ({"layers": ""}, "layers is not stated"),
        ({"layers": "7342851301"}, "above 10000"),
        ({"vpp": "9999"}, "too few for pp*vpp"),
        ({"global_batch": "130"}, "not a multiple"),
        ({"gpu": "Cerebras WSE-3"}, "unknown GPU"),
        ({"arch": "hybrid-mamba"}, "not modeled"),
        ({"precision": "fp8 or nvfp4 (both presets shipped)"}, "ambiguous"),
        ({"precision": ""}, "precision is not stated"),
        ({"pp_schedule": "v-min"}, "'v-min'"),
        ({"experts": "8", "topk": "2", "ep": "3"}, "does not divide"),
        ({"experts": "64", "topk": "6", "expert_ffn": "0"}, "expert_ffn is not stated"),
    ],
)
def test_reasons_are_precise(make_row, changes: dict[str, str], says: str) -> None:
    assert says in reason(make_row(**changes))


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"sequence_parallel": "True"}, "sequence_parallel", True),
        ({"cp": ""}, "cp", 1),
        ({"recompute": "yes"}, "recompute", Recompute.FULL),
        ({"precision": "BF16-mixed"}, "precision", Precision.BF16),
        ({"framework": "torchtitan", "vpp": ""}, "vpp", 1),
        ({"dp": "unknown"}, "dp", 4),
        ({"fsdp_shard": "none"}, "zero_stage", 1),
    ],
)
def test_other_spellings_are_read(make_row, changes, field, value) -> None:
    assert getattr(job(make_row(**changes)).plan, field) == value


@pytest.mark.parametrize(
    ("gpu", "gpus_per_node", "domain"),
    [
        ("MI300X", "", 8),
        ("H200", "8", 8),
        ("H800-80G-SXM", "8", 8),
        ("L40S", "4", 4),
        ("GB200", "", 16),
        ("RTX 4090", "2", 2),
    ],
)
def test_other_devices(make_row, gpu, gpus_per_node, domain) -> None:
    row = make_row(gpu=gpu, gpus_per_node=gpus_per_node, interconnect="")
    assert job(row).cluster.scale_up_domain == domain


def test_micro_batch_follows_from_accumulation(make_row) -> None:
    assert job(make_row(micro_batch="", grad_accum="8")).plan.micro_batch_size == 4
    assert job(make_row(micro_batch="", global_batch="4")).plan.micro_batch_size == 1


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ("", Schedule.ONE_F_ONE_B),
        ("interleaved-1f1b", Schedule.ONE_F_ONE_B),
        ("zb-1p", Schedule.ZB_H1),
        ("zb-2p", Schedule.ZB_H2),
        ("zb-v", Schedule.ZB_V),
        ("v-half + vocabulary parallel (vocab-1)", Schedule.V_HALF),
        ("dualpipe", Schedule.DUALPIPE),
        ("GPipe", Schedule.GPIPE),
    ],
)
def test_schedules(make_row, written: str, schedule: Schedule) -> None:
    plan = job(make_row(pp_schedule=written)).plan
    assert plan.schedule == schedule
    assert plan.vocab_over_pipeline == ("vocabulary" in written)


@pytest.mark.parametrize(
    ("written", "precision", "param", "grad", "master"),
    [
        ("bf16 (fp32 grad accumulation)", Precision.BF16, 2, 4, True),
        ("bf16 amp (fp32 params)", Precision.BF16, 4, 4, False),
        ("bf16 pure", Precision.BF16, 2, 2, False),
        ("fp16", Precision.FP16, 2, 2, True),
        ("fp8 (hybrid, delayed or current per-tensor scaling)", Precision.FP8, 2, 2, True),
        ("mxfp8", Precision.MXFP8, 2, 2, True),
        ("nvfp4", Precision.NVFP4, 2, 2, True),
        ("fp32", Precision.FP32, 4, 4, False),
    ],
)
def test_precisions(make_row, written, precision, param, grad, master) -> None:
    plan = job(make_row(precision=written)).plan
    assert plan.precision == precision
    assert (plan.param_bytes, plan.grad_bytes, plan.master_weights) == (param, grad, master)


def test_notes_change_widths_and_optimizer(make_row) -> None:
    plan = job(make_row(notes="Muon optimizer; fp16-style 16-bit gradient accumulation")).plan
    assert plan.optimizer == Optimizer.MUON
    assert plan.grad_bytes == 2


def test_fsdp_without_resharding(make_row) -> None:
    row = make_row(
        framework="llm-foundry/Composer (PyTorch FSDP)",
        tp="1",
        pp="1",
        dp="16",
        fsdp_shard="8",
        zero_stage="2",
    )
    plan = job(row).plan
    assert (plan.zero_stage, plan.reshard_after_forward, plan.dp_replicate) == (3, False, 2)


def test_optimizer_shards_from_the_notes(make_row) -> None:
    row = make_row(notes="optimizer states sharded over 2 ranks (zero1=2)")
    assert job(row).plan.dp_replicate == 2


@pytest.mark.parametrize(
    ("kind", "detail", "recompute", "modules"),
    [
        ("full", "every layer", Recompute.FULL, None),
        ("selective", "core_attn (no-op with flash attention)", Recompute.NONE, None),
        (
            "selective",
            "moe+layernorm+core_attn+moe_act",
            Recompute.SELECTIVE,
            RecomputeModule.MOE
            | RecomputeModule.NORM
            | RecomputeModule.CORE_ATTENTION
            | RecomputeModule.MOE_ACTIVATION,
        ),
        (
            "selective",
            "mla_up_proj+mlp",
            Recompute.SELECTIVE,
            RecomputeModule.MLA_UP_PROJECTION | 2,
        ),
        (
            "selective",
            "remat_policy=minimal",
            Recompute.SELECTIVE,
            RecomputeModule.CORE_ATTENTION | RecomputeModule.NORM,
        ),
    ],
)
def test_recompute(make_row, kind, detail, recompute, modules) -> None:
    plan = job(make_row(recompute=kind, recompute_detail=detail)).plan
    assert plan.recompute == recompute
    if modules is not None:
        assert plan.recompute_modules == modules


def test_core_attention_is_recomputed_without_a_fused_kernel(make_row) -> None:
    row = make_row(
        framework="Megatron-LM",
        framework_version="",
        year="2022",
        recompute="selective",
        recompute_detail="attention core; no flash attention",
    )
    plan = job(row).plan
    assert plan.recompute == Recompute.SELECTIVE
    assert plan.flash_attention is False


def test_block_and_uniform_recompute(make_row) -> None:
    block = job(make_row(recompute="full", recompute_detail="block 10")).plan
    uniform = job(make_row(recompute="full", recompute_detail="uniform 1")).plan
    assert (block.recompute_layers, block.recompute_uniform) == (10, False)
    assert (uniform.recompute_layers, uniform.recompute_uniform) == (1, True)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("activations of 8 layers to CPU", {"offload_activations": 0.5}),
        ("CPU (FSDP offload)", {"offload_params": True, "offload_optimizer": 1.0}),
        ("EMA parameters on CPU", {"offload_activations": 0.0}),
    ],
)
def test_offload(make_row, written: str, expected: dict[str, object]) -> None:
    plan = job(make_row(offload=written)).plan
    assert {name: getattr(plan, name) for name in expected} == expected


def test_windows_of_gpt_oss_alternate(reference) -> None:
    row = next(r.row for r in reference if r.row.text("model") == "gpt-oss-120b" and r.is_judged)
    windows = [block.attention.window for block in job(row).model.layers]
    assert windows == [128, None] * 18


def test_llama4_interleaves_experts(reference) -> None:
    rows = (r.row for r in reference if r.row.text("model") == "llama4-maverick" and r.is_judged)
    kinds = [block.is_moe for block in job(next(rows)).model.layers]
    assert kinds == [False, True] * 24


def test_deepseek_begins_dense_and_attends_latently(reference) -> None:
    row = next(r.row for r in reference if r.row.text("model") == "deepseek-v3" and r.is_judged)
    layers = job(row).model.layers
    assert [block.is_moe for block in layers[:4]] == [False, False, False, True]
    assert layers[0].attention.kv_lora_rank == 512
    assert layers[0].attention.q_lora_rank == 1536


def test_a_slice_of_a_torus_is_one_domain(reference) -> None:
    row = next(r.row for r in reference if r.row.says("interconnect", "between 4 slices"))
    cluster = job(row).cluster
    assert cluster.links[0].kind == "ici"
    assert cluster.links[0].domain * 4 == cluster.num_gpus


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    column=st.sampled_from(SETTINGS),
    value=st.one_of(
        st.text(max_size=12),
        st.integers(-(10**31), 10**31).map(str),
        st.sampled_from(["", "nan", "inf", "1e400", "0", "-1", "1.5", "none", "128 or 256"]),
    ),
)
def test_no_cell_makes_it_fail(make_row, column: str, value: str) -> None:
    found = job_of(make_row(**{column: value}))
    assert isinstance(found, Job) or found.reason
