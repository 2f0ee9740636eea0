"""plan.toml: what is written reads back equal; all mistakes are reported, with their lines."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.hardware.cluster import Cluster, Gpu, Host, Link
from meshwright.model.architecture import Attention, Block, BlockRun, Experts, Mlp, Model
from meshwright.plan.file import parse_job, read_job, write_job
from meshwright.plan.job import Job, Loading, Runtime, Workload
from meshwright.plan.plan import Plan, RecomputeModule, Schedule
from meshwright.plan.words import CHOICES, FIELDS, MOST

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
sizes = st.integers(1, 10**6)
rates = st.floats(1e-3, 1e17)


def built(noun, **given_strategies):
    """Random `noun`: given strategies, and others from the annotations of the fields."""
    by_type = {"bool": st.booleans(), "str": texts, "int": sizes, "float": rates}
    strategies = {
        f.name: by_type[f.type] if f.type in by_type else st.none() | by_type[f.type[:-7]]
        for f in dataclasses.fields(noun)
        if f.name not in given_strategies
        and (f.type in by_type or str(f.type).removesuffix(" | None") in by_type)
    }
    return st.builds(noun, **strategies, **given_strategies)


blocks = st.builds(
    BlockRun,
    count=sizes,
    block=built(
        Block, attention=built(Attention), feed_forward=st.one_of(built(Mlp), built(Experts))
    ),
)
models = built(
    Model,
    runs=st.lists(blocks, min_size=1, max_size=2).map(tuple),
    mtp=st.lists(blocks, max_size=1).map(tuple),
    extra_parameters=st.dictionaries(texts, sizes, max_size=2).map(lambda d: tuple(d.items())),
)
clusters = built(
    Cluster,
    gpu=built(
        Gpu,
        peak_flops=st.dictionaries(texts, rates, max_size=2),
        aliases=st.lists(texts, max_size=2).map(tuple),
    ),
    links=st.lists(built(Link), max_size=2).map(tuple),
    host=built(Host),
)
workloads = built(
    Workload,
    seq_len=sizes,
    global_batch_size=sizes,
    loading=built(Loading),
    runtime=built(
        Runtime,
        environment=st.dictionaries(texts, texts, max_size=2).map(lambda d: tuple(d.items())),
    ),
)


def plan_field(name):
    default = FIELDS[name]
    if name in CHOICES:
        return st.sampled_from(sorted(set(CHOICES[name].values())))
    if name == "recompute_modules":
        return st.integers(0, 2 * max(RecomputeModule) - 1)
    if name == "layout":
        return st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple)
    if name == "zero_stage":
        return st.integers(0, 3)
    if name in MOST and not isinstance(default, float):
        return st.integers(1, MOST[name])
    if isinstance(default, bool):
        return st.booleans()
    return st.floats(0, 1) if isinstance(default, float) else st.integers(1, 4096)


plans = st.builds(Plan, **{name: plan_field(name) for name in FIELDS})
jobs = st.builds(Job, model=models, cluster=clusters, workload=workloads, plan=plans, stack=texts)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(jobs)
def test_what_is_written_reads_back_equal(job):
    assert parse_job(write_job(job)) == job


GOOD = """
[model]
model_type = "llama"
hidden_size = 4096
num_hidden_layers = 32
num_attention_heads = 32
num_key_value_heads = 8
intermediate_size = 14336
vocab_size = 128256

[cluster]
gpu = "H100:8"
nodes = 8

[workload]
seq_len = 8192
global_batch = "4Mtok"
train_tokens = "15T"

