"""Megatron's demands: versions as measured, arithmetic against brute force, any value survives."""

from __future__ import annotations

from typing import Any

import pytest
from demand_examples import judged_knobs, stated_value
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.framework import framework
from meshwright.frameworks.knobs import Knobs
from meshwright.frameworks.read import read_text
from meshwright.rules.demand import Demand, all_demands, applies, message, verdict
from meshwright.rules.framework.megatron import layers, lengths, resume
from meshwright.rules.lint import lint

MEGATRON = [d for d in all_demands() if ".megatron" in d.condition.__module__]
LM = framework("megatron-lm")
VERSIONS = ("0.12.3", "0.14.0", "0.16.1", "0.17.1", "0.18.2", "0.19.2")

# What the checks of each wheel did with a configuration that breaks them: x refused, . accepted or
# no such field. Versions as above.
MEASURED = {
    "CMP123": ".xxxxx",
    "CMP124": "..xxxx",
    "CMP130": "..xxxx",
    "CMP133": "..xxxx",
    "CMP135": ".xxxxx",
    "CMP205": "..xxxx",
    "CMP305": ".xxxxx",
    "CMP311": "..xxxx",
    "COM103": ".....x",
    "COM105": "....xx",
    "COM302": "....xx",
    "DAT138": "....xx",
    "MOD103": "xx....",
    "MOD128": ".xxxxx",
    "MOD191": ".xxxxx",
    "MOD216": ".....x",
    "MOD308": ".xxxxx",
    "MOD309": ".xxxxx",
    "MOD310": ".xxxxx",
    "MOD311": ".xxxxx",
    "MOD316": "..xxxx",
}


def _of(code: str) -> list[Demand]:
    return [d for d in MEGATRON if d.code == code]


@pytest.mark.parametrize("code", MEASURED)
def test_a_demand_holds_for_the_versions_that_were_seen_to_refuse(code: str) -> None:
    seen = "".join(
        "x" if any(applies(d, LM, version) for d in _of(code)) else "." for version in VERSIONS
    )
    assert seen == MEASURED[code]


@pytest.mark.parametrize("code", ["CMP102", "CMP308", "MOD116", "MOD156", "MOD313", "DAT360"])
def test_versions_share_a_code_without_overlap(code: str) -> None:
    for version in ("0.5", "0.9", *VERSIONS):
        assert sum(applies(d, LM, version) for d in _of(code)) <= 1


_words = st.sampled_from(["", "none", "full", "a,b", "Et*3|L", "[0]*2+[1]*3", "{tp}", "1" * 40])
_anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.floats(allow_nan=True),
    _words,
    st.lists(st.one_of(st.integers(-2, 9), _words, st.none()), max_size=4),
)
_VARIABLES = sorted(
    {"tp", "pp", "cp", "ep", "etp", "vpp", "num_hidden_layers", "num_experts", "doc_lens"}
    | {"moe_layer_freq", "mtp_num_layers", "aux_loss_coeff", "nccl_algo", "recompute_modules"}
    | {"vocab_size", "vocab_extra_ids_list", "ckpt_load", "num_layers_per_virtual_stage"}
    | {"torch_version", "load_balancing", "cp_comm_type", "no_rope_freq", "num_microbatches"}
)


@given(st.dictionaries(st.sampled_from(_VARIABLES), _anything))
def test_no_value_breaks_a_demand(values: dict[str, Any]) -> None:
    stated = {name: stated_value(name, value) for name, value in values.items()}
    for demand in MEGATRON:
        knobs = Knobs("megatron-lm", "", stated, facts={})
        if verdict(demand, knobs):
            assert message(demand, knobs)


# Arithmetic


@given(tp=st.integers(1, 8), cp=st.integers(1, 8), split=st.booleans())
def test_the_sequence_divisor_is_the_least_that_cuts_evenly(tp: int, cp: int, split: bool) -> None:
    def cuts_evenly(length: int) -> bool:
        chunks = 2 * cp if cp > 1 else 1
        return length % chunks == 0 and length // cp % (tp if split else 1) == 0

    least = next(n for n in range(cp, 1000, cp) if cuts_evenly(n))
    for stated in range(1, 2 * least + 1):
        values = {
            "make_sequence_length_divisible_by": stated,
            "tp": tp,
            "cp": cp,
            "sequence_parallel": split,
        }
        fires = judged_knobs(lengths.padding_does_not_reach_the_ranks, values).fires
        assert fires is (stated % least != 0)


