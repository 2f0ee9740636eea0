"""Megatron-LM and its kin: what is read, and that what is written reads back."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import api
from meshwright.api.converting import written
from meshwright.frameworks.framework import framework
from meshwright.frameworks.inverse import idle_fields
from meshwright.frameworks.jobs import draft, stated_model
from meshwright.frameworks.megatron_lm.layout import read_layout, written_layout
from meshwright.frameworks.read import read_text
from meshwright.model.catalogue import presets
from meshwright.model.count import parameters
from meshwright.plan.job import Job, Loading, Recipe, Workload
from meshwright.plan.plan import ContextParallel, Plan, Recompute, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import FIELDS

WRITTEN = (
    ("megatron-lm", ""),
    ("megatron-lm", "0.16.1"),
    ("megatron-bridge", ""),
    ("nemo", ""),
    ("ms-swift-megatron", ""),
    ("mindspeed", ""),
    ("slime", ""),
)
SPLIT = {"layout", "first_stage_layers", "last_stage_layers", "embedding_in_split", "loss_in_split"}
PRESETS = ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "deepseek-v2-lite", "deepseek-v3")
WHOLE = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 "
    "--seq-length 64 --micro-batch-size 1"
)
powers = st.sampled_from([1, 2, 4])


@st.composite
def jobs(draw):
    """A job whose plan Megatron could run."""
    tp, cp, dp = draw(powers), draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 2, 8]))
    pp = draw(st.sampled_from([1, 1, 2, 4]))
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    model = api.load_model(draw(st.sampled_from(PRESETS)))
    half = draw(st.booleans())
    precision = draw(st.sampled_from([1, 1, 2, 3, 4, 5] if half else [0]))
    wide = not half or (precision != 2 and draw(st.booleans()))
    stage = draw(st.integers(0, 3)) if pp == 1 else draw(st.integers(0, 1))
    kind = draw(st.sampled_from(Recompute))
    plan = Plan(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=draw(st.sampled_from([1, dp])) if model.is_moe else 1,
        etp=draw(st.sampled_from([1, tp])) if model.is_moe else 1,
        vpp=vpp,
        micro_batch_size=draw(powers),
        zero_stage=stage,
        dp_replicate=draw(st.sampled_from([1, dp])) if stage else 1,
        sequence_parallel=draw(st.booleans()) and tp > 1,
        context_parallel=draw(st.integers(0, 2)) if cp > 1 else 0,
        first_stage_layers=draw(st.sampled_from([0, 0, 4])) if pp > 2 else 0,
        embedding_in_split=draw(st.booleans()),
        recompute=int(kind),
        recompute_modules=draw(st.sampled_from([1, 2, 5, 24, 96])),
        recompute_layers=draw(st.sampled_from([0, 2])),
        recompute_uniform=draw(st.booleans()),
        distribute_saved=draw(st.booleans()),
        precision=precision,
        param_bytes=(1 if precision == 3 and draw(st.booleans()) else 2) if half else 4,
        grad_bytes=4 if wide else 2,
        reduce_bytes=4 if wide else 2,
        master_weights=half,
        optimizer=draw(st.sampled_from([0, 0, 3, 4, 5])),
        optimizer_state_bytes=draw(st.sampled_from([4, 2, 1])),
        flash_attention=draw(st.booleans()),
        fused_loss=draw(st.booleans()),
        offload_optimizer=draw(st.sampled_from([0.0, 0.5, 1.0])),
        overlap_grad_reduce=draw(st.booleans()),
        overlap_param_gather=draw(st.booleans()),
        overlap_tp=draw(st.booleans()),
        overlap_ep=draw(st.booleans()),
        overlap_pp=draw(st.booleans()),
        cuda_graph=draw(st.booleans()),
    )
    gpus = tp * pp * cp * dp
    return Job(
        model=model,
        cluster=api.cluster(f"H100:{min(gpus, 8)}", nodes=max(gpus // 8, 1)),
        workload=Workload(
            seq_len=4096,
            global_batch_size=plan.micro_batch_size * dp * draw(st.sampled_from([4, 16])),
            loading=Loading(num_workers=draw(st.sampled_from([None, 4]))),
            recipe=Recipe(learning_rate=draw(st.sampled_from([None, 1e-4]))),
        ),
        plan=plan,
    )


@pytest.mark.parametrize(("name", "version"), WRITTEN)
@settings(max_examples=60, deadline=None)
@given(job=jobs())
def test_a_job_survives_but_for_what_is_called_lost(name, version, job):
    own = framework(name)
    expressed = own.express(job, version)
    assert not expressed.refused
    ((file, text),) = written(own, expressed).items()
    reading = read_text(text, file=file, framework=name, version=version)
    assert not reading.config.unknown
    assert not [f for f in reading.config.findings if f.code in ("CFG102", "CFG103", "CFG104")]
    again, lost = draft(reading, model=job.model, cluster=job.cluster).job, {*expressed.lost}
    for field in {*FIELDS} - SPLIT - lost - idle_fields(job.plan) - {"vpp"}:
        assert getattr(job.plan, field) == getattr(again.plan, field), field
    assert chunk_layers(job.model, again.plan) == chunk_layers(job.model, job.plan)
    assert again.workload.seq_len == job.workload.seq_len
    assert again.workload.global_batch_size == job.workload.global_batch_size
    assert again.workload.recipe.learning_rate == job.workload.recipe.learning_rate
    if job.workload.loading.num_workers:
        assert again.workload.loading.num_workers == job.workload.loading.num_workers


@pytest.mark.parametrize(("name", "version"), WRITTEN)
def test_what_is_written_is_recognized(name, version):
    job = Job(
        model=api.load_model("llama-3.1-8b"),
        cluster=api.cluster("H100:8", nodes=2),
        workload=Workload(seq_len=4096, global_batch_size=64),
        plan=Plan(tp=2, pp=2, dp=4, cp=1, context_parallel=0),
    )
    own = framework(name)
    ((file, text),) = written(own, own.express(job, version)).items()
    found = read_text(text, file=file).config.framework.name
    assert found == ("megatron-lm" if name == "mindspeed" else name)


@pytest.mark.parametrize("preset", presets())
def test_the_shape_of_every_preset_is_stated_or_called_lost(preset):
    model = api.load_model(preset)
    job = Job(
        model=model,
        cluster=api.cluster("H100:8", nodes=1),
        workload=Workload(seq_len=2048, global_batch_size=8),
        plan=Plan(dp=8),
    )
    own = framework("megatron-lm")
    expressed = own.express(job, "")
    ((file, text),) = written(own, expressed).items()
    back = stated_model(read_text(text, file=file, framework="megatron-lm"))
    close = back is not None and abs(parameters(back).total / parameters(model).total - 1) < 0.004
    assert close or "model" in expressed.lost
    assert back is None or back.num_hidden_layers == model.num_hidden_layers


# Meanings


def arguments(text, **options):
    return read_text(text, framework="megatron-lm", **options)


@pytest.mark.parametrize(
    ("text", "vpp", "specs"),
    [
        ("--num-layers 40 --pipeline-model-parallel-size 8", 1, 0),
        (
            "--num-layers 40 --pipeline-model-parallel-size 2 "
            "--num-layers-per-virtual-pipeline-stage 5",
            4,
            1,
        ),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3", 3, 1),
        ('--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et|(tt|)*2L"', 2, 1),
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3 "
            '--pipeline-model-parallel-layout "Et|tL"',
            3,
            2,
        ),
    ],
)
def test_virtual_stages_are_stated_in_three_ways(text, vpp, specs):
    reading = arguments(text)
    assert reading.value("vpp") == vpp
    assert reading.value("n_vpp_specs") == specs
    assert reading.value("schedule") == ("interleaved" if vpp > 1 else "1f1b")


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Et*3|(tt|)*29m|L", ("Ettt", *["tt"] * 29, "m", "L")),
        ("Et,t|tt|L", ("Ett", "tt", "L")),
        ("(t|)*2L", ("t", "t", "L")),
        ([["embedding", "decoder"], ["decoder", "loss"]], ("Et", "tL")),
        ("no layout", None),
        ("t*", None),
        ("(t", None),
        ("t*999999", None),
    ],
)
def test_layouts(text, stages):
    found = read_layout(text)
    assert (found and found.stages) == stages


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 2))
def test_a_written_layout_reads_back(layers, mtp):
    found = read_layout(written_layout(layers, mtp=mtp))
    assert found is not None
    assert found.decoders == tuple(layers)
    assert found.mtp == mtp
    assert found.starts_with_embedding
    assert found.ends_with_loss


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("", 1),
        ("--bf16", 0),
        ("--bf16 --use-distributed-optimizer", 1),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard", 0),
        ("--use-megatron-fsdp", 3),
        ("--use-torch-fsdp2", 3),
    ],
)
def test_sharding(text, stage):
    assert arguments("--micro-batch-size 1 " + text).value("zero_stage") == stage


def test_the_default_sharding_strategy_changed_with_0_18():
    text = "--use-megatron-fsdp"
    assert arguments(text, version="0.17").value("zero_stage") == 0
    assert arguments(text, version="0.18").value("zero_stage") == 3


@pytest.mark.parametrize(
    ("text", "precision", "grad_bytes"),
    [
        ("--micro-batch-size 1", "bf16", 4),
        (WHOLE, "fp32", 4),
        ("--bf16", "bf16", 4),
        ("--bf16 --grad-reduce-in-bf16", "bf16", 2),
        ("--bf16 --main-grads-dtype bf16", "bf16", 2),
        ("--fp16", "fp16", 2),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", "fp16", 4),
        ("--bf16 --fp8-format hybrid", "fp8", 4),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8", 4),
        ("--bf16 --fp4-format e2m1", "nvfp4", 4),
    ],
)
def test_precision(text, precision, grad_bytes):
    reading = arguments(text)
    assert reading.value("precision") == precision
    assert reading.value("grad_bytes") == grad_bytes


def test_shape_defaults_are_megatrons():
    reading = arguments("--num-layers 2 --hidden-size 4096 --num-attention-heads 32 --swiglu")
    assert reading.value("num_key_value_heads") == 32
    assert reading.value("intermediate_size") == 10880  # 8/3 of 4096, a multiple of 64
    assert reading.value("tie_word_embeddings") is True
    assert reading.value("kv_lora_rank") is None
    untied = arguments("--hidden-size 64 --untie-embeddings-and-output-weights")
    assert untied.value("tie_word_embeddings") is False
    assert untied.value("intermediate_size") == 256


@pytest.mark.parametrize(("tp", "rows"), [(1, 50257), (2, 50258), (8, 50264)])
def test_the_padded_vocabulary_depends_on_tp(tp, rows):
    text = "--vocab-size 50257 --make-vocab-size-divisible-by 1 --tensor-model-parallel-size "
    assert arguments(text + str(tp)).value("padded_vocab_size") == rows


def test_etp_follows_tp_in_megatron_and_is_one_in_swift():
    text = "--tensor_model_parallel_size 4 --expert_model_parallel_size 8"
    assert arguments(text).value("etp") == 4
    assert arguments(text).value("etp_explicit") is None
    swift = read_text("megatron sft --padding_free true " + text, file="a.sh")
    assert swift.config.framework.name == "ms-swift-megatron"
    assert swift.value("etp") == 1


def test_slime_says_how_many_gpus_train():
    text = "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --tensor-model-parallel-size 2"
    reading = read_text(text)
    assert reading.config.framework.name == "slime"
    assert reading.value("num_gpus") == 16


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tensor_model_parallel_size: 4\npipeline_model_parallel_size: 2\n", "megatron-bridge"),
        ("model.tensor_model_parallel_size=4\ntrain.micro_batch_size=1\n", "megatron-bridge"),
        ("language_model:\n  num_layers: 4\nmodel_parallel:\n  bf16: true\n", "megatron-lm"),
        ("model:\n  micro_batch_size: 4\n  tensor_model_parallel_size: 2\n", "nemo"),
        ("strategy:\n  ckpt_async_save: false\ntrainer:\n  num_nodes: 4\n", "nemo"),
        ("policy:\n  megatron_cfg:\n    tensor_model_parallel_size: 4\n", "nemo-rl"),
        ("trainer.policy.megatron_config.tensor_model_parallel_size=2\n", "skyrl"),
        ("--tensor-model-parallel-size 2 --schedules-method dualpipev\n", "mindspeed"),
        ("swift sft --model Qwen/Qwen3-8B --deepspeed zero3\n", "ms-swift"),
    ],
)
def test_recognition(text, name):
    assert read_text(text).config.framework.name == name


def test_bridge_presets_of_precision():
    text = "model:\n  tensor_model_parallel_size: 2\nmixed_precision: bf16_with_mxfp8_mixed\n"
    reading = read_text(text)
    assert reading.value("precision") == "mxfp8"
    assert reading.value("fp8_param_gather") is True
    bare = read_text("tensor_model_parallel_size: 2\n")
    assert bare.value("precision") == "bf16"
    assert not bare.is_stated("precision")


def test_a_swift_zero3_preset_shards_parameters():
    text = "swift sft --model Qwen/Qwen3-8B --tuner_type full --deepspeed zero3 --torch_dtype "
    reading = read_text(text + "bfloat16 --per_device_train_batch_size 2")
    assert reading.value("zero_stage") == 3
    assert reading.value("micro_batch_size") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("none", 0, False)),
        ("--recompute-activations", ("selective", 0, False)),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            ("full", 3, False),
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            ("full", 0, False),
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
            ("full", 4, True),
        ),
    ],
)
def test_recompute(text, expected):
    reading = arguments("--micro-batch-size 1 " + text)
    kind, layers, uniform = expected
    assert reading.value("recompute") == kind
    assert (reading.value("recompute_layers") or 0) == layers
    assert bool(reading.value("recompute_uniform")) == uniform


def test_schedules_that_only_forks_have_are_refused():
    job = Job(
        model=api.load_model("llama-3.1-8b"),
        cluster=api.cluster("H100:8", nodes=1),
        workload=Workload(seq_len=4096, global_batch_size=64),
        plan=Plan(pp=4, dp=2, schedule=int(Schedule.DUALPIPE_V), vpp=2),
    )
    assert "schedule" in framework("megatron-lm").express(job, "").refused
    said = framework("mindspeed").express(job, "")
    assert not said.refused
    assert said.settings["--schedules-method"] == "dualpipev"


def test_mindspeed_names_the_context_algorithm():
    text = "--context-parallel-size 8 --context-parallel-algo hybrid_cp_algo "
    reading = read_text(text + "--ulysses-degree-in-cp 4 --tensor-model-parallel-size 1")
    assert reading.config.framework.name == "mindspeed"
    assert reading.value("context_parallel") == "hierarchical"
    assert reading.value("cp_inner") == 4
    job = Job(
        model=api.load_model("llama-3.1-8b"),
        cluster=api.cluster("H100:8", nodes=1),
        workload=Workload(seq_len=4096, global_batch_size=64),
        plan=Plan(cp=8, dp=1, context_parallel=int(ContextParallel.HIERARCHICAL), cp_inner=4),
    )
    said = framework("mindspeed").express(job, "")
    assert said.settings["--ulysses-degree-in-cp"] == 4
    assert "context_parallel" not in said.lost


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    st.lists(st.one_of(st.integers(-3, 9), st.text(max_size=4)), max_size=4),
    st.sampled_from(["0", "-1", "1e9", "p2p", "full", "Et|L", "(128,0)", "[1]*4", "null", "fp8"]),
)


@pytest.mark.parametrize(
    "name",
    [
        *("megatron-lm", "megatron-bridge", "nemo", "nemo-rl", "skyrl", "slime", "mindspeed"),
        *("ms-swift", "ms-swift-megatron"),
    ],
)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_value_is_met_by_a_traceback(name, data):
    own = framework(name)
    fields = [f.name for f in own.table.fields if f.variable and not f.name.endswith(".*")]
    chosen = data.draw(st.lists(st.sampled_from(fields), max_size=8, unique=True))
    lines = [f"{field}={json.dumps(data.draw(JUNK))}" for field in chosen]
    text = "\n".join(shlex.quote(line) for line in lines)
    reading = read_text(text, file="o.overrides", framework=name)
    drafted = draft(reading)
    assert drafted.job.plan.tp >= 1
