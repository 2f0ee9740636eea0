"""Loading what DeepSpeed saved, and saving what can be loaded.

Section 4.3 of the guidelines.
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


@demand(
    "DAT341",
    "ZeRO checkpoint of another data-parallel size",
    severity=Severity.ERROR,
    section="4.3",
    scope="deepspeed; transformers; accelerate",
    source="DeepSpeed deepspeed/runtime/engine.py DeepSpeedEngine.load_checkpoint (0.19.8); "
    "DeepSpeed issue 3810",
    consequence="ZeRORuntimeException: The checkpoint being loaded used a DP world size of N but "
    "the current world size is M. Automatic adjustment of ZeRO's optimizer state partitioning with "
    "a new world size is not currently supported.",
    confidence="read",
)
def shards_are_read_by_as_many(k: Knobs) -> bool:
    """Each rank saves its own partition of the optimizer's states, and reads it back.

    Another number of data-parallel ranks cuts them elsewhere. Convert the checkpoint to the
    universal format and load it with `checkpoint.load_universal`, load the weights alone
    (zero_to_fp32), or resume on as many ranks as saved it.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=3, saved_dp=32, dp=128)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, saved_dp=32, dp=32)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, saved_dp=32, dp=128,
        checkpoint_reshardable=True)
    """
    if not runs_deepspeed(k) or k.get("zero_stage", 0) < 1:
        return False
    return _saved(k) != data_parallel(k) and not k.get("checkpoint_reshardable", False)


def _saved(k: Knobs) -> int:
    """Data-parallel ranks that saved the checkpoint."""
    stated = k.get("saved_dp")
    return int(stated) if stated else int(k.saved_num_gpus) // model_ranks(k)


@shards_are_read_by_as_many.message
def _(k: Knobs) -> str:
    return (
        f"the ZeRO checkpoint was saved by a data-parallel world size of {_saved(k)}, the current "
        f"one is {data_parallel(k)}, and it is not a universal checkpoint"
    )


@shards_are_read_by_as_many.fix
def _(_k: Knobs) -> Mapping[str, Any]:
    return {"checkpoint_reshardable": True}


@demand(
    "DAT345",
    "ZeRO-3 saves no whole model",
    severity=Severity.INFO,
    section="4.3",
    scope="deepspeed",
    source="DeepSpeed deepspeed/runtime/engine.py DeepSpeedEngine.save_16bit_model (0.19.8)",
    consequence="save_model writes placeholders or partitions only; zero_to_fp32.py must put the "
    "weights together afterwards",
    confidence="read",
    says="stage {zero_stage} with stage3_gather_16bit_weights_on_model_save = false",
    suggest={"gather_weights_on_save": True},
)
def stage_three_saves_the_model(k: Knobs) -> bool:
    """At stage 3 no rank has the weights, and saving does not gather them unless told to.

    Only a configuration that says so explicitly is noted.

    Fails: knobs(framework="deepspeed 0.19", zero_stage=3, gather_weights_on_save=False)
    Passes: knobs(framework="deepspeed 0.19", zero_stage=3, gather_weights_on_save=True)
    """
    if not runs_deepspeed(k) or k.get("zero_stage", 0) != 3:
        return False
    return k.is_stated("gather_weights_on_save") and k.gather_weights_on_save is False