[plan]
tp = 4
pp = 2
vpp = 4
schedule = "interleaved"
recompute = "selective"
recompute_modules = ["core-attention", "mlp"]
"""


def test_reads_what_a_person_writes():
    job = parse_job(GOOD)
    assert job.model.num_hidden_layers == 32
    assert job.cluster.num_gpus == 64
    assert job.workload.global_batch_size == 512
    assert job.workload.train_tokens == 15e12
    assert job.plan.dp == 8
    assert job.plan.schedule == Schedule.ONE_F_ONE_B
    assert job.plan.recompute_modules == RecomputeModule.CORE_ATTENTION | RecomputeModule.MLP
    assert job.stack == "default"


def test_catalogue_clusters_go_by_name():
    text = write_job(parse_job(GOOD))
    assert 'gpu = "H100' in text or "H100" in text.split("[cluster]")[1].split("\n")[1]
    assert "[[cluster.links]]" not in text
    assert parse_job(text) == parse_job(GOOD)


def test_a_stated_price_survives():
    job = parse_job(GOOD.replace("nodes = 8", "nodes = 8\nprice_per_gpu_hour = 1.25"))
    assert job.cluster.price_per_gpu_hour == 1.25
    assert parse_job(write_job(job)) == job


def findings(text):
    with pytest.raises(InvalidInput) as caught:
        parse_job(text, file="p.toml")
    return {f.key: f for f in caught.value.findings}


def test_every_mistake_is_reported_at_once_with_its_line():
    found = findings(
        GOOD.replace("seq_len = 8192", 'seq_len = "long"')
        .replace("tp = 4", "tq = 4\ntp = 4.5")
        .replace('"interleaved"', '"interleavd"')
        .replace("hidden_size = 4096", "hidden_size = -4096")
        .replace('"H100:8"', '"H1000:8"')
    )
    assert found["workload.seq_len"].reason == "is not a whole number"
    assert found["workload.seq_len"].line == 16
    assert "tp" in found["plan.tq"].hint
    assert found["plan.tp"].value == 4.5
    assert found["plan.schedule"].hint == "did you mean interleaved?"
    assert found["model.hidden_size"].line == 4
    assert found["model.hidden_size"].value == -4096
    assert "H100" in found["cluster.gpu"].hint
    assert all(f.file == "p.toml" and f.reason for f in found.values())


@pytest.mark.parametrize(
    ("before", "after", "key", "says"),
    [
        ("tp = 4", "tp = 3", "plan", "64 GPUs"),
        ("tp = 4", "tp = 0", "plan.tp", "between 1"),
        ("tp = 4", "tp = true", "plan.tp", "whole number"),
        ("vpp = 4", "", "plan.schedule", "vpp"),
        ('"4Mtok"', '"4M"', "workload.global_batch", "of what"),
        ('"4Mtok"', "-3", "workload.global_batch", "between 1"),
        ('"4Mtok"', '"-4Mtok"', "workload.global_batch", "tokens"),
        ('"15T"', "nan", "workload.train_tokens", "tokens"),
        ('"15T"', "0", "workload.train_tokens", "positive"),
        ("nodes = 8", "nodes = 0", "cluster.nodes", "from 1"),
        ("nodes = 8", 'fabirc = "x"', "cluster.fabirc", "no key"),
        ("[workload]", "[wrokload]", "wrokload", "no key"),
        ('["core-attention", "mlp"]', '["mpl"]', "plan.recompute_modules", "choices"),
        ("hidden_size = 4096", "", "model.hidden_size", "missing"),
        ("[plan]", "stack = 3\n[plan]", "workload.stack", "no key"),
    ],
)
def test_one_mistake(before, after, key, says):
    found = findings(GOOD.replace(before, after))
    assert says in found[key].reason


def test_a_model_that_nothing_describes_is_told_how_one_is_named():
    before, model = GOOD.split("[model]")
    rest = model[model.index("[cluster]") :]
    found = findings(f'{before}[model]\nconfig = "config.json"\n{rest}')
    assert set(found) == {"model.name"}
    assert 'path = "config.json"' in found["model.name"].hint


def test_a_model_written_out_with_absurd_figures_is_refused():
    job = parse_job(GOOD)
    text = write_job(job).replace("hidden_size = 4096", "hidden_size = 0")
    assert "positive" in findings(text)["model.hidden_size"].reason


def test_paths_count_from_the_plan_file(tmp_path):
    (tmp_path / "plan.toml").write_text('[model]\npath = "none.json"\n' + GOOD.split("848")[0])
    with pytest.raises(InvalidInput):
        read_job(tmp_path / "plan.toml")


def test_json_and_yaml_of_the_same_shape_are_read(tmp_path):
    import json
    import tomllib

    import yaml

    data = tomllib.loads(GOOD)
    (tmp_path / "plan.json").write_text(json.dumps(data))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(data))
    expected = parse_job(GOOD)
    assert read_job(tmp_path / "plan.json") == expected
    assert read_job(tmp_path / "plan.yaml") == expected


@pytest.mark.parametrize("content", ["[1, 2]", "{}", '{"hidden_size": 4096}', "3"])
def test_what_is_no_plan_file_is_told_so_once(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        read_job(path)
    (finding,) = caught.value.findings
    assert "is no plan file" in finding.message
    assert "--write plan.toml" in finding.hint


@pytest.mark.parametrize("section", ["model", "cluster", "workload"])
def test_an_empty_section_is_a_missing_one(section):
    import tomllib

    from meshwright.base.encode import to_toml

    found = findings(to_toml({**tomllib.loads(GOOD), section: {}}))
    assert found[section].reason == "is missing"


def test_an_empty_plan_is_all_defaults():
    text = GOOD.split("[plan]")[0] + "[plan]\n"
    assert parse_job(text).plan == Plan(dp=64)
