"""What a plan becomes in another framework, and what every change costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.units import GIB
from meshwright.base.words import shown
from meshwright.frameworks.inverse import idle_fields
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import FIELDS, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.cost.predict import Prediction
    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Setting
    from meshwright.plan.job import Job

CHANGED = "CFG303"
_SPLIT = ("layout", "first_stage_layers", "last_stage_layers", "embedding_in_split")
SPLIT = frozenset({*_SPLIT, "loss_in_split"})
_TOGETHER = (  # fields that one habit of a framework decides together
    ("precision", "param_bytes", "master_weights", "grad_bytes", "optimizer_state_bytes"),
    ("zero_stage", "reshard_after_forward", "dp_replicate"),
    ("overlap_grad_reduce", "overlap_param_gather"),
    ("schedule", "vpp", *_SPLIT, "loss_in_split"),
    ("recompute", "recompute_modules", "recompute_layers", "recompute_uniform"),
    ("sequence_parallel", "vocab_parallel", "loss_parallel"),
    ("lora_rank", "lora_all_linear", "base_weight_bits"),
    ("offload_optimizer", "offload_params"),
)
_NOTHING = 5e-4  # of memory or time: less is not worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Fields that change together: their words before and after, and what that alone costs.

    `bytes` and `seconds` are added to the peak memory of a GPU and to a step; None where the job
    cannot be predicted.
    """

    fields: Mapping[str, tuple[Any, Any]]
    bytes: float | None = None
    seconds: float | None = None
    own: Prediction | None = None


def differences(before: Job, after: Job) -> dict[str, tuple[Any, Any]]:
    """Fields of the plan that differ and matter, with their words before and after.

    Different spellings of the same stages are no difference.
    """
    first, second = before.plan.row(0), after.plan.row(0)
    away = set(idle_fields(first))
    if _chunks(before) == _chunks(after):
        away |= SPLIT
    return {
        name: (word(name, getattr(first, name)), word(name, getattr(second, name)))
        for name in FIELDS
        if name not in away and getattr(first, name) != getattr(second, name)
    }


def _chunks(job: Job) -> tuple[int, ...] | None:
    try:
        return tuple(int(n) for n in chunk_layers(job.model, job.plan.row(0)))
    except (MeshwrightError, ValueError, ZeroDivisionError, IndexError):
        return None


def changes(before: Job, after: Job, *, own: Prediction | None) -> list[Change]:
    """The differences by habit, the dearest first."""
    left = differences(before, after)
    found: list[Change] = []
    for names in (*_TOGETHER, *((name,) for name in FIELDS)):
        fields = {name: left.pop(name) for name in names if name in left}
        if fields:
            found.append(_priced(before, after, fields, names, own=own))
    return sorted(found, key=lambda change: -abs(change.bytes or 0))


def _priced(
    before: Job,
    after: Job,
    fields: Mapping[str, tuple[Any, Any]],
    names: tuple[str, ...],
    *,
    own: Prediction | None,
) -> Change:
    """A change with what it alone costs, fields of its habit that matter only then included."""
    if own is None:
        return Change(fields=fields)
    from meshwright.cost.predict import predict

    plan = before.plan.row(0).replace(**{n: getattr(after.plan.row(0), n) for n in names})
    try:
        with np.errstate(all="ignore"):
            alone = predict(replace(before, plan=plan))
    except (MeshwrightError, ValueError, ZeroDivisionError, IndexError):
        return Change(fields=fields)
    return Change(
        fields=fields,
        bytes=float(alone.peak_bytes - own.peak_bytes),
        seconds=float(alone.step_time_s - own.step_time_s),
        own=own,
    )


def change_finding(change: Change, reading: Reading, reasons: Mapping[str, str]) -> Finding:
    """A change in words: what becomes what, why, and what it costs, at what states it."""
    words = [f"{n} {_told(a)} becomes {_told(b)}" for n, (a, b) in change.fields.items()]
    why = dict.fromkeys(reasons[n] for n in change.fields if n in reasons)
    settings = [s for name in change.fields for s in reading.settings_of(name)]
    unique = {(s.source.file, s.where.start): s for s in settings}
    labels = tuple(s.label("here") for s in unique.values())
    first = labels[0] if labels else None
    return Finding(
        code=CHANGED,
        severity=Severity.WARNING,
        message=", ".join(words),
        file=first.file if first else "",
        line=first.line if first else 0,
        column=first.column if first else 0,
        key=",".join(change.fields),
        value=settings[0].value if settings else None,
        reason="; ".join(why),
        labels=labels,
        consequence=_costs(change),
        confidence="predicted" if change.bytes is not None else "",
    )


def _told(value: Any) -> str:
    return "none" if value is None else shown(value)


def _costs(change: Change) -> str:
    """ "2.1 GiB more per GPU, a step takes 0.4% longer"."""
    if change.own is None or change.bytes is None or change.seconds is None:
        return ""
    parts = []
    if abs(change.bytes) > _NOTHING * change.own.peak_bytes:
        parts.append(f"{abs(change.bytes) / GIB:.1f} GiB {_more(change.bytes)} per GPU")
    share = change.seconds / change.own.step_time_s
    if abs(share) > _NOTHING:
        parts.append(f"a step takes {abs(share):.1%} {'longer' if share > 0 else 'less'}")
    return ", ".join(parts) or "neither memory nor time change"


def _more(amount: float) -> str:
    return "more" if amount > 0 else "less"


def settings_of(change: Change, reading: Reading) -> list[Setting]:
    """The settings that state what changes."""
    return [s for name in change.fields for s in reading.settings_of(name)]
