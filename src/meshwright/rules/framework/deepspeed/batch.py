"""DeepSpeed's three batch sizes, of which any two give the third.

Section 4.1 of the guidelines. DeepSpeed counts the batch over its own data-parallel world: the GPUs
without those that tensor, pipeline and Ulysses parallelism take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel, model_ranks, runs_deepspeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_TRIAD = "Check batch related parameters. train_batch_size is not equal to "
_CONFIG = "DeepSpeed deepspeed/runtime/config.py DeepSpeedConfig"


def _triad(k: Knobs) -> tuple[int | None, int | None, int | None]:
    """train_batch_size, train_micro_batch_size_per_gpu and accumulation as the file has them."""
    return (
        k.get("train_batch_size"),
        k.get("train_micro_batch_size_per_gpu"),
        k.get("gradient_accumulation_steps"),
    )


def _is_refused_before(k: Knobs) -> bool:
    """Whether DeepSpeed does not run, or a trainer has refused the file's values before it does."""
    return not runs_deepspeed(k) or bool(k.get("ds_hf_mismatches"))


@demand(
    "DAT110",
    "DeepSpeed batch triad inconsistent",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed",
    source=f"{_CONFIG}._batch_assertion (0.19.8)",
    consequence=f"AssertionError: {_TRIAD}micro_batch_per_gpu * gradient_acc_step * world_size",
)
def triad_agrees(k: Knobs) -> bool:
    """Three stated batch sizes must satisfy batch = micro-batch * accumulation * replicas.

    Give two of the three; DeepSpeed derives the third.

    Fails: deepspeed 0.19: {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 4}
        # 8 GPUs
    Fails: knobs(framework="deepspeed 0.19", train_batch_size=64, dp=8,
        train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=4)
    Passes: knobs(framework="deepspeed 0.19", train_batch_size=128, dp=8,
        train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=4)
    """
    batch, micro, steps = _triad(k)
    if _is_refused_before(k) or batch is None or micro is None or steps is None:
        return False
    return batch != micro * steps * data_parallel(k)


@triad_agrees.message
def _(k: Knobs) -> str:
    batch, micro, steps = _triad(k)
    dp = data_parallel(k)
    product = (micro or 0) * (steps or 0) * dp
    return (
        f"train_batch_size {batch} is not {micro} a GPU * {steps} accumulation steps * "
        f"{dp} data-parallel ranks = {product}"
    )


