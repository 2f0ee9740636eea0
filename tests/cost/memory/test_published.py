"""Figures that others published: Korthikanti's formulas and tables, Megatron's report, B200 peaks.

Sources: arXiv 2205.05198 (table 2 and figure 1), Megatron-LM's theoretical memory report and the
measured peaks of MooreThreads/SimuMax@4dcaae51, docs/b200/b200_release_v1.2_summary.json.
"""

from __future__ import annotations

import pytest

from meshwright.cost.memory import MemoryStack, memory, memory_stack
from meshwright.model.architecture import Model
from meshwright.model.generic import decoder
from meshwright.plan.plan import Plan, Recompute

from .jobs import GIB, gpt, job

DROPOUT = MemoryStack(dropout=True, workspace_gib=0.0)
SELECTIVE = int(Recompute.SELECTIVE)
FULL = int(Recompute.FULL)


def layer_activations(plan: Plan, *, hidden: int, heads: int) -> float:
    """Bytes that one GPT layer keeps, for a micro-batch of one sequence of 2048."""
    one = memory(job(gpt(2, hidden, heads), plan, batch=1), DROPOUT).terms
    two = memory(job(gpt(3, hidden, heads), plan, batch=1), DROPOUT).terms
    return float(two["memory.stage0.activations"]) - float(one["memory.stage0.activations"])


@pytest.mark.parametrize(
    ("plan", "per_token"),
    [
        (Plan(flash_attention=False), "34 + score"),
        (Plan(tp=8, sequence_parallel=False, flash_attention=False), "10 + 24/t + score/t"),
        (Plan(tp=8, flash_attention=False), "34/t + score/t"),
        (Plan(tp=8, flash_attention=False, recompute=SELECTIVE), "34/t"),
        (Plan(recompute=FULL), "2"),
    ],
)
def test_table_2_of_korthikanti(plan: Plan, per_token: str) -> None:
    hidden, heads, seq_len, t = 12288, 96, 2048, int(plan.tp)
    score = 5 * heads * seq_len / hidden
    want = eval(per_token, {"score": score, "t": t})
    got = layer_activations(plan, hidden=hidden, heads=heads)
    assert got == pytest.approx(seq_len * hidden * want, rel=1e-3)


def test_175b_weights_and_states_as_published() -> None:
    plan = Plan(tp=8, pp=8, zero_stage=0, vpp=3, recompute=SELECTIVE, flash_attention=False)
    terms = memory(job(gpt(96, 12288, 96, positions=0), plan), DROPOUT).terms
    states = sum(
        float(terms[f"memory.stage0.{name}"]) for name in ("weights", "gradients", "optimizer")
    )
    assert states / GIB == pytest.approx(46.89, rel=0.005)  # Megatron's report
    assert states / GIB == pytest.approx(45.56, rel=0.03)  # figure 1
    assert float(terms["memory.stage0.activations"]) / GIB == pytest.approx(12.35, rel=0.03)


def test_175b_with_neither_recompute_nor_sequence_parallelism_as_published() -> None:
    plan = Plan(tp=8, pp=8, zero_stage=0, vpp=3, flash_attention=False, sequence_parallel=False)
    terms = memory(job(gpt(96, 12288, 96, positions=0), plan), DROPOUT).terms
    assert float(terms["memory.stage0.activations"]) / GIB == pytest.approx(66.84, rel=0.02)


def llama_70b(layers: int) -> Model:
    return decoder(
        layers=layers,
        hidden_size=8192,
        heads=64,
        kv_heads=8,
        vocab_size=128256,
        intermediate_size=28672,
    )


def llama_405b(layers: int) -> Model:
    return decoder(
        layers=layers,
        hidden_size=16384,
        heads=128,
        kv_heads=8,
        vocab_size=128256,
        intermediate_size=53248,
    )


def deepseek_v3(layers: int) -> Model:
    return decoder(
        layers=layers,
        hidden_size=7168,
        heads=128,
        vocab_size=129280,
        intermediate_size=18432,
        head_dim=192,
        v_head_dim=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        experts=256,
        top_k=8,
        expert_intermediate_size=2048,
        shared_intermediate_size=2048,
        moe_layers=layers - 1,
    )


B200 = [
    (llama_70b(12), {"pp": 2, "dp": 4}, 4096, (66.55, 62.97)),
    (llama_70b(12), {"tp": 2, "dp": 4}, 4096, (60.68,)),
    (llama_70b(12), {"tp": 4, "dp": 2}, 4096, (39.07,)),
    (llama_70b(12), {"tp": 8}, 4096, (28.29,)),
    (llama_405b(4), {"pp": 2, "dp": 4}, 4096, (87.08, 86.61)),
    (llama_405b(4), {"tp": 2, "dp": 4}, 4096, (81.59,)),
    (llama_405b(4), {"tp": 4, "dp": 2}, 4096, (52.89,)),
    (llama_405b(4), {"tp": 8}, 4096, (38.57,)),
    (llama_70b(12), {"tp": 2, "cp": 4}, 32768, (68.43,)),
    (llama_70b(12), {"cp": 8}, 32768, (104.51,)),
    (llama_405b(4), {"tp": 2, "cp": 4}, 32768, (87.03,)),
    (llama_405b(4), {"cp": 8}, 32768, (139.22,)),
    (llama_70b(12), {"tp": 2, "cp": 4}, 131072, (112.67,)),
    (llama_70b(12), {"cp": 8}, 131072, (147.99,)),
    (llama_405b(4), {"tp": 2, "cp": 4}, 131072, (118.13,)),
    (deepseek_v3(4), {"ep": 8, "dp": 8}, 4096, (104.30,)),
    (deepseek_v3(4), {"ep": 4, "pp": 2, "dp": 4}, 4096, (71.24, 114.00)),
]


@pytest.mark.parametrize(("model", "mesh", "seq_len", "measured"), B200)
def test_peaks_measured_on_b200(
    model: Model, mesh: dict[str, int], seq_len: int, measured: tuple[float, ...]
) -> None:
    plan = Plan(**mesh, zero_stage=1, fused_loss=True)
    batch = 4 * int(plan.dp)
    result = memory(job(model, plan, seq_len=seq_len, batch=batch, stack="megatron-lm-2025"))
    for rank, peak_gib in enumerate(measured):
        predicted = float(result.terms[f"memory.stage{rank}.peak"]) / GIB
        assert predicted == pytest.approx(peak_gib, rel=0.03)
    assert max(measured) < float(result.upper_bytes) / GIB < 1.12 * max(measured)


def test_stack_names_find_their_longest_prefix() -> None:
    assert memory_stack("megatron-deepspeed-2022") is memory_stack("megatron-deepspeed")
    assert memory_stack("megatron-bridge-2026") is memory_stack("megatron")
    assert memory_stack("never heard of") is memory_stack("default")
