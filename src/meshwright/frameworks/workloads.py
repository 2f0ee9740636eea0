"""What a configuration trains on: lengths, batch, data and checkpoints, runtime and recipe."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from meshwright.plan.job import Loading, Recipe, Runtime, Workload
from meshwright.plan.words import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Reading
    from meshwright.frameworks.setting import Value
    from meshwright.model.architecture import Model
    from meshwright.plan.plan import Plan

USUAL_SEQ_LEN = 4096
SHORT_SEQ_LEN = 512  # what fits no such sequence fits none that is trained on
_ROUNDS = 4  # micro-batches per stage where the batch is not stated


def workloads(
    reading: Reading, plans: tuple[Plan, Plan], models: tuple[Model, Model], missing: list[str]
) -> tuple[Workload, Workload]:
    """The workload that is stated, under either plan's data-parallel degree.

    A length that stands in is none that the model has no positions for.
    """
    first, second = plans
    seq_len = reading.value("seq_len")
    lengths: tuple[Any, ...] = (seq_len, seq_len)
    if not isinstance(seq_len, int) or not 0 < seq_len <= LARGEST:
        missing.append("seq_len")
        usual = zip((USUAL_SEQ_LEN, SHORT_SEQ_LEN), models, strict=True)
        lengths = tuple(min(n, m.max_position_embeddings or n) for n, m in usual)
    lengths = (_padded(reading, first, lengths[0]), _padded(reading, second, lengths[1]))
    if _batch(reading, first) is None:
        missing.append("global_batch_size")
    built = [
        Workload(
            seq_len=length,
            global_batch_size=_batch(reading, p)
            or int(p.micro_batch_size * p.dp * p.pp * p.vpp * _ROUNDS),
            train_tokens=_number(reading.value("train_tokens")),
            packed_mean_len=_number(reading.value("packed_mean_len")),
            loading=_loading(reading),
            runtime=_noun(Runtime, reading.values),
            recipe=_noun(Recipe, reading.values),
        )
        for p, length in zip((first, second), lengths, strict=True)
    ]
    return built[0], built[1]


_SAVING = ("ckpt_dir", "checkpoint_interval_steps", "checkpoint_interval_s", "checkpoint_async")


def _loading(reading: Reading) -> Loading:
    """Data and checkpoints; how a framework would save says nothing where nothing is saved.

    Nor does it say anything of the program's loader how many workers it has by default.
    """
    loading: Loading = _noun(Loading, reading.values)
    workers = reading.values.get("num_workers")
    if workers is not None and workers.default:
        loading = replace(loading, num_workers=None)
    saves = any(reading.is_stated(name) for name in _SAVING)
    return loading if saves else replace(loading, checkpoint_async=None)


def _padded(reading: Reading, plan: Plan, length: int) -> int:
    """The length as the framework pads it, where it does so itself: every rank's share is equal."""
    if reading.value("pads_sequences") is not True:
        return length
    unit = int(max(plan.tp, 1) * max(plan.cp, 1)) * (2 if int(plan.cp) > 1 else 1)
    return -(-length // unit) * unit


def _batch(reading: Reading, plan: Plan) -> int | None:
    """Sequences a step: stated, or micro-batch times accumulation times replicas."""
    stated = reading.value("global_batch_size")
    if isinstance(stated, int) and 0 < stated <= LARGEST:
        return stated
    accumulation = reading.value("gradient_accumulation_steps")
    if isinstance(accumulation, int) and 0 < accumulation <= LARGEST:
        return int(plan.micro_batch_size * accumulation * plan.dp)
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _noun(kind: Any, values: Mapping[str, Any]) -> Any:
    """A noun of settings that may be unstated, from the variables of its fields' names."""
    stated: dict[str, Any] = {}
    for item in fields(kind):
        found = values.get(item.name)
        value = found.value if found is not None else None
        if item.name == "environment" and isinstance(value, dict):
            value = tuple(sorted((str(k), str(v)) for k, v in value.items()))
        if isinstance(value, list):
            value = tuple(value)
        if value is not None and _fits(value, str(item.type)) and not _is_off(item.name, found):
            stated[item.name] = value
    return kind(**stated)


_OFF_BELOW_ZERO = ("checkpoints_kept", "checkpoint_interval_steps")


def _is_off(name: str, found: Value | None) -> bool:
    """Whether a negative number means that nothing is set: as a default, or of a count of saves."""
    if found is None:
        return False
    number = isinstance(found.value, int) and not isinstance(found.value, bool)
    return number and found.value < 0 and (not found.settings or name in _OFF_BELOW_ZERO)


def _fits(value: Any, hint: str) -> bool:
    """Whether a value is of the type that a field's hint says, in its coarse kinds."""
    if isinstance(value, bool):
        return "bool" in hint
    if isinstance(value, int):
        return "int" in hint.split("tuple")[0] or "float" in hint
    if isinstance(value, float):
        return "float" in hint
    return ("str" in hint and isinstance(value, str)) or (
        "tuple" in hint and isinstance(value, tuple)
    )
