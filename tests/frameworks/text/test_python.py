"""Python configurations: what their code states, read without running it."""

from __future__ import annotations

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.frameworks.setting import UNKNOWN, Source
from meshwright.frameworks.text.python import parse_python, parse_recipe, recipes


def source(text):
    return Source(file="f.py", text=text, syntax="python")


def stated(text):
    return {s.name: s.value for s in parse_python(source(text)).settings}


TITAN = """from titan import Trainer, Training, registry

def debug(steps: int = 5):
    return Trainer.Config(training=Training(seq_len=2 * 1024, steps=steps), spec=registry("8B"))

def big(tp: int = 4):
    cfg = debug(steps=9)
    cfg.training.seq_len = 8192
    cfg.parallelism.tp = tp
    return cfg

def other():
    return Trainer.Config(name="x")
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("par = dict(zero1=8, pp=dict(size=2))", {"par.zero1": 8, "par.pp.size": 2}),
        ("plugin = HybridParallelPlugin(tp_size=2)", {"tp_size": 2}),
        ("S = 2048\ndata = dict(seq_len=S * 2)", {"S": 2048, "data.seq_len": 4096}),
        ("ds_config = {'zero': {'stage': 3}}", {"zero.stage": 3}),
        ("FSDP(m, t=torch.bfloat16, n=len(x))", {"t": "torch.bfloat16", "n": UNKNOWN}),
        ("p = A(x=1)\nc = B(part=p)", {"part.x": 1}),
        ("n = int(os.environ.get('N', '8'))", {"n": 8}),
        ("args = TrainingArguments(lr=-1e-5, l=[1, 2])", {"lr": -1e-5, "l": [1, 2]}),
    ],
)  # fmt: skip
def test_modules(text, expected):
    assert stated(text) == expected


def test_recipes_build_on_one_another():
    assert recipes(source(TITAN)) == ("debug", "big", "other")
    found = {s.name: s.value for s in parse_recipe(source(TITAN), "big").settings}
    assert found == {
        "training.seq_len": 8192,
        "training.steps": 9,
        "spec": 'registry("8B")',
        "parallelism.tp": 4,
    }
    result = parse_python(source(TITAN))
    assert {s.name for s in result.settings} == {"training.seq_len", "training.steps", "spec"}
    assert "one of 3 recipes" in result.findings[0].message


def test_a_value_is_where_it_is_stated():
    found = {s.name: s for s in parse_recipe(source(TITAN), "big").settings}
    where = found["parallelism.tp"].where
    assert TITAN[where.start - 5 : where.end] == "int = 4"[-6:]


def test_nothing_runs(tmp_path):
    marker = tmp_path / "ran"
    text = f"open({str(marker)!r}, 'w')\nx = dict(a=open({str(marker)!r}, 'w'))"
    assert set(stated(text)) == {"x.a"}
    assert not marker.exists()


def test_no_python_is_a_finding_with_its_line():
    with pytest.raises(InvalidInput) as caught:
        parse_python(source("x = 1\ny = (\n"))
    assert caught.value.findings[0].line == 2
