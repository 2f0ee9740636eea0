"""Random plans on at most eight ranks: what the rules allow must be exact, what not must be told.

Nothing is shrunk: sizes, sequence lengths, vocabularies and batches are drawn too, and many of them
do not divide by anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from training_cases import FAMILIES, ROUTED

from meshwright.base.finding import Finding, Severity
from meshwright.plan.file import parse_job
from meshwright.plan.plan import ContextParallel, Optimizer, Plan, Recompute, Schedule
from meshwright.plan.stages import V_SCHEDULES

if TYPE_CHECKING:
    from random import Random

    from meshwright.plan.job import Job

MOST_RANKS = 8
_AXES = ("tp", "pp", "cp", "dp")
_SCHEDULES = tuple(s for s in Schedule if s is not Schedule.DUALPIPE)
_MODULES = (1, 2, 4, 8, 16, 32, 64, 128, 3, 7, 18, 36)  # sets of RecomputeModule
_JOB = """
[model]
model_type = "llama"
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 4
num_attention_heads = 4
vocab_size = 512
[cluster]
gpu = "H100-80G-SXM:{ranks}"
nodes = 1
[workload]
seq_len = 64
global_batch = 8
[plan]
dp = {ranks}
"""


class Drawn(NamedTuple):
    """A family with changes to its tiny configuration, a workload and a plan."""

    family: str
    changes: dict[str, Any]
    seq_len: int
    global_batch_size: int
    plan: Plan

    @property
    def ranks(self) -> int:
        """Processes."""
        p = self.plan
        return int(p.tp) * int(p.pp) * int(p.cp) * int(p.dp)


def draw(source: Random) -> Drawn:
    """A random plan for a random tiny model."""
    family, degrees = source.choice(FAMILIES), _degrees(source)
    pipeline, layers = _pipeline(source, degrees["pp"])
    size = source.choice((1, 1, 2, 3))
    batch = degrees["dp"] * size * source.choice((1, 2, 3, 4, 4, 6))
    plan = Plan(
        **degrees,
        **pipeline,
        **_sharding(source, degrees),
        **_tensors(source),
        **_context(source, degrees["cp"]),
        **_recomputed(source),
        **_updated(source),
        **(_experts(source) if family in ROUTED and source.random() < 0.7 else {}),
        micro_batch_size=size,
    )
    return Drawn(
        family=family,
        changes={"layers": layers, **_sizes(source)},
        seq_len=_mostly(source, (16, 16, 24, 32), (15, 18, 20, 7)),
        global_batch_size=batch + (source.random() < 0.05),
        plan=plan,
    )


def job_of(drawn: Drawn) -> tuple[Any, Job]:
    """The configuration of transformers, and the job on a node of as many GPUs as ranks."""
    from meshwright.model.config import model_from_config
    from meshwright.train.model.tiny import tiny_config

    config = tiny_config(drawn.family, **drawn.changes)
    job = parse_job(_JOB.format(ranks=drawn.ranks), file="plan.toml")
    workload = replace(
        job.workload, seq_len=drawn.seq_len, global_batch_size=drawn.global_batch_size
    )
    model = model_from_config(config.to_dict())
    return config, replace(job, model=model, workload=workload, plan=drawn.plan)


def errors(job: Job) -> list[Finding]:
    """What rules and engine have against a job."""
    from meshwright.rules.rule import check
    from meshwright.train.refusals import refusals

    return [f for f in (*check(job), *refusals(job)) if f.severity is Severity.ERROR]


def _mostly(source: Random, usual: tuple[int, ...], rare: tuple[int, ...]) -> int:
    return source.choice(rare if source.random() < 0.15 else usual)


def _degrees(source: Random) -> dict[str, int]:
    """Two to eight ranks."""
    while True:
        found = {axis: source.choice((1, 1, 2, 2, 3, 4)) for axis in _AXES}
        ranks = found["tp"] * found["pp"] * found["cp"] * found["dp"]
        if 2 <= ranks <= MOST_RANKS:
            return found


def _sizes(source: Random) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        "kv_heads": source.choice((1, 2, 2, 4, 4)),
        "tie_word_embeddings": source.choice((None, None, True, False)),
    }
    if source.random() < 0.2:
        sizes["vocab_size"] = source.choice((97, 98, 101, 110))
    if source.random() < 0.15:
        sizes["intermediate_size"] = source.choice((50, 45, 40))
    return sizes


def _pipeline(source: Random, pp: int) -> tuple[dict[str, Any], int]:
    """Schedule and split, and the layers of the model."""
    layers = source.choice((1, 2, 3, 4, 4, 5, 6, 8))
    if pp == 1:
        return {}, layers
    schedule = source.choice(_SCHEDULES)
    fields: dict[str, Any] = {
        "schedule": int(schedule),
        "vpp": _mostly(source, (1, 1, 2), (3,)),
        "embedding_in_split": source.random() < 0.25,
        "loss_in_split": source.random() < 0.25,
    }
    how = source.random()
    if how < 0.2:
        chunks = pp * (2 if int(schedule) in V_SCHEDULES else fields["vpp"])
        layout = tuple(source.randint(0, 3) for _ in range(chunks))
        fields |= {"layout": layout, "embedding_in_split": False, "loss_in_split": False}
        layers = max(sum(layout), 1)
    elif how < 0.4:
        fields |= {name: source.randint(0, 2) for name in _ENDS}
    return fields, layers


_ENDS = ("first_stage_layers", "last_stage_layers")


def _sharding(source: Random, degrees: dict[str, int]) -> dict[str, Any]:
    dp = degrees["dp"]
    return {
        "zero_stage": source.choice((0, 1, 2, 3, 3)),
        "reshard_after_forward": source.random() < 0.6,
        "dp_replicate": source.choice([n for n in range(1, dp + 1) if dp % n == 0]),
    }


def _tensors(source: Random) -> dict[str, Any]:
    return {
        "sequence_parallel": source.random() < 0.6,
        "vocab_parallel": source.random() < 0.7,
        "loss_parallel": source.random() < 0.6,
        "loss_chunks": source.choice((1, 1, 2, 3, 5)),
    }


def _context(source: Random, cp: int) -> dict[str, Any]:
    if cp == 1:
        return {}
    return {
        "context_parallel": int(source.choice(list(ContextParallel))),
        "cp_inner": source.choice((1, 2)),
    }


def _recomputed(source: Random) -> dict[str, Any]:
    kind = source.choice((0, 0, 1, 2))
    if kind == Recompute.FULL:
        return {
            "recompute": kind,
            "recompute_layers": source.choice((0, 0, 1, 2)),
            "recompute_uniform": source.random() < 0.3,
        }
    return {"recompute": kind, "recompute_modules": source.choice(_MODULES)}


def _updated(source: Random) -> dict[str, Any]:
    """Half of the plans have AdamW, a fifth of them adapters."""
    kinds = (Optimizer.ADAM, Optimizer.ADAFACTOR, Optimizer.MUON, Optimizer.SGD_MOMENTUM)
    return {
        "optimizer": int(source.choice((Optimizer.ADAM, Optimizer.ADAM, *kinds[1:]))),
        "lora_rank": source.choice((0, 0, 0, 0, 3)),
        "lora_all_linear": source.random() < 0.5,
    }


def _experts(source: Random) -> dict[str, Any]:
    return {"ep": source.choice((1, 2, 2, 4, 8)), "etp": source.choice((1, 1, 2, 4))}
