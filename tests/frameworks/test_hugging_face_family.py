"""Random plans through DeepSpeed, accelerate, the trainer, LLaMA-Factory and axolotl and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from meshwright.frameworks.framework import framework
from meshwright.frameworks.inverse import without_idle
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.launching import written
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.text.render import render
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load, resolve
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan
from meshwright.plan.words import FIELDS, read_word, word

FAMILY = ("deepspeed", "accelerate", "hf-trainer", "llama-factory", "axolotl")
KINDS = {  # bytes of weights, gradients, reduction, moments; master copy
    "master": (2, 2, 2, 4, True),
    "wide master": (2, 4, 4, 4, True),
    "autocast": (4, 4, 2, 4, False),
    "ddp": (4, 4, 4, 4, False),
    "pure": (2, 2, 2, 2, False),
    "adapters": (2, 4, 4, 4, False),
}
PLAIN = {"sequence_parallel": False, "vocab_parallel": False, "loss_parallel": False}


@cache
def model() -> Any:
    return load(resolve("llama-3.1-8b"))


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Words of a plan that some framework of the family may be able to run."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    param, grad, reduce, state, master = KINDS[kind]
    stage = draw(st.sampled_from((0, 1, 2, 3)))
    tp, cp = draw(st.sampled_from(((1, 1), (1, 1), (1, 1), (2, 1), (1, 2))))
    dp = draw(st.sampled_from((2, 4, 8)))
    words = {
        "dp": dp,
        "tp": tp,
        "cp": cp,
        "context_parallel": draw(st.sampled_from(("ulysses", "ring", "all-gather"))),
        "zero_stage": stage,
        "dp_replicate": draw(st.sampled_from((1, 1, 2))) if stage == 3 else 1,
        "reshard_after_forward": draw(st.booleans()),
        "micro_batch_size": draw(st.sampled_from((1, 2, 4))),
        "param_bytes": param,
        "grad_bytes": grad,
        "reduce_bytes": reduce,
        "optimizer_state_bytes": state,
        "master_weights": master,
        "precision": draw(st.sampled_from(("bf16", "bf16", "fp16"))),
        "recompute": draw(st.sampled_from(("none", "full"))),
        "fused_loss": draw(st.booleans()),
        "flash_attention": draw(st.booleans()),
        "offload_optimizer": draw(st.sampled_from((0.0, 0.0, 1.0))),
        "offload_params": draw(st.booleans()) if stage == 3 else False,
        "offload_activations": draw(st.sampled_from((0.0, 0.0, 1.0))),
        "optimizer": draw(st.sampled_from(("adam", "adam", "adam-8bit", "adafactor", "sgd"))),
        "overlap_grad_reduce": draw(st.booleans()),
        "compile": draw(st.booleans()),
        **PLAIN,
    }
    if kind == "adapters":
        words |= {"lora_rank": 16, "lora_all_linear": draw(st.booleans())}
        words["base_weight_bits"] = draw(st.sampled_from((0, 4, 8)))
    return words


def job_of(words: dict[str, Any]) -> Job:
    changes = {}
    for name, value in words.items():
        changes[name], problem = read_word(name, value)
        assert problem is None
    plan = Plan(**changes)
    gpus = int(plan.dp * plan.tp * plan.cp * plan.pp)
    workload = Workload(seq_len=2048, global_batch_size=int(plan.dp * plan.micro_batch_size) * 4)
    return Job(
        model=model(),
        cluster=cluster(f"H100:{min(gpus, 8)}", nodes=max(gpus // 8, 1)),
        workload=workload,
        plan=plan,
    )


def back_and_forth(name: str, job: Job) -> tuple[Plan, Plan, dict[str, str]]:
    """The plan, the plan that the written file means, and what the writer called lost."""
    own = framework(name)
    assert own.express is not None
    expressed = own.express(job, "")
    assume(not expressed.refused)
    unknown = [key for key in expressed.settings if own.table.find(key) is None]
    assert unknown == []
    text = render(own.syntaxes[0], expressed.settings, launch=expressed.launch)
    reading = read_text(text, file=own.file_name, framework=name)
    if expressed.beside:
        files = written(own, expressed)
        (reading,) = read_files([own.file_name], framework=name, texts=files)
    assert [s.spelled for s in reading.config.unknown] == []
    drafted = draft(reading, model=job.model, cluster=job.cluster).job
    if name not in ("accelerate", "deepspeed"):
        assert drafted.workload.seq_len == job.workload.seq_len
    if name != "accelerate":
        assert drafted.workload.global_batch_size == job.workload.global_batch_size
    return job.plan, drafted.plan, dict(expressed.lost)


def differs(field: str, before: Plan, after: Plan) -> bool:
    """Whether the field as read back makes a difference to the plan as it was."""
    changed = before.replace(**{field: getattr(after, field)})
    return without_idle(changed) != without_idle(before)


@pytest.mark.parametrize("name", FAMILY)
@given(words=plans())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_not_called_lost_comes_back(name: str, words: dict[str, Any]) -> None:
    before, after, lost = back_and_forth(name, job_of(words))
    assert {
        field: (word(field, getattr(before, field)), word(field, getattr(after, field)))
        for field in FIELDS
        if differs(field, before, after) and field not in lost
    } == {}


STRONG: dict[str, tuple[dict[str, Any], ...]] = {
    "deepspeed": (
        {"zero_stage": 3, "grad_bytes": 2, "reduce_bytes": 2, "offload_optimizer": 1.0},
        {"zero_stage": 2, "grad_bytes": 2, "reduce_bytes": 2, "overlap_param_gather": False},
        {"zero_stage": 1, "grad_bytes": 4, "reduce_bytes": 4, "overlap_param_gather": False},
    ),
    "hf-trainer": (
        {"zero_stage": 3, "param_bytes": 4, "reduce_bytes": 2, "master_weights": False},
        {"zero_stage": 2, "grad_bytes": 2, "reduce_bytes": 2, "overlap_param_gather": False},
        {"zero_stage": 0, "param_bytes": 4, "master_weights": False, "recompute": "full"},
        {"zero_stage": 0, "master_weights": False, "lora_rank": 8, "base_weight_bits": 4},
    ),
    "llama-factory": (
        {"zero_stage": 3, "grad_bytes": 2, "reduce_bytes": 2, "recompute": "full"},
        {"zero_stage": 0, "param_bytes": 4, "master_weights": False, "recompute": "full"},
        {"zero_stage": 0, "master_weights": False, "lora_rank": 8, "base_weight_bits": 4},
    ),
    "axolotl": (
        {"zero_stage": 3, "param_bytes": 4, "reduce_bytes": 2, "master_weights": False},
        {"zero_stage": 3, "grad_bytes": 2, "reduce_bytes": 2, "offload_params": True}
        | {"offload_optimizer": 1.0},
    ),
    "accelerate": (
        {"zero_stage": 3, "param_bytes": 4, "reduce_bytes": 2, "master_weights": False}
        | {"recompute": "full"},
        {"zero_stage": 0, "param_bytes": 4, "master_weights": False},
    ),
}


@pytest.mark.parametrize(("name", "words"), [(n, w) for n, all_ in STRONG.items() for w in all_])
def test_usual_plans_lose_nothing(name: str, words: dict[str, Any]) -> None:
    job = job_of({"dp": 8, **PLAIN, **words})
    own = framework(name)
    assert own.express is not None
    expressed = own.express(job, "")
    assert (dict(expressed.lost), dict(expressed.refused)) == ({}, {})


@pytest.mark.parametrize("name", FAMILY)
def test_pipelines_and_foreign_context_parallelism_are_refused(name: str) -> None:
    own = framework(name)
    assert own.express is not None
    pipelined = own.express(job_of({"dp": 4, "pp": 2, "zero_stage": 2, **PLAIN}), "").refused
    assert {"pp", "zero_stage"} & {*pipelined}
    words = {"dp": 4, "cp": 2, "context_parallel": "hierarchical", "zero_stage": 3, **PLAIN}
    assert "context_parallel" in own.express(job_of(words), "").refused
