"""What a framework does where a published row does not say: known by its name and year alone.

Nothing here looks at the model, the GPU, or who published the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.evidence.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Defaults of one framework.

    `stacks` pairs the first year with the name of the software stack from then on; `megatron`
    marks the family that pads the vocabulary, shards experts like the rest and places stages by
    layer counts; `flash_since` is the first year with a fused attention kernel. `wide_params`
    keeps fp32 weights and casts them; `pure` keeps everything in 16 bits. `grad_bytes` and
    `reduce_bytes` are the gradient buffer's and the wire's width in 16-bit training.
    `reports_first_rank`: the memory that it logs is that of rank 0, not of the fullest rank.
    """

    pattern: str
    stacks: tuple[tuple[float, str], ...]
    megatron: bool = False
    fsdp: bool = False
    xla: bool = False
    flash_since: int = 2023
    dropout: bool = False
    wide_params: bool = False
    pure: bool = False
    grad_bytes: int = 4
    reduce_bytes: int = 4
    fused_loss: bool = False
    compile: bool = False
    cost_balanced_stages: bool = False
    slot_balanced_stages: bool = False
    tp_shards_sequence: bool = False
    reports_first_rank: bool = False

    def stack(self, year: float) -> str:
        """The name of the stack of `year`, the oldest for years before it."""
        names = [name for since, name in self.stacks if since <= year]
        return names[-1] if names else self.stacks[0][1]


_NEVER = 9999

