"""What Hetu-Galvatron demands of its layer-wise plans.

Sections 4.1, 4.3 and 5.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_CONFIG = "Hetu-Galvatron galvatron/core/runtime/hybrid_parallel_config.py"


def _stage_gpus(k: Knobs) -> int:
    """GPUs of one pipeline stage."""
    return max(int(k.num_gpus) // max(int(k.get("pp") or 1), 1), 1)


def _least_tp(k: Knobs) -> int:
    """The smallest tp of any layer, the vocabulary included."""
    stated = k.get("min_layer_tp")
    degrees = [int(t) for t in k.get("layer_tp_list") or ()]
    return max(int(stated) if stated else min(degrees, default=int(k.get("tp") or 1)), 1)


@demand(
    "DAT128",
    "Galvatron batch not divisible by the widest data-parallel width",
    severity=Severity.ERROR,
    section="4.1",
    scope="galvatron",
    source=f"{_CONFIG} (2.4.0)",
    consequence="AssertionError: global_train_batch_size should be multiple of "
    "world_size//pp_deg//min_tp",
    confidence="read",
)
def batch_divides_over_the_widest_layer(k: Knobs) -> bool:
    """Layers differ in tp, so the layer with the least tp has the most replicas to feed.

    Fails: knobs(framework="galvatron 2.4", global_batch_size=12, num_gpus=16, pp=1,
        layer_tp_list=[2, 4], min_layer_tp=2)
    Passes: knobs(framework="galvatron 2.4", global_batch_size=16, num_gpus=16, pp=1,
        layer_tp_list=[2, 4], min_layer_tp=2)
    """
    return bool(k.global_batch_size % max(_stage_gpus(k) // _least_tp(k), 1))


@batch_divides_over_the_widest_layer.message
def _(k: Knobs) -> str:
    width = max(_stage_gpus(k) // _least_tp(k), 1)
    return (
        f"global batch {k.global_batch_size} over {width} replicas of the layer with tp "
        f"{_least_tp(k)}"
    )


@batch_divides_over_the_widest_layer.fix
def _(k: Knobs) -> Mapping[str, Any]:
    width = max(_stage_gpus(k) // _least_tp(k), 1)
    return {"global_batch_size": max(round(k.global_batch_size / width), 1) * width}


@demand(
    "MOD199",
    "Layer-wise TP does not divide a stage's GPUs",
    severity=Severity.ERROR,
    section="5.1",
    scope="galvatron",
    source=f"{_CONFIG} check_hp_config (2.4.0)",
    consequence="AssertionError: wrong tp_size",
    confidence="read",
)
def layers_tile_their_stage(k: Knobs) -> bool:
    """Every layer's tp must divide the GPUs of a pipeline stage.

    Fails: knobs(framework="galvatron 2.4", layer_tp_list=[2, 3], num_gpus=8, pp=1)
    Passes: knobs(framework="galvatron 2.4", layer_tp_list=[2, 4], num_gpus=8, pp=1)
    """
    return bool(_misfits(k))


def _misfits(k: Knobs) -> list[int]:
    return sorted({t for t in k.layer_tp_list if t < 1 or _stage_gpus(k) % t})


@layers_tile_their_stage.message
def _(k: Knobs) -> str:
    return f"layers with tp {', '.join(map(str, _misfits(k)))} on stages of {_stage_gpus(k)} GPUs"


_PLAN = ("tp", "pp", "dp")


def _changed(k: Knobs) -> list[str]:
    """Degrees that differ from those of the checkpoint."""
    pairs = [(name, k.get(f"saved_{name}"), k.get(name)) for name in _PLAN]
    return [f"{name} {old} -> {new}" for name, old, new in pairs if old and new and old != new]


@demand(
    "DAT334",
    "Resume under another layer-wise plan (Galvatron)",
    severity=Severity.ERROR,
    section="4.3",
    scope="galvatron",
    source=f"{_CONFIG} get_hybrid_parallel_configs_api (2.4.0)",
    consequence="AssertionError: the hybrid-parallel config of the checkpoint differs",
    confidence="read",
)
def checkpoint_has_the_plan(k: Knobs) -> bool:
    """The checkpoint stores the plan, and every key of it must be equal, the batch included.

    Fails: knobs(framework="galvatron 2.4", resume=True, tp=4, saved_tp=2)
    Passes: knobs(framework="galvatron 2.4", resume=True, tp=4, saved_tp=4)
    """
    return bool(k.get("resume", True)) and bool(_changed(k))


@checkpoint_has_the_plan.message
def _(k: Knobs) -> str:
    return f"the checkpoint's plan is another: {', '.join(_changed(k))}"


@demand(
    "DAT335",
    "Checkpoint saved under plain DDP (Galvatron)",
    severity=Severity.ERROR,
    section="4.3",
    scope="galvatron",
    source="Hetu-Galvatron galvatron/models/llama_hf/LlamaModel_checkpoint.py (2.4.0)",
    consequence="AssertionError: distributed checkpoints are not supported for DDP",
    confidence="read",
    says="default_dp_type = {default_dp_type} with a save folder {ckpt_dir}",
    suggest={"default_dp_type": "zero2"},
)
def saved_states_are_sharded(k: Knobs) -> bool:
    """The distributed checkpoint is written from shards, which plain replication has not.

    Fails: knobs(framework="galvatron 2.4", ckpt_dir="out", default_dp_type="ddp")
    Passes: knobs(framework="galvatron 2.4", ckpt_dir="out", default_dp_type="zero2")
    """
    return bool(k.get("ckpt_dir")) and k.get("default_dp_type") == "ddp"
