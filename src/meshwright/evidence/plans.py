"""The plan of a row: mesh, sharding, schedule, recompute, overlaps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.evidence.habits import habits_of, year_of
from meshwright.evidence.precisions import optimizer_of, precision_fields
from meshwright.evidence.recomputes import offload_fields, recompute_fields
from meshwright.evidence.row import CannotExpress
from meshwright.evidence.stages import stage_fields
from meshwright.plan.plan import ContextParallel, Plan, Schedule

if TYPE_CHECKING:
    from meshwright.evidence.habits import Habits
    from meshwright.evidence.row import Row
    from meshwright.model.architecture import Model

_SCHEDULES = (
    (r"dualpipe-?v", Schedule.DUALPIPE_V),
    (r"dualpipe", Schedule.DUALPIPE),
    (r"v-?half", Schedule.V_HALF),
    (r"zb-?v|zbv", Schedule.ZB_V),
    (r"zb-?2p|zb-?h2", Schedule.ZB_H2),
    (r"zb-?1p|zb-?h1|zbb|zero-?bubble", Schedule.ZB_H1),
    (r"gpipe|afab|all forward", Schedule.GPIPE),
    (r"1f1b|interleav", Schedule.ONE_F_ONE_B),
)
_V_SHAPED = (Schedule.ZB_V, Schedule.V_HALF, Schedule.DUALPIPE_V)


def plan_of(row: Row, model: Model) -> Plan:
    """The plan of a row.

    Raises CannotExpress where a needed setting is missing, contradictory, or has no field.
    """
    habits = habits_of(row)
    mesh = _mesh(row, habits)
    schedule = _schedule(row)
    fields: dict[str, Any] = mesh | {"schedule": int(schedule)}
    if schedule in _V_SHAPED:
        fields["vpp"] = 2
    fields["micro_batch_size"] = _micro_batch(row, dp=mesh["dp"])
    fields |= stage_fields(row, habits, model, mesh["pp"] * fields["vpp"])
    fields |= _sharding(row, habits, mesh)
    fields |= precision_fields(row, habits)
    fields |= recompute_fields(row, flash=uses_flash(row, habits))
    fields |= offload_fields(row, layers=model.num_hidden_layers, pp=mesh["pp"])
    fields |= _overlaps(row, habits, vpp=fields["vpp"])
    fields |= _loss(row, habits)
    fields |= _tuning(row)
    fields["optimizer"] = optimizer_of(row)
    fields["flash_attention"] = uses_flash(row, habits)
    fields["compile"] = habits.compile or row.says("notes", r"\bcompiled?\b")
    return Plan(**fields)


def uses_flash(row: Row, habits: Habits) -> bool:
    """Whether attention runs as one fused kernel: as noted, else by the framework's year."""
    if row.says("notes", r"unfused|materiali[sz]ed attention|scaled masked softmax"):
        return False
    if row.says("notes", r"flash attention") or row.says("framework_version", r"flash"):
        return True
    return year_of(row) >= habits.flash_since