FRAMEWORKS: tuple[Habits, ...] = (
    Habits(
        pattern=r"zero-?bubble",
        stacks=((2023, "zero-bubble-fork"),),
        megatron=True,
        flash_since=_NEVER,
        dropout=True,
    ),
    Habits(
        pattern=r"vocabulary ?parallel",
        stacks=((2024, "vocabulary-parallel-fork"),),
        megatron=True,
    ),
    Habits(
        pattern=r"mlperf.*(rocm|amd)|rocm.*mlperf",
        stacks=((2024, "mlperf-rocm"),),
        megatron=True,
        grad_bytes=2,
        reduce_bytes=2,
        fused_loss=True,
    ),
    Habits(
        pattern=r"mlperf",
        stacks=((2023, "mlperf-2023"), (2024, "mlperf-2024"), (2025, "mlperf-2025")),
        megatron=True,
        grad_bytes=2,
        reduce_bytes=2,
        fused_loss=True,
    ),
    Habits(
        pattern=r"auto-?model",
        stacks=((2025, "automodel"),),
        fsdp=True,
        pure=True,
        fused_loss=True,
    ),
    Habits(
        pattern=r"megatron-?bridge",
        stacks=((2025, "megatron-bridge-2025"), (2026.4, "megatron-bridge-2026")),
        megatron=True,
        grad_bytes=2,
        reduce_bytes=2,
        fused_loss=True,
    ),
    Habits(
        pattern=r"\bnemo\b|megatron-?core",
        stacks=((2023, "nemo-2024"), (2025, "nemo-2025")),
        megatron=True,
        grad_bytes=2,
        reduce_bytes=2,
        fused_loss=True,
    ),
    Habits(
        pattern=r"megatron-?deepspeed",
        stacks=(
            (2021, "megatron-deepspeed-2021"),
            (2022, "megatron-deepspeed-2022"),
            (2023, "megatron-deepspeed-2023"),
        ),
        megatron=True,
        flash_since=2024,
        slot_balanced_stages=True,
    ),
    Habits(
        pattern=r"mindspeed|modellink",
        stacks=((2024, "mindspeed"),),
        megatron=True,
    ),
    Habits(
        pattern=r"mindformers|mindspore",
        stacks=((2024, "mindformers"),),
        compile=True,
        tp_shards_sequence=False,
    ),
    Habits(
        pattern=r"primus|megatron.*rocm",
        stacks=((2025, "primus"),),
        megatron=True,
    ),
    Habits(
        pattern=r"megascale",
        stacks=((2023, "megascale"),),
        megatron=True,
    ),
    Habits(
        pattern=r"megatron",
        stacks=(
            (2019, "megatron-lm-2021"),
            (2022, "megatron-lm-2022"),
            (2023, "megatron-lm-2024"),
            (2025, "megatron-lm-2025"),
        ),
        megatron=True,
        dropout=True,
    ),
    Habits(
        pattern=r"nanotron",
        stacks=((2024, "nanotron"),),
        reports_first_rank=True,
        cost_balanced_stages=True,
    ),
    Habits(
        pattern=r"llm-?foundry|composer",
        stacks=((2022, "composer-2023"), (2024, "composer-2024")),
        fsdp=True,
        fused_loss=True,
    ),
    Habits(
        pattern=r"fms-?fsdp",
        stacks=((2024, "fsdp-compiled"),),
        fsdp=True,
        wide_params=True,
        reduce_bytes=2,
        compile=True,
    ),
    Habits(
        pattern=r"lit-?gpt|litgpt|lightning|fabric",
        stacks=((2023, "lit-gpt"),),
        fsdp=True,
        wide_params=True,
        fused_loss=True,
    ),
    Habits(
        pattern=r"torchtune",
        stacks=((2024, "torchtune"),),
        fsdp=True,
        pure=True,
        compile=True,
    ),
    Habits(
        pattern=r"torchtitan",
        stacks=((2024, "torchtitan"),),
        fsdp=True,
        wide_params=True,
        compile=True,
    ),
    Habits(
        pattern=r"(maxtext|paxml|pax|jax).*gpu",
        stacks=((2024, "jax-gpu"),),
        xla=True,
        wide_params=True,
        reduce_bytes=2,
        compile=True,
        tp_shards_sequence=True,
    ),
    Habits(
        pattern=r"maxtext|levanter|paxml|\bjax\b",
        stacks=((2022, "maxtext-tpu"),),
        xla=True,
        wide_params=True,
        reduce_bytes=2,
        compile=True,
        tp_shards_sequence=True,
    ),
    Habits(pattern=r"internevo|internlm", stacks=((2023, "internevo"),), reduce_bytes=2),
    Habits(pattern=r"hai-?llm", stacks=((2024, "hai-llm"),), megatron=True),
    Habits(pattern=r"colossal", stacks=((2023, "colossalai"),)),
    Habits(
        pattern=r"deepspeed|transformers|accelerate|\bhf\b|trainer|axolotl|trl",
        stacks=((2022, "deepspeed"),),
        grad_bytes=2,
        reduce_bytes=2,
    ),
    Habits(
        pattern=r"fsdp|pytorch",
        stacks=((2023, "fsdp"),),
        fsdp=True,
        wide_params=True,
    ),
)

UNKNOWN = Habits(pattern="", stacks=((0, "default"),))


FIRST_RANK_STACKS = frozenset(
    name for habits in FRAMEWORKS if habits.reports_first_rank for _, name in habits.stacks
)


def habits_of(row: Row) -> Habits:
    """The defaults of the row's framework; those of no framework when it is not known."""
    name = row.text("framework")
    for habits in FRAMEWORKS:
        if re.search(habits.pattern, name, re.IGNORECASE):
            return habits
    return UNKNOWN


def year_of(row: Row) -> float:
    """The year of the framework: that of its version string where it has one, else of the row.

    Version strings name years ("2022-2023", the last counts) or NeMo containers ("25.09", which is
    2025 and two thirds).
    """
    version = row.text("framework_version")
    years = [int(y) for y in re.findall(r"\b(20[12]\d)\b", version)]
    found = re.findall(r"\b(2[3-9])\.(0[1-9]|1[0-2])\b", version)
    containers = [2000 + int(y) + (int(month) - 1) / 12 for y, month in found]
    if years or containers:
        return max(years or containers)
    return row.integer("year") or 2024


def stack_of(row: Row) -> str:
    """The software stack of a row, by framework, version and year; "default" when not known."""
    return habits_of(row).stack(year_of(row))
