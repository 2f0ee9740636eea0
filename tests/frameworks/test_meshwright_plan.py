"""plan.toml among the frameworks."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from meshwright import api
from meshwright.base.errors import InvalidInput
from meshwright.frameworks.framework import framework
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.plan.file import write_job
from meshwright.plan.job import Job, Loading, Runtime, Workload
from meshwright.plan.plan import Plan
from meshwright.plan.words import FIELDS


def job():
    return Job(
        model=api.load_model("llama-3.1-70b"),
        cluster=api.cluster("H100:8", nodes=8),
        workload=Workload(
            seq_len=8192,
            global_batch_size=512,
            train_tokens=15e12,
            loading=Loading(num_workers=2),
            runtime=Runtime(nccl_algo="Ring", environment=(("NCCL_DEBUG", "INFO"),)),
        ),
        plan=Plan(tp=8, pp=4, vpp=4, dp=2, layout=(5,) * 16, recompute=2, recompute_layers=3),
    )


def test_a_plan_file_reads_to_its_job():
    reading = read_text(write_job(job()), file="plan.toml")
    assert reading.config.framework.name == "meshwright"
    assert not reading.config.unknown
    drafted = draft(reading)
    assert (drafted.missing, drafted.problems) == ((), ())
    assert drafted.job == job()


def test_it_is_written_by_the_same_hand():
    expressed = framework("meshwright").express(job(), "")
    assert expressed.text == write_job(job())
    assert expressed.settings["plan.tp"] == 8
    assert not expressed.lost


def test_a_plan_alone_is_a_plan_still():
    reading = read_text("[plan]\ntp = 4\npp = 2\n", file="plan.toml")
    assert reading.config.framework.name == "meshwright"
    assert (reading.value("tp"), reading.value("pp")) == (4, 2)


def test_amounts_have_units():
    text = '[cluster]\ngpu = "H100:8"\nnodes = 2\n[workload]\nseq_len = 8192\n'
    reading = read_text(text + 'global_batch = "4Mtok"\n[plan]\ntp = 4\n', file="plan.toml")
    assert reading.value("num_gpus") == 16
    assert reading.value("gpu_name") == "H100"
    assert reading.value("global_batch_size") == 512


def test_what_is_wrong_with_a_whole_file_is_said_with_its_place():
    text = write_job(job()).replace("tp = 8", "tp = 0")
    with pytest.raises(InvalidInput) as caught:
        draft(read_text(text, file="plan.toml"))
    assert caught.value.findings[0].key == "plan.tp"


def test_the_table_has_every_field():
    table = framework("meshwright").table
    names = {field.name for field in table.fields}
    assert {f"plan.{name}" for name in FIELDS} <= names
    for noun, prefix in ((Loading, "loading"), (Runtime, "runtime")):
        assert {f"workload.{prefix}.{f.name}" for f in fields(noun)} <= names, Path(prefix)
