"""What the software itself costs: steps of models so small that their kernels take no time.

Two depths and two numbers of micro-batches tell what a block, a micro-batch and a step cost; what
the measured curves say of the kernels and transfers inside is taken off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.noun import dataclass
from meshwright.model.config import model_from_config
from meshwright.plan.plan import ContextParallel, Plan, Precision
from meshwright.train.assemble import Blueprint, assemble
from meshwright.train.engine import Engine
from meshwright.train.mesh import Mesh
from meshwright.train.model.configuration import configuration_from_keys
from meshwright.train.model.initial import initialize
from meshwright.train.numbers import numbers_of
from meshwright.train.optimizer import build
from meshwright.train.settings import Recipe
from meshwright.train.step import train_step

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.calibrate.timing import Clock
    from meshwright.train.optimizer import Optimizers

SHALLOW, DEEP = 2, 6
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}
SEQ_LEN = 16
ONE = Plan(
    precision=int(Precision.FP32),
    param_bytes=4,
    master_weights=False,
    zero_stage=0,
    context_parallel=int(ContextParallel.ALL_GATHER),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds of one small step: a forward pass, all passes, everything."""

    layers: int
    micro_batches: int
    forward_s: float
    passes_s: float
    step_s: float


def plans() -> dict[str, Plan]:
    """What is tried, by the axis that it is about; all but "one" on two ranks."""
    return {
        "one": ONE,
        "tp": replace(ONE, tp=2),
        "cp": replace(ONE, cp=2, zero_stage=3),
        "fsdp": replace(ONE, dp=2, zero_stage=3),
        "pp": replace(ONE, pp=2),
    }


def steps(clock: Clock, plan: Plan, micro_batches: tuple[int, ...]) -> list[Step]:
    """Small steps of a plan on this rank, for either depth and each number of micro-batches."""
    return [
        _step(clock, plan, layers=layers, micro_batches=count)
        for layers in (SHALLOW, DEEP)
        for count in micro_batches
    ]


def _step(clock: Clock, plan: Plan, *, layers: int, micro_batches: int) -> Step:
    engine, optimizers = engine_of(TINY | {"num_hidden_layers": layers}, plan, SEQ_LEN)
    batches = synthetic(engine, rows=micro_batches)
    count = sum(batch["labels"].numel() for batch in batches)

    def passes() -> None:
        engine.forward_backward(batches, tokens=count)
        optimizers.zero_grad()

    forward_s = 0.0
    if int(plan.pp) == 1:
        batch = {k: v for k, v in batches[0].items() if k != "tokens"}
        forward_s = clock.seconds(lambda: engine.stages[0](batches[0]["tokens"], **batch))
    return Step(
        layers=layers,
        micro_batches=micro_batches,
        forward_s=forward_s,
        passes_s=clock.seconds(passes),
        step_s=clock.seconds(lambda: train_step(engine, optimizers, batches, clip_norm=1.0)),
    )


def engine_of(keys: dict[str, Any], plan: Plan, seq_len: int) -> tuple[Engine, Optimizers]:
    """The engine of a plan on this rank and its optimizer, with random values."""
    config = configuration_from_keys(keys)
    device_type = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    mesh = Mesh(plan, device_type=device_type)
    blueprint = Blueprint(
        config=config,
        model=model_from_config(config.to_dict()),
        plan=plan,
        numbers=numbers_of(plan),
        seq_len=seq_len,
    )
    stages = assemble(blueprint, mesh)
    device = torch.device(device_type)
    initialize(stages, config, seed=0, device=device)
    engine = Engine(stages, mesh, blueprint, device=device)
    return engine, build(engine, Recipe())


def synthetic(engine: Engine, *, rows: int) -> list[dict[str, Tensor]]:
    """`rows` micro-batches of random tokens on this rank."""
    positions = engine.stages[0].slices.positions
    shape = (int(engine.plan.micro_batch_size), len(positions))
    vocabulary = engine.blueprint.config.vocab_size
    source = torch.Generator().manual_seed(engine.mesh.dp_rank)

    def tokens() -> Tensor:
        return torch.randint(0, vocabulary, shape, generator=source).to(engine.device)

    return [
        {"tokens": tokens(), "labels": tokens(), "position_ids": positions.expand(shape)}
        for _ in range(rows)
    ]