@triad_agrees.fix
def _(k: Knobs) -> Mapping[str, Any]:
    batch, micro, steps = _triad(k)
    each = (micro or 1) * data_parallel(k)
    if batch and not batch % each:  # the batch is what learning depends on: it stays
        return {"gradient_accumulation_steps": batch // each}
    return {"train_batch_size": each * (steps or 1)}


@demand(
    "DAT111",
    "DeepSpeed derives the missing batch size by integer division",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed",
    source=f"{_CONFIG}._set_batch_related_parameters (0.19.8)",
    consequence=f"AssertionError: {_TRIAD}micro_batch_per_gpu * gradient_acc_step * world_size, "
    "or: Micro batch size per gpu: 0 has to be greater than 0",
)
def batch_divides(k: Knobs) -> bool:
    """The third batch size is derived by division, whose remainder is dropped.

    What is derived then fails the check of the product, or is zero.

    Fails: deepspeed 0.19: {"train_batch_size": 20, "train_micro_batch_size_per_gpu": 1}
        # 8 GPUs
    Fails: knobs(framework="deepspeed 0.19", train_batch_size=4, dp=8)
    Passes: knobs(framework="deepspeed 0.19", train_batch_size=24, dp=8,
        train_micro_batch_size_per_gpu=1)
    """
    batch, micro, steps = _triad(k)
    if _is_refused_before(k) or batch is None or (micro is not None and steps is not None):
        return False
    return bool(batch % (data_parallel(k) * (micro or 1) * (steps or 1)))


@batch_divides.message
def _(k: Knobs) -> str:
    batch, micro, steps = _triad(k)
    given = {"micro-batch": micro, "accumulation steps": steps}
    factors = [f"{data_parallel(k)} data-parallel ranks"]
    factors += [f"{name} {value}" for name, value in given.items() if value]
    return f"train_batch_size {batch} is not a multiple of {' * '.join(factors)}"


@batch_divides.fix
def _(k: Knobs) -> Mapping[str, Any]:
    batch, micro, steps = _triad(k)
    unit = data_parallel(k) * (micro or 1) * (steps or 1)
    return {"train_batch_size": max(round((batch or 0) / unit), 1) * unit}


@demand(
    "DAT112",
    "DeepSpeed config without any batch size",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed",
    source=f"{_CONFIG}._set_batch_related_parameters (0.19.8)",
    consequence="AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs "
    "to be provided",
)
def a_batch_size_is_given(k: Knobs) -> bool:
    """DeepSpeed needs the batch or the micro-batch.

    Many programs write it into the dictionary before they hand it over, so the rule asks only of a
    file that leaves nothing else to the program: one that states its own optimizer.

    Fails: deepspeed 0.19: {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "gradient_accumulation_steps": 4}
    Passes: deepspeed 0.19: {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "train_micro_batch_size_per_gpu": 4}
    Passes: deepspeed 0.19: {"zero_optimization": {"stage": 3}}
    """
    keys = k.get("ds_config_keys") or ()
    given = ("train_batch_size", "train_micro_batch_size_per_gpu")
    if not k.framework.startswith("deepspeed") or "optimizer" not in keys:
        return False
    return not any(name in keys or k.is_stated(name) or k.get(name) for name in given)


@a_batch_size_is_given.message
def _(k: Knobs) -> str:
    keys = ", ".join(k.get("ds_config_keys") or ())
    return f"neither train_batch_size nor train_micro_batch_size_per_gpu among {keys}"


@a_batch_size_is_given.fix
def _(_k: Knobs) -> Mapping[str, Any]:
    return {"train_micro_batch_size_per_gpu": 1}


@demand(
    "DAT113",
    "DeepSpeed triad multiplied by all GPUs although tp, pp or sp are on",
    severity=Severity.ERROR,
    section="4.1",
    scope="deepspeed>=0.14",
    source=f"{_CONFIG}.__init__ (0.19.8)",
    consequence=f"AssertionError: {_TRIAD}micro_batch_per_gpu * gradient_acc_step * world_size "
    "(the world is the data-parallel one)",
    confidence="read",
)
def triad_counts_replicas(k: Knobs) -> bool:
    """Ranks that share a sample do not multiply the batch.

    DeepSpeed takes the data-parallel size of the model-parallel unit, or the world over the
    Ulysses degree; a triad written for all GPUs is too large by tp * pp * sp. Of two stated sizes
    nothing can be said: the third is derived.

    Fails: knobs(framework="deepspeed 0.19", train_batch_size=32, num_gpus=8, ulysses=4,
        train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4)
    Passes: knobs(framework="deepspeed 0.19", train_batch_size=8, num_gpus=8, ulysses=4,
        train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4)
    """
    batch, micro, steps = _triad(k)
    if not runs_deepspeed(k) or batch is None or micro is None or steps is None:
        return False
    return model_ranks(k) > 1 and batch == micro * steps * k.num_gpus


@triad_counts_replicas.message
def _(k: Knobs) -> str:
    ranks, world = model_ranks(k), k.num_gpus
    return (
        f"train_batch_size {k.train_batch_size} counts all {world} GPUs, but {ranks} of them work "
        f"on the same samples: {world // ranks} data-parallel ranks"
    )


@triad_counts_replicas.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"train_batch_size": max(k.train_batch_size // model_ranks(k), 1)}
