"""torch's pipeline schedules as torchtitan 0.2 asks for them, judged by their own constructors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from comparing import Config, Subject
from fake_ranks import fake_world, stage

if TYPE_CHECKING:
    import random

LAYERS = 32
SCHEDULES = (
    *("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS"),
    *("ZBVZeroBubble", "DualPipeV"),
)


def draw(rng: random.Random) -> Config:
    """A schedule over 2 to 8 ranks with chunks and micro-batches around what it takes."""
    pp = rng.choice((2, 3, 4, 8))
    return {
        "gpus": pp,
        "schedule": rng.choice(SCHEDULES) if rng.random() < 0.95 else "1F1B-Interleaved",
        "pp": pp,
        "chunks": rng.choice((1, 2, 2, 2, 3)),
        "micro_batches": rng.choice((1, pp - 1, pp, pp + 1, 2 * pp, 2 * pp + 1, 3 * pp, 4 * pp)),
    }


def text(config: Config) -> str:
    """The job file of torchtitan 0.2 whose pipeline this is, its layers dealt out in order."""
    stages = config["pp"] * config["chunks"]
    parts = [
        [f"layers.{n}" for n in range(LAYERS) if n * stages // LAYERS == i] for i in range(stages)
    ]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return f"""# {config["pp"]} GPUs
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = {config["micro_batches"]}
seq_len = 8192

[parallelism]
data_parallel_shard_degree = 1
pipeline_parallel_degree = {config["pp"]}
pipeline_parallel_schedule = "{config["schedule"]}"
pipeline_parallel_microbatch_size = 1
module_fqns_per_model_part = {json.dumps(parts)}
"""


def judge(config: Config) -> None:
    """Builds the schedule of rank 0 over stages without modules."""
    from torch.distributed.pipelining import schedules

    count = config["pp"] * config["chunks"]
    kind = schedules.get_schedule_class(config["schedule"])
    with fake_world(config["pp"]):
        stages = [stage(n, count, config["pp"]) for n in _held(config, count)]
        built: Any = stages if issubclass(kind, schedules.PipelineScheduleMulti) else stages[0]
        if not isinstance(built, list) and count != config["pp"]:
            raise ValueError("one stage a rank")  # torch is handed one; torchtitan refuses
        kind(built, n_microbatches=config["micro_batches"], loss_fn=lambda *_: 0)


def _held(config: Config, count: int) -> list[int]:
    """The stages of rank 0: every pp-th, or both ends of a V."""
    if config["schedule"] in ("ZBVZeroBubble", "DualPipeV") and config["chunks"] == 2:
        return [0, count - 1]
    return list(range(0, count, config["pp"]))


SUBJECT = Subject(
    name="torch schedules",
    framework="torchtitan",
    version="0.2.2",
    file="train.toml",
    draw=draw,
    text=text,
    judge=judge,
)
