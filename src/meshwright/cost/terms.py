"""Named terms of a prediction: value, unit, formula, operands, source and kind of evidence."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One number of a prediction and where it comes from.

    `evidence` is "exact" (arithmetic on the model and the plan), "measured" (kernel tables),
    "fitted" (to published runs), "scaled" (from the nearest kin) or "assumed".
    """

    value: float
    unit: str
    formula: str = ""
    source: str = ""
    evidence: str = ""
    operands: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a term is, whatever its value."""

    formula: str
    source: str
    evidence: str


FIT = "docs/accuracy.md: fitted to published runs"
KERNELS = "aiconfigurator-core 0.12 kernel tables, times the fitted share reached in training"

TIME = {
    "time": Meaning(
        formula="compute + communication + bubble + optimizer + fixed + stall + straggler",
        source="sum of its parts",
        evidence="fitted",
    ),
    "time.compute": Meaning(
        formula="micro-batches * sum of kernels on the slowest pipeline rank",
        source="sum of its parts",
        evidence="measured",
    ),
    "time.compute.matmul": Meaning(
        formula="sum over matrices of forward, input-gradient and weight-gradient products, "
        "each 2*m*n*k / (peak * efficiency(m, n, k))",
        source=KERNELS,
        evidence="measured",
    ),
    "time.compute.attention": Meaning(
        formula="4*b*heads*head_dim*queries*keys/2 (causal) / (peak * efficiency), backward 2.5 "
        "times that; passes over the score matrix where the kernel is not fused",
        source=KERNELS + "; arXiv 2307.08691 for the backward's 2.5",
        evidence="measured",
    ),
    "time.compute.elementwise": Meaning(
        formula="tokens * 2 B * (norms + residuals + rotary + activation widths) * stack factor / "
        "HBM rate",
        source=FIT,
        evidence="fitted",
    ),
    "time.compute.recompute": Meaning(
        formula="forward kernels that run again in the backward pass",
        source="arXiv 2205.05198, section 5",
        evidence="measured",
    ),
    "time.compute.host": Meaning(
        formula="launch time of the host beyond the kernels it launches, and per micro-batch",
        source=FIT,
        evidence="fitted",
    ),
    "time.communication": Meaning(
        formula="exposed communication of all axes", source="sum of its parts", evidence="fitted"
    ),
    "time.communication.tp": Meaning(
        formula="2 all-reduces of tokens*hidden*2 B per layer and pass, less what overlaps; "
        "inside a domain by the link's measured curve, across domains 2*(n-1)/n*bytes / (members * "
        "network rate) + 2*(n-1)*latency",
        source="arXiv 1909.08053, section 3; " + FIT,
        evidence="fitted",
    ),
    "time.communication.cp": Meaning(
        formula="keys and values of other ranks: ring steps beyond the attention they hide behind, "
        "or a whole gather or exchange",
        source="arXiv 2310.01889 (ring), 2309.14509 (all-to-all)",
        evidence="fitted",
    ),
    "time.communication.ep": Meaning(
        formula="2 all-to-alls of tokens/tp*top_k*hidden bytes per routed layer and pass",
        source="arXiv 2006.16668, section 3; " + FIT,
        evidence="fitted",
    ),
    "time.communication.pp": Meaning(
        formula="2 hand-overs of tokens*hidden*2 B per chunk and micro-batch, less what overlaps",
        source="arXiv 2104.04473, section 2.2",
        evidence="fitted",
    ),
    "time.communication.dp": Meaning(
        formula="gradient reduction beyond the last backward pass, parameter gathering beyond the "
        "first forward pass",
        source="arXiv 1910.02054, section 7; " + FIT,
        evidence="fitted",
    ),
    "time.communication.fsdp": Meaning(
        formula="per micro-batch: gather of each layer beyond the one that computes, reduction",
        source="arXiv 2304.11277, section 4; " + FIT,
        evidence="fitted",
    ),
    "time.communication.host": Meaning(
        formula="per micro-batch: saved activations (34 B, under full recompute 2 B, per token, "
        "hidden element and layer) and parameters kept on the host, beyond 0.8 of the pass",
        source="arXiv 2104.07857, section 4",
        evidence="assumed",
    ),
    "time.bubble": Meaning(
        formula="pipeline time - micro-batches * busy time of the slowest rank - hand-overs",
        source="docs/concepts/schedules.md: closed form of the schedule",
        evidence="exact",
    ),
    "time.optimizer": Meaning(
        formula="parameters per rank * bytes of gradients, states and weights moved / HBM rate",
        source=FIT,
        evidence="fitted",
    ),
    "time.fixed": Meaning(
        formula="a constant of the software stack", source=FIT, evidence="fitted"
    ),
    "time.stall": Meaning(
        formula="micro-batches * (allocator retries near full memory + hand-overs on many nodes)",
        source=FIT,
        evidence="fitted",
    ),
    "time.straggler": Meaning(
        formula="share per doubling of nodes * step", source=FIT, evidence="fitted"
    ),
}
