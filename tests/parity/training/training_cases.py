"""Plans whose gradients are compared with one process: every axis, pair of axes and schedule.

A case is a family, fields of a plan and a number of micro-batches; `name` reads like the plan.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

from meshwright.plan.plan import ContextParallel, Plan, Recompute, RecomputeModule, Schedule
from meshwright.plan.stages import num_chunks
from meshwright.train.verify.shrinking import Trial

DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2")
ROUTED = ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "glm4_moe")
FAMILIES = (*DENSE, *ROUTED)

Fields = dict[str, Any]
F, CP, R, M = Schedule, ContextParallel, Recompute, RecomputeModule
SELECTIVE = R.SELECTIVE

SCHEDULES: tuple[Fields, ...] = (
    {"schedule": F.GPIPE},
    {"schedule": F.GPIPE, "vpp": 2},
    {"schedule": F.ONE_F_ONE_B},
    {"schedule": F.ONE_F_ONE_B, "vpp": 2},
    {"schedule": F.ZB_H1},
    {"schedule": F.ZB_H1, "vpp": 2},
    {"schedule": F.ZB_H2},
    {"schedule": F.ZB_V},
    {"schedule": F.V_HALF},
    {"schedule": F.DUALPIPE_V},
)
AXES: dict[str, Fields] = {
    "tp": {"tp": 2},
    "pp": {"pp": 2},
    "cp": {"cp": 2},
    "dp": {"dp": 2},
}
SHARDING: tuple[Fields, ...] = (
    {"dp": 2, "zero_stage": 0},
    {"dp": 2, "zero_stage": 1},
    {"dp": 2, "zero_stage": 2},
    {"dp": 2, "zero_stage": 3},
    {"dp": 2, "zero_stage": 3, "reshard_after_forward": False},
    {"dp": 4, "zero_stage": 3, "dp_replicate": 2},
)
TENSOR: tuple[Fields, ...] = (
    {"tp": 2, "sequence_parallel": False, "vocab_parallel": False, "loss_parallel": False},
    {"tp": 2, "sequence_parallel": False, "loss_parallel": False},
    {"tp": 2, "sequence_parallel": False},
    {"tp": 2, "loss_parallel": False},
    {"tp": 2, "loss_chunks": 4},
    {"tp": 4},
)
CONTEXT: tuple[Fields, ...] = (
    {"cp": 2, "context_parallel": CP.RING},
    {"cp": 2, "context_parallel": CP.ALL_GATHER},
    {"cp": 2, "context_parallel": CP.ULYSSES},
    {"cp": 4, "context_parallel": CP.RING},
    {"cp": 4, "context_parallel": CP.ALL_GATHER},
    {"cp": 4, "context_parallel": CP.ULYSSES},
    {"cp": 4, "context_parallel": CP.HIERARCHICAL, "cp_inner": 2},
)
EXPERT: tuple[Fields, ...] = (
    {"dp": 2, "ep": 2},
    {"dp": 4, "ep": 2},
    {"dp": 2, "etp": 2},
    {"dp": 4, "ep": 2, "etp": 2},
    {"tp": 2, "ep": 2},
    {"tp": 2, "dp": 2, "ep": 4},
    {"tp": 2, "etp": 2},
    {"cp": 2, "ep": 2},
    {"pp": 2, "dp": 2, "ep": 2},
    {"pp": 2, "dp": 2, "ep": 2, "schedule": F.ZB_V},
    {"pp": 2, "tp": 2, "ep": 2, "schedule": F.DUALPIPE_V},
    {"dp": 4, "ep": 2, "dp_replicate": 2},
)
RECOMPUTED: tuple[Fields, ...] = (
    {"dp": 2, "recompute": R.FULL},
    {"dp": 2, "recompute": R.FULL, "recompute_layers": 1},
    {"dp": 2, "recompute": SELECTIVE, "recompute_modules": M.CORE_ATTENTION},
    {"dp": 2, "recompute": SELECTIVE, "recompute_modules": M.MLP | M.MOE},
    {"dp": 2, "recompute": SELECTIVE, "recompute_modules": M.NORM | M.SHARED_EXPERTS},
    {"dp": 2, "recompute": SELECTIVE, "recompute_modules": M.ALTERNATE_MATMULS},
    {"pp": 2, "schedule": F.ZB_V, "recompute": R.FULL},
    {"pp": 2, "schedule": F.ONE_F_ONE_B, "vpp": 2, "recompute": R.FULL},
    {"tp": 2, "recompute": R.FULL},
    {"tp": 2, "recompute": SELECTIVE, "recompute_modules": M.ALTERNATE_MATMULS},
    {"cp": 2, "recompute": R.FULL},
    {"cp": 2, "tp": 2, "recompute": SELECTIVE, "recompute_modules": M.CORE_ATTENTION},
)
WIDE: tuple[Fields, ...] = (  # eight ranks
    {"pp": 2, "dp": 2, "tp": 2},
    {"pp": 2, "cp": 2, "tp": 2, "schedule": F.ZB_V},
    {"pp": 2, "dp": 2, "cp": 2, "schedule": F.ONE_F_ONE_B, "vpp": 2},
    {"dp": 2, "cp": 2, "tp": 2},
    {"pp": 4, "dp": 2, "schedule": F.V_HALF},
    {"pp": 2, "dp": 4, "dp_replicate": 2, "schedule": F.ZB_H1},
)
UNEVEN: tuple[Fields, ...] = (
    {"pp": 2, "layout": (3, 1)},
    {"pp": 2, "layout": (1, 2, 1, 2), "schedule": F.ZB_V},
    {"pp": 4, "layout": (2, 3, 2, 1), "schedule": F.ZB_H1},
    {"pp": 2, "first_stage_layers": 1},
)


class Case(NamedTuple):
    """One comparison."""

    family: str
    fields: Fields
    microbatches: int = 4

    @property
    def name(self) -> str:
        """What pytest calls it."""
        words = [f"{n}{_word(v)}" for n, v in self.fields.items()]
        return "-".join([self.family, *words, f"m{self.microbatches}"])

    @property
    def trial(self) -> Trial:
        """The case as `verify` runs it."""
        plan = Plan(**{"zero_stage": 3, **self.fields})
        layers = sum(plan.layout) if plan.layout else max(int(num_chunks(plan)), 2)
        return Trial(
            plan=plan,
            layers=max(layers, 4) if not plan.layout and int(plan.first_stage_layers) else layers,
            heads_multiple=int(plan.tp) * int(plan.cp),
            experts_multiple=int(plan.ep),
            microbatches=self.microbatches,
        )


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return "".join(map(str, value))
    return str(int(value))


def pairs() -> list[Fields]:
    """Every two axes, and ep with each."""
    return [AXES[a] | AXES[b] for a, b in combinations(AXES, 2)]


def dense() -> list[Case]:
    """Every family without experts on each axis, by turns with 1 and 4 micro-batches."""
    shapes = [AXES["tp"], AXES["pp"], AXES["cp"], AXES["dp"] | AXES["tp"]]
    return [
        Case(family, fields, 4 if i % 2 else 2)
        for family in DENSE
        for i, fields in enumerate(shapes)
    ]


def routed() -> list[Case]:
    """Every family with experts, likewise, and expert axes."""
    shapes = [AXES["pp"], {"dp": 2, "ep": 2}, {"tp": 2, "ep": 2}, {"dp": 2, "etp": 2}, AXES["cp"]]
    return [Case(family, fields) for family in ROUTED for fields in shapes]


def axes() -> list[Case]:
    """Each axis in all its forms, and all pairs of axes."""
    single = [Case("llama", fields) for fields in (*SHARDING, *TENSOR, *CONTEXT)]
    both = [Case("qwen3", fields, 4) for fields in pairs()]
    once = [Case("qwen3", fields, 1) for fields in ({"tp": 2}, {"dp": 2}, {"cp": 2})]
    experts = [Case("qwen3_moe", fields) for fields in EXPERT]
    return [*single, *both, *once, *experts]


def pipelines() -> list[Case]:
    """Every schedule, uneven layers, tied embeddings, recomputation, eight ranks."""
    plain = [Case("llama", {"pp": 2, **fields}) for fields in SCHEDULES]
    sharded = [Case("llama", {"pp": 2, "dp": 2, **fields}) for fields in SCHEDULES[3:]]
    tied = [Case("gemma2", {"pp": 2, **f}) for f in ({"dp": 2}, SCHEDULES[3], SCHEDULES[7])]
    uneven = [Case("llama", fields) for fields in UNEVEN]
    again = [Case("qwen3_moe", fields) for fields in RECOMPUTED]
    wide = [Case("llama", fields) for fields in WIDE]
    return [*plain, *sharded, *tied, *uneven, *again, *wide]


def everything() -> list[Case]:
    """The rest, for the night: every family on every shape above."""
    shapes = [*SHARDING, *TENSOR, *CONTEXT, *pairs(), *RECOMPUTED, *WIDE, *UNEVEN]
    shapes += [{"pp": 2, **fields} for fields in SCHEDULES]
    quick = {case.name for group in (dense(), routed(), axes(), pipelines()) for case in group}
    cases = [Case(family, fields) for family in FAMILIES for fields in shapes]
    cases += [Case(family, fields) for family in ROUTED for fields in EXPERT]
    return [case for case in cases if case.name not in quick]