def _mesh(row: Row, habits: Habits) -> dict[str, Any]:
    """Axis sizes, checked against the number of GPUs."""
    tp, pp = row.needed("tp"), row.needed("pp")
    cp = row.integer("cp") or 1
    world = row.needed("num_gpus")
    dp = row.integer("dp") or max(world // (tp * pp * cp), 1)
    if tp * pp * cp * dp != world:
        raise CannotExpress(f"tp*pp*cp*dp = {tp * pp * cp * dp} is not num_gpus = {world}")
    ep = row.integer("ep") or 1
    etp = row.integer("etp") or _expert_tp(row, habits, tp=tp)
    if tp * cp * dp % (ep * etp):
        raise CannotExpress(f"ep*etp = {ep * etp} does not divide tp*cp*dp = {tp * cp * dp}")
    vpp = _virtual_stages(row, habits, pp)
    return {"tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "dp": dp, "ep": ep, "etp": etp}


def _expert_tp(row: Row, habits: Habits, *, tp: int) -> int:
    """Tensor parallelism of experts where it is not stated: Megatron's follows tp."""
    return tp if habits.megatron and row.integer("experts") else 1


def _virtual_stages(row: Row, habits: Habits, pp: int) -> int:
    """Chunks a rank, 1 without pipeline; only Megatron's kin interleave without saying so."""
    vpp = row.integer("vpp")
    if vpp is not None:
        return max(vpp, 1) if pp > 1 else 1
    if pp == 1 or row.says("pp_schedule", r"^1f1b|gpipe|zb-?[12]"):
        return 1
    if not habits.megatron and not row.says("pp_schedule", r"interleav"):
        return 1
    raise CannotExpress("vpp is not stated")


def _schedule(row: Row) -> Schedule:
    """The order of passes; blank is 1F1B."""
    written = row.text("pp_schedule")
    if not written or row.integer("pp") == 1:
        return Schedule.ONE_F_ONE_B
    for pattern, schedule in _SCHEDULES:
        if re.search(pattern, written, re.IGNORECASE):
            return schedule
    raise CannotExpress(f"pipeline schedule {written!r} is not modeled")


def _micro_batch(row: Row, *, dp: int) -> int:
    """Sequences in a micro-batch: stated, or what batch, dp and accumulation leave."""
    batch = row.needed("global_batch")
    if row.integer("micro_batch") is not None:
        stated = row.needed("micro_batch")
        if batch % (dp * stated):
            raise CannotExpress(
                f"global_batch {batch} is not a multiple of dp*micro_batch = {dp * stated}"
            )
        return stated
    steps = row.integer("grad_accum")
    if steps and batch % (dp * steps) == 0:
        return batch // (dp * steps)
    if batch == dp:
        return 1
    raise CannotExpress("micro_batch is not stated")


def _sharding(row: Row, habits: Habits, mesh: dict[str, Any]) -> dict[str, Any]:
    """ZeRO stage, sharding group and what the sequence-parallel flag says."""
    group = row.integer("fsdp_shard") or 0
    stage = row.integer("zero_stage")
    if stage is None:
        stage = 3 if habits.fsdp or group else 1
    replicas = mesh["dp"] * mesh["cp"]
    fields: dict[str, Any] = {
        "zero_stage": stage,
        "dp_replicate": _replicas(row, group, stage=stage, ranks=replicas, dp=mesh["dp"]),
        "sequence_parallel": _sequence_parallel(row, habits) and mesh["tp"] > 1,
    }
    if stage == 2 and (group or habits.fsdp):
        fields |= {"zero_stage": 3, "reshard_after_forward": False}
    if row.says("notes", r"reshard_after_forward false"):
        fields |= {"zero_stage": 3, "reshard_after_forward": False}
    return fields


def _replicas(row: Row, group: int, *, stage: int, ranks: int, dp: int) -> int:
    """Copies of each shard, from the sharding group's size."""
    noted = re.search(r"sharded over (\d+) ranks", row.text("notes"))
    if noted:
        group = int(noted.group(1))
    if stage == 0 or group in (0, dp, ranks):
        return 1
    if ranks % group:
        raise CannotExpress(f"fsdp_shard = {group} does not divide dp*cp = {ranks}")
    return ranks // group


def _sequence_parallel(row: Row, habits: Habits) -> bool:
    """As stated, else by the framework's habit."""
    stated = row.integer("sequence_parallel")
    return habits.tp_shards_sequence if stated is None else stated == 1


def _overlaps(row: Row, habits: Habits, *, vpp: int) -> dict[str, Any]:
    """Which communications the stack was told to hide."""
    column = "comm_overlap"
    stated = row.text(column)
    modern = year_of(row) >= 2023 and not row.says(column, r"^none")
    grads = row.says(column, r"\bdp\b|grad|ddp|fsdp|zero|xla") and not row.says(column, r"^none")
    gather = row.says(column, r"\bdp\b|param|fsdp|zero|xla") and not row.says(column, r"^none")
    return {
        "overlap_grad_reduce": grads if stated else modern,
        "overlap_param_gather": gather if stated else modern,
        "overlap_tp": row.says(column, r"\btp\b|async tp|mc2|xla"),
        "overlap_ep": row.says(column, r"a2a|all-to-all|\bep\b|dualpipe")
        or row.says("pp_schedule", r"dualpipe"),
        "overlap_pp": row.says(column, r"\bpp\b|p2p overlap|xla")
        or (modern and habits.megatron and vpp > 1),
        "cuda_graph": row.text("cuda_graph").lower() not in ("", "none", "off", "0"),
    }


def _loss(row: Row, habits: Habits) -> dict[str, Any]:
    """How the vocabulary layers and the loss run."""
    spread = r"vocabulary parallel|interlaced vocabulary|vocab-[12]"
    return {
        "fused_loss": habits.fused_loss,
        "vocab_over_pipeline": row.says("pp_schedule", spread),
        "vocab_interlaced": row.says("pp_schedule", "interlaced"),
        "loss_chunks": 8 if _ladder_reached(row, "chunked cross entropy") else 1,
    }


_LADDER = (
    "baseline",
    "packed",
    "compile",
    "chunked cross entropy",
    "activation checkpointing",
    "optimizer in backward",
    "activation offloading",
    "8-bit adamw",
)


def _ladder_reached(row: Row, step: str) -> bool:
    """True when the notes name `step` or a later one of a cumulative ladder of techniques."""
    match = re.search(r"technique ladder: \+?([^;]+)", row.text("notes"))
    if match is None:
        return row.says("notes", step)
    reached = match.group(1).strip().lower()
    return reached in _LADDER and _LADDER.index(reached) >= _LADDER.index(step)


def _tuning(row: Row) -> dict[str, Any]:
    """Low-rank adapters, the way context parallelism runs, gradients freed in the backward."""
    fields: dict[str, Any] = {}
    if row.says("task", r"lora"):
        rank = re.search(r"lora rank (\d+)", row.text("notes"), re.IGNORECASE)
        fields["lora_rank"] = int(rank.group(1)) if rank else 16
        fields["lora_all_linear"] = not row.says("framework", r"mlperf")
    if row.says("task", r"qlora"):
        fields["base_weight_bits"] = 4
    if row.says("notes", r"parallel algorithm ulysses|all-to-all context"):
        fields["context_parallel"] = int(ContextParallel.ULYSSES)
    if _ladder_reached(row, "optimizer in backward"):
        fields["grad_bytes"] = 0
    return fields