@given(
    pp=st.sampled_from([2, 4]),
    vpp=st.sampled_from([1, 2]),
    routed=st.lists(st.integers(0, 1), min_size=8, max_size=8),
)
def test_a_stage_without_experts_is_found(pp: int, vpp: int, routed: list[int]) -> None:
    if not any(routed):
        return
    length = 8 // (pp * vpp)
    held = {
        rank: any(
            routed[(chunk * pp + rank) * length + i] for chunk in range(vpp) for i in range(length)
        )
        for rank in range(pp)
    }
    values = {
        "num_experts": 8,
        "mtp_num_layers": 1,
        "pp": pp,
        "vpp": vpp,
        "num_hidden_layers": 8,
        "moe_layer_freq": routed,
        "aux_loss_coeff": 0.01,
    }
    fires = judged_knobs(layers.losses_of_unequal_length, values).fires
    assert fires is (not all(held.values()))


@given(count=st.integers(1, 96), pp=st.integers(1, 12), chunk=st.integers(1, 12))
def test_layers_left_over_are_those_not_built(count: int, pp: int, chunk: int) -> None:
    values = {"num_hidden_layers": count, "pp": pp, "num_layers_per_virtual_stage": chunk}
    found = judged_knobs(layers.chunks_leave_layers_over, values)
    built = (count // pp // chunk) * chunk * pp
    assert found.fires is (built != count // pp * pp)
    if found.fires:
        assert f"{built} of {count} layers" in message(layers.chunks_leave_layers_over, found.knobs)


@given(size=st.integers(1000, 200_000), added=st.integers(1, 4), tp=st.sampled_from([1, 2, 8]))
def test_added_tokens_matter_where_they_open_a_block(size: int, added: int, tp: int) -> None:
    values = {
        "ckpt_load": "checkpoint",
        "vocab_extra_ids_list": ",".join("abcd"[:added]),
        "vocab_size": size,
        "tp": tp,
    }
    room = -size % (128 * tp)
    assert judged_knobs(resume.added_tokens_need_rows, values).fires is (added > room)


# Whole configurations


def _codes(text: str, version: str = "") -> set[str]:
    found = lint(read_text(text, framework="megatron-lm", version=version), predict=False)
    return {f.code for f in found.findings}


def test_an_ordinary_launch_breaks_no_demand() -> None:
    text = """export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \\
  --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 \\
  --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear \\
  --untie-embeddings-and-output-weights --seq-length 4096 --max-position-embeddings 4096 \\
  --vocab-size 128256 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 \\
  --num-layers-per-virtual-pipeline-stage 5 --sequence-parallel --use-distributed-optimizer \\
  --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 --global-batch-size 128 \\
  --bf16 --train-iters 1000 --lr-warmup-iters 10 --save checkpoints --save-interval 500 \\
  --data-path corpus
"""
    demands = {d.code for d in MEGATRON}
    found = lint(read_text(text, framework="megatron-lm"), predict=False).findings
    serious = {f.code for f in found if f.severity.label in ("error", "warning")}
    assert not serious & demands, [f.message for f in found]


def test_a_ramp_is_judged_by_the_version() -> None:
    text = "--rampup-batch-size 32 32 100000 --train-samples 512000 --global-batch-size 256"
    assert "DAT135" in _codes(text, "0.19")
    assert "DAT135" not in _codes(text, "0.17")
    assert "DAT136" in _codes(text.replace("samples 512000", "iters 1000"), "0.17")


def test_an_unreadable_value_is_not_judged() -> None:
    assert "CMP201" in _codes("--cpu-offloading-num-layers 4 --pipeline-model-parallel-size 2")
    text = (
        "torchrun pretrain_gpt.py --cpu-offloading-num-layers 4 --pipeline-model-parallel-size $(p)"
    )
    assert "CMP201" not in _codes(text)


def test_a_refusal_stands_alone_under_its_code() -> None:
    text = (
        "--num-layers 46 --hidden-size 4096 --num-attention-heads 32 --num-experts 8 "
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4"
    )
    found = lint(read_text(text, framework="megatron-lm"), predict=False).findings
    for code in ("MOD113", "MOD154"):
        assert [f.severity.label for f in found if f.code == code] == ["error"]


def test_what_older_releases_mind_is_said_only_where_newer_do_not() -> None:
    moved = (
        "--load checkpoints --use-distributed-optimizer --pipeline-model-parallel-size 1\n"
        "# saved with: --pipeline-model-parallel-size 4 --expert-model-parallel-size 2"
    )
    found = lint(read_text(moved, framework="megatron-lm"), predict=False).findings
    assert [f.severity.label for f in found if f.code == "DAT360"] == ["error"]
    biased = "--hidden-size 4096 --num-experts 8"
    found = lint(read_text(biased, framework="megatron-lm"), predict=False).findings
    assert [f.severity.label for f in found if f.code == "MOD156"] == ["info"]
