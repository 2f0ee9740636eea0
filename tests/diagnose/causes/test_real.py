"""Causes of real traces: what research/diagnosis.md section 7.2 says that each of them shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from meshwright.diagnose.account import account
from meshwright.diagnose.across.join import across
from meshwright.diagnose.causes import causes, lost_us, principal, summary
from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.pipeline.read import read_pipeline
from meshwright.diagnose.trace.read import read_trace

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "public"
NO_TRACE = {"expected.json"}

# folder -> (principal, causes that are named, causes that are not)
SHOWN = {
    "kineto-resnet50-dataloader0": ("data_processing", {"DAT901"}, {"DAT902", "MOD904"}),
    "kineto-resnet50-dataloader4": ("host_launch", {"MOD901"}, {"DAT901", "DAT902"}),
    "hta-ddp-2xa100-nccl-args": ("host_launch", {"MOD901"}, {"DAT901", "COM907"}),
    "hta-8xa100-recsys-rank3": ("communication", {"COM906"}, {"DAT901"}),
    "hta-2xv100-ddp-many-allreduces": ("host_launch", {"MOD901", "COM907"}, {"DAT901"}),
    "hta-16xa100-cudagraph-rank0": (None, {"CMP913"}, {"MOD901"}),
    "hta-1xv100-compute-bound": ("compute", {"CMP901"}, {"MOD901", "MOD902", "COM906", "DAT901"}),
    "hta-cpu-only-rank34-of-300": ("no_gpu_events", {"HST910"}, {"CMP901"}),
    "hta-no-gpu-events": ("no_gpu_events", {"HST910"}, {"CMP901"}),
    "tracelens-mi300x-ddp-resnet-rank0": ("communication", {"COM906", "MOD908"}, {"MOD901"}),
    "tracelens-h100-timesformer-preprocess": (
        "data_processing",
        {"DAT903", "MOD903"},
        {"MOD901", "HST908"},
    ),
    "tracelens-h100-qwen1.5-0.5b": ("compute", {"MOD902", "CMP901"}, {"MOD901", "MOD903"}),
    "tracelens-mi300x-qwen1.5-0.5b": ("compute", {"CMP901"}, {"MOD903"}),
    "tracelens-b200-tp8-eager": ("host_launch", {"MOD901"}, {"DAT901"}),
    "tracelens-mi210-gpu-only": ("compute", set(), {"MOD901", "DAT901"}),
    "aorta-mi350x-tiny-uncompressed": ("host_launch", {"MOD901"}, {"DAT901"}),
    "param-dlrm-8xv100": ("straggler (rank 7)", {"HST907", "MOD901"}, {"COM906", "CMP905"}),
    "primus-pp8": (
        "pipeline bubble (model structure / schedule), with last-stage imbalance",
        {"MOD904", "MOD906"},
        {"CMP912"},
    ),
    "bytedance-llm-stage-imbalance": (
        "model structure: last pipeline stage 1.6x the others",
        {"MOD906"},
        {"CMP912"},
    ),
    "bytedance-llm-slow-worker": (
        "straggler: one worker (pp 0, dp 0) 2.35x the median",
        {"CMP912"},
        {"MOD905", "MOD906"},
    ),
}
FIRST = {  # what is told first, where the ground truth leaves no doubt
    "kineto-resnet50-dataloader0": "DAT901",
    "tracelens-h100-timesformer-preprocess": "DAT903",
    "tracelens-b200-tp8-eager": "MOD901",
    "hta-ddp-2xa100-nccl-args": "MOD901",
    "tracelens-mi300x-ddp-resnet-rank0": "COM906",
    "param-dlrm-8xv100": "HST907",
    "primus-pp8": "MOD904",
    "bytedance-llm-stage-imbalance": "MOD906",
    "bytedance-llm-slow-worker": "CMP912",
}


@cache
def evidence(folder: str) -> Evidence:
    if not (TRACES / folder).is_dir():
        pytest.skip(f"real traces are not at {TRACES}")
    files = sorted(p for p in (TRACES / folder).glob("*.json*") if p.name not in NO_TRACE)
    if folder.startswith(("bytedance", "primus")):
        named = [p for p in files if not p.name.startswith(("ms-", "mw-"))]
        return Evidence(pipeline=read_pipeline(named))
    ranks = [account(read_trace(p)) for p in files]
    return Evidence(ranks=tuple(ranks), across=across(ranks) if len(ranks) > 1 else None)


@pytest.mark.parametrize("folder", SHOWN)
def test_causes_agree_with_the_ground_truth(folder: str) -> None:
    word, named, silent = SHOWN[folder]
    found = causes(evidence(folder))
    codes = {c.code for c in found}
    assert named <= codes
    assert not silent & codes
    if word is not None:
        assert principal(evidence(folder), found)[0] == word


@pytest.mark.parametrize("folder", FIRST)
def test_the_foremost_cause_comes_first(folder: str) -> None:
    assert causes(evidence(folder))[0].code == FIRST[folder]


@pytest.mark.parametrize("folder", SHOWN)
def test_no_more_is_lost_than_the_step_has(folder: str) -> None:
    case = case_of(evidence(folder))
    found = causes(evidence(folder))
    assert sum(c.lost_us for c in found) <= (lost_us(evidence(folder), found) or 0.0) + 1e-6
    assert (lost_us(evidence(folder), found) or 0.0) <= case.step_us * (1 + 1e-9)


@pytest.mark.parametrize("folder", SHOWN)
def test_three_sentences_are_told(folder: str) -> None:
    sentences = summary(evidence(folder), causes(evidence(folder)))
    assert len(sentences) == 3
    assert all(s.rstrip().endswith(".") for s in sentences)
