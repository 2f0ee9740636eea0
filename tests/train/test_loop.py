"""Whole runs on forked ranks: what is trained, told, kept and gone on with."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")  # the first optimizer would import it in every rank

from meshwright.train import loop  # noqa: E402
from meshwright.train.local import RankFailed, run_ranks  # noqa: E402
from meshwright.train.settings import (  # noqa: E402
    Feed,
    Guard,
    Recipe,
    Run,
    Saving,
    Spec,
    Telling,
)
from meshwright.train.telling.metrics import METRICS, read_metrics  # noqa: E402
from meshwright.train.telling.profiling import FEEDING  # noqa: E402
from meshwright.train.telling.summary import read_summary  # noqa: E402
from meshwright.train.watch.heart import Heart  # noqa: E402
from meshwright.train.watch.signals import Stop  # noqa: E402

CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
PLAN = """
[model]
{model}
[cluster]
gpu = "H100:{ranks}"
nodes = 1
[workload]
seq_len = 16
global_batch = 4
[plan]
precision = "fp32"
{plan}
"""
ONE = ("micro_batch_size = 2", 1)
FSDP2 = ("dp = 2\nzero_stage = 3", 2)
TP2 = ("tp = 2", 2)
PP2_V = ('pp = 2\nvpp = 1\nschedule = "1f1b"', 2)
CP2 = ('cp = 2\ncontext_parallel = "ulysses"', 2)


def spec_of(out: Path, plan=ONE, *, steps=4, **changes) -> Spec:
    model = "\n".join(f"{key} = {json.dumps(value)}" for key, value in CONFIG.items())
    out.mkdir(parents=True, exist_ok=True)
    run = Run(
        steps=steps,
        out=str(out),
        recipe=Recipe(learning_rate=1e-2, schedule="constant"),
        saving=Saving(every_steps=-1, last=False),
        telling=Telling(every_steps=1000),
    )
    text = PLAN.format(model=model, ranks=plan[1], plan=plan[0])
    return Spec(plan_toml=text, config=CONFIG, run=replace(run, **changes))


def rank(spec: Spec, *, stop_after: int = 0, attempt: int = 0) -> bool:
    stop = Stopping(stop_after) if stop_after else Stop()
    heart = Heart.here({})
    device = torch.device("cpu")
    return loop.train(spec, device=device, heart=heart, stop=stop, attempt=attempt)


class Stopping:
    """Is asked to stop on rank 0, while a step runs."""

    def __init__(self, step: int) -> None:
        self._left = step

    @property
    def asked(self) -> bool:
        self._left -= 1
        return self._left < 0 and torch.distributed.get_rank() == 0


def ranks(spec: Spec, plan=ONE, **given) -> list[bool]:
    return run_ranks(_called, plan[1], spec, given, timeout_s=120)


def _called(spec: Spec, given: dict) -> bool:
    return rank(spec, **given)


def metrics(spec: Spec) -> list[dict]:
    return read_metrics(Path(spec.run.out) / METRICS)


def losses(spec: Spec) -> list[float]:
    return [record["loss"] for record in metrics(spec)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Spec:
    """Six steps without a break on one rank, with an evaluation after every third."""
    feed = Feed(evaluate_every=3, evaluate_steps=2)
    spec = spec_of(tmp_path_factory.mktemp("one"), steps=6, feed=feed)
    assert ranks(spec) == [True]
    return spec


def test_the_loss_falls_and_every_sample_is_told_once(reference):
    found = metrics(reference)
    assert [r["step"] for r in found] == list(range(1, 7))
    assert [(r["first_sample"], r["last_sample"]) for r in found] == [
        (4 * n, 4 * n + 4) for n in range(6)
    ]
    assert found[-1]["loss"] < found[0]["loss"] - 0.3
    assert all(r["tokens"] == r["labels"] == 64 for r in found)
    assert [r["step"] for r in found if "evaluation_loss" in r] == [3, 6]


def test_the_summary_says_what_the_metrics_do(reference):
    summary, found = read_summary(Path(reference.run.out)), metrics(reference)
    assert summary.ended == "done"
    assert summary.steps_here == summary.step == 6
    assert (summary.first_loss, summary.loss) == (found[0]["loss"], found[-1]["loss"])
    assert summary.evaluation_loss == found[-1]["evaluation_loss"]
    assert summary.consumed_samples == 24
    assert summary.step_s == pytest.approx(sum(r["step_s"] for r in found[1:]) / 5)
    assert summary.mfu is None  # nothing says what the machine can do
    assert summary.checkpoints == ()


@pytest.mark.parametrize("plan", [FSDP2, TP2, PP2_V, CP2], ids=lambda plan: plan[0][:4])
def test_every_layout_trains_alike(reference, tmp_path, plan):
    spec = spec_of(tmp_path, plan, steps=3, feed=reference.run.feed)
    ranks(spec, plan)
    assert losses(spec) == pytest.approx(losses(reference)[:3], rel=1e-5)
    evaluated = metrics(reference)[2]["evaluation_loss"]
    assert metrics(spec)[-1]["evaluation_loss"] == pytest.approx(evaluated, rel=1e-5)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory, reference) -> Path:
    """A run that was asked to stop in its third step."""
    spec = spec_of(tmp_path_factory.mktemp("half"), steps=6, saving=Saving(every_steps=-1))
    assert ranks(spec, stop_after=2) == [False]
    assert losses(spec) == losses(reference)[:3]
    assert read_summary(Path(spec.run.out)).ended == "stopped"
    return Path(spec.run.out)


def resumed(halfway: Path, out: Path, plan) -> Spec:
    """The run in a copy of its folder, gone on with under a plan."""
    import shutil

    shutil.copytree(halfway, out, dirs_exist_ok=True)
    spec = spec_of(out, plan, steps=6, resume=True, saving=Saving(every_steps=2))
    assert all(ranks(spec, plan))
    return spec


def test_asked_to_stop_it_saves_and_goes_on_as_if_nothing_had_been(reference, halfway, tmp_path):
    spec = resumed(halfway, tmp_path, ONE)
    assert losses(spec) == losses(reference)
    assert read_summary(tmp_path).resumed_from == 3
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-3", "step-5", "step-6"]


@pytest.mark.parametrize("plan", [FSDP2, PP2_V], ids=lambda plan: plan[0][:4])
def test_another_plan_goes_on_with_the_same_samples(reference, halfway, tmp_path, plan):
    spec = resumed(halfway, tmp_path, plan)
    assert losses(spec) == pytest.approx(losses(reference), rel=1e-5)
    samples = [(r["first_sample"], r["last_sample"]) for r in metrics(spec)]
    assert samples == [(4 * n, 4 * n + 4) for n in range(6)]


def test_a_later_attempt_goes_on_though_nobody_said_resume(reference, halfway, tmp_path):
    import shutil

    shutil.copytree(halfway, tmp_path, dirs_exist_ok=True)
    spec = spec_of(tmp_path, steps=4)
    ranks(spec, attempt=1)
    assert losses(spec) == losses(reference)[:4]
    assert [r["attempt"] for r in metrics(spec)] == [0, 0, 0, 1]


def test_other_data_is_not_gone_on_with(halfway, tmp_path):
    import shutil

    shutil.copytree(halfway, tmp_path, dirs_exist_ok=True)
    with pytest.raises(RankFailed, match="trained on other data: seed was 0 and is 5"):
        ranks(spec_of(tmp_path, steps=6, resume=True, seed=5))


# What is no number


def spoiled(spec: Spec) -> bool:
    """A run whose loss is no number from the second step on."""
    step = loop.train_step

    def broken(engine, optimizers, micro_batches, *, clip_norm):
        outcome = step(engine, optimizers, micro_batches, clip_norm=clip_norm)
        broken.calls += 1
        if broken.calls < 2:
            return outcome
        return replace(outcome, loss=float("nan"), updated=False)

    broken.calls = 0
    loop.train_step = broken
    return rank(spec)


def test_updates_that_are_no_numbers_are_left_out_up_to_a_limit(tmp_path):
    spec = spec_of(tmp_path, steps=20, guard=Guard(nonfinite="skip", nonfinite_limit=3))
    with pytest.raises(RankFailed, match="4 updates in a row were not finite"):
        run_ranks(spoiled, 1, spec)
    found = metrics(spec)
    assert [r["updated"] for r in found] == [True, False, False, False]
    assert "loss" not in found[-1]


def test_a_run_stops_at_the_first_where_it_is_told_to(tmp_path):
    spec = spec_of(tmp_path, steps=20, guard=Guard(nonfinite="stop"))
    with pytest.raises(RankFailed, match="at step 2 are not finite"):
        run_ranks(spoiled, 1, spec)


# Traces and boards


def test_a_window_of_steps_is_traced_by_every_rank(tmp_path):
    telling = Telling(every_steps=1000, profile=(2, 3), tensorboard=True)
    spec = spec_of(tmp_path, FSDP2, steps=4, telling=telling)
    ranks(spec, FSDP2)
    traces = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert traces == [f"steps-2-3.rank-{r}.json.gz" for r in (0, 1)]
    with gzip.open(tmp_path / "traces" / traces[0]) as file:
        trace = json.load(file)
    own = trace["meshwright"]
    assert own["computes_on"] == "cpu"
    assert base64.b64decode(own["plan_toml_base64"]).decode() == spec.plan_toml
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"aten::mm", FEEDING} <= names
    steps = sorted(name for name in names if str(name).startswith("ProfilerStep#"))
    assert steps == ["ProfilerStep#2", "ProfilerStep#3"]
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))
