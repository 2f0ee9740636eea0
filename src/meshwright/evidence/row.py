"""One published run, split in two: what was set, and what was measured.

A prediction is made from a `Row`, which holds the settings alone. The measured columns, and the
columns that say where the run was published, never enter it, so no prediction can read them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURED = (
    "step_time_s",
    "tokens_per_s_gpu",
    "tflops_gpu",
    "mfu_pct",
    "hfu_pct",
    "mem_alloc_gib",
    "mem_reserved_gib",
    "mem_other_gib",
)
ABOUT = (
    "id",
    "source",
    "source_ref",
    "completeness",
    "peak_tflops_used",
    "flops_convention",
    "derived",
    "check",
)
INTEGERS = (
    "year",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "gated_ffn",
    "vocab",
    "tied_embed",
    "experts",
    "topk",
    "expert_ffn",
    "shared_expert_ffn",
    "moe_layers",
    "seq_len",
    "gpus_per_node",
    "num_gpus",
    "global_batch",
    "micro_batch",
    "grad_accum",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "dp",
    "fsdp_shard",
    "zero_stage",
    "sequence_parallel",
)
TEXTS = (
    "model",
    "arch",
    "params_b",
    "gpu",
    "interconnect",
    "framework",
    "framework_version",
    "precision",
    "task",
    "pp_schedule",
    "recompute",
    "recompute_detail",
    "offload",
    "comm_overlap",
    "cuda_graph",
    "notes",
)
SETTINGS = (*INTEGERS, *TEXTS)

_BLANK = {"", "-", "?", "n/a", "na", "nan", "none", "null", "unknown", "not stated", "unspecified"}
_MOST = {"layers": 10_000, "num_gpus": 10**7}
_FLAGS = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}


class CannotExpress(MeshwrightError):  # noqa: N818 - caught by `job_of`, which turns it to a reason
    """A row does not determine a job; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Inexpressible:
    """Why a row has no job."""

    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """The settings of one run, as text by column name; `SETTINGS` lists the columns."""

    settings: Mapping[str, str]

    def text(self, column: str) -> str:
        """The value of a text column, stripped; "" where blank or absent."""
        return self.settings.get(column, "").strip()

    def integer(self, column: str) -> int | None:
        """The value of an integer column, None where blank.

        Raises CannotExpress where it is not a whole number.
        """
        raw = self.text(column)
        if raw.lower() in _BLANK:
            return None
        number = whole_number(raw)
        if number is None:
            raise CannotExpress(f"{column} is {raw!r}, which is not a whole number")
        return number

    def needed(self, column: str, *, least: int = 1) -> int:
        """The value of an integer column that a job cannot do without.

        Raises CannotExpress where it is blank, below `least` or absurdly large.
        """
        number = self.integer(column)
        if number is None:
            raise CannotExpress(f"{column} is not stated")
        if number < least:
            raise CannotExpress(f"{column} is {number}, below {least}")
        most = _MOST.get(column, 10**9)
        if number > most:
            raise CannotExpress(f"{column} is {number}, above {most}")
        return number

    def says(self, column: str, pattern: str) -> bool:
        """True when a text column matches a regular expression, case ignored."""
        return re.search(pattern, self.text(column), re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured: seconds a step, and peak memory in GiB by who reported it.

    `allocated_gib` is the framework's own peak allocation, `reserved_gib` what its allocator held,
    `other_gib` nvidia-smi or a figure of unknown base. None where not reported.
    """

    step_time_s: float | None = None
    tokens_per_s_gpu: float | None = None
    tflops_gpu: float | None = None
    mfu_pct: float | None = None
    hfu_pct: float | None = None
    allocated_gib: float | None = None
    reserved_gib: float | None = None
    other_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of a runs file: where it is from, what was set, what was measured."""

    id: str
    source: str
    source_ref: str
    completeness: str
    check: str
    line: int
    row: Row
    measured: Measurement
    flops_convention: str = ""

    @property
    def step_time_s(self) -> float | None:
        """Measured seconds a step: reported, else from tokens per second; None without either."""
        if self.measured.step_time_s is not None:
            return self.measured.step_time_s
        rate = self.measured.tokens_per_s_gpu
        factors = [whole_number(self.row.text(c)) for c in ("global_batch", "seq_len", "num_gpus")]
        batch, seq_len, gpus = factors
        if not (rate and batch and seq_len and gpus):
            return None
        return batch * seq_len / (rate * gpus)

    @property
    def is_judged(self) -> bool:
        """True for rows that are complete and pass their own arithmetic."""
        return self.completeness == "full" and self.check == "ok"


def whole_number(raw: str) -> int | None:
    """The integer that `raw` writes ("8", "8.0", "1,024", "yes" for 1), or None."""
    flag = _FLAGS.get(raw.strip().lower())
    if flag is not None:
        return flag
    try:
        value = float(raw.replace(",", ""))
    except ValueError:
        return None
    return int(value) if value.is_integer() and abs(value) < 2.0**53 else None


def is_blank(raw: str) -> bool:
    """True for the usual ways to write that a number is not known."""
    return raw.strip().lower() in _BLANK
