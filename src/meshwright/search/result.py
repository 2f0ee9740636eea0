"""What a search returns: candidates, the census of refusals, and what would change the answer."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.plan.job import Job, num_microbatches
from meshwright.plan.plan import ContextParallel, Optimizer, Plan, Precision, Recompute, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.base.finding import Finding
    from meshwright.cost.predict import Prediction

GIB = 2.0**30
SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One feasible plan with its prediction."""

    job: Job
    prediction: Prediction

    def __repr__(self) -> str:
        return f"Candidate({describe(self.plan)}: {self.prediction})"

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.job.plan

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Training throughput of one GPU."""
        work = self.job.workload
        tokens = work.global_batch_size * work.seq_len
        return tokens / self.prediction.step_time_s / self.job.cluster.num_gpus

    @property
    def days_per_trillion_tokens(self) -> float:
        """Days to train 10^12 tokens at this rate, no failures counted."""
        per_s = self.tokens_per_s_per_gpu * self.job.cluster.num_gpus
        return 1e12 / per_s / SECONDS_PER_DAY

    @property
    def dollars_per_trillion_tokens(self) -> float | None:
        """Price of 10^12 tokens in USD, None where the GPU has no listed price."""
        price = self.job.cluster.price_per_gpu_hour
        if price is None:
            return None
        return self.days_per_trillion_tokens * 24.0 * price * self.job.cluster.num_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A legal plan that does not fit: by how many bytes, and what would admit it."""

    job: Job
    upper_bytes: float
    over_bytes: float
    step_time_s: float
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """An assumption which, if wrong by `factor`, would change the winner to `plan`."""

    assumption: str
    factor: float
    winner: Plan
    regret: float  # how much slower today's winner would then be


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A constraint whose removal makes the search feasible, and how many plans that admits."""

    constraint: str
    admits: int
    example: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of `plan`. `rows` are the best distinct plans; empty when nothing fits.

    `rejected` maps a rule code (or "memory") to the number of candidates it refused; `candidates`
    counts all plans of the space, `costed` those fully predicted, `feasible` those that fit. When
    the rules admit no plan at all, `refusals` is what they have against the least illegal one.
    """

    job: Job
    rows: tuple[Candidate, ...]
    candidates: int
    costed: int
    feasible: int
    rejected: Mapping[str, int]
    frontier: tuple[Candidate, ...] = ()
    misses: tuple[Miss, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    minimum_gpus: int | None = None
    sensitivity: tuple[Swing, ...] = ()
    assumptions: tuple[str, ...] = ()
    objective: str = "throughput"
    refusals: tuple[Finding, ...] = ()
    limit_bytes: float = 0.0
    seconds: float = 0.0
    interrupted: bool = False  # stopped by the user: the best of a part of the space only
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Candidate | None:
        """The best plan by the objective, None when nothing fits."""
        return self.rows[0] if self.rows else None

    def table(self) -> list[dict[str, Any]]:
        """The rows as dictionaries with units in the names, for data frames and JSON."""
        return [summary(candidate) for candidate in self.rows]

    def __repr__(self) -> str:
        best = describe(self.rows[0].plan) if self.rows else "nothing fits"
        return f"Result({best}; {self.feasible} of {self.candidates} plans fit)"

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        from html import escape

        rows = self.table()
        if not rows:
            return "<p>no feasible plan</p>"
        head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_short(v))}</td>" for v in row.values()) + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _short(value: Any) -> str:
    """A cell of the notebook's table: floats to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(candidate: Candidate) -> dict[str, Any]:
    """One row of the table."""
    plan, prediction = candidate.plan, candidate.prediction
    return {
        "mesh": mesh(plan),
        "micro_batch_size": int(plan.micro_batch_size),
        "num_microbatches": int(num_microbatches(candidate.job)),
        "schedule": schedule(plan),
        "recompute": recompute(plan),
        "sharding": sharding(plan),
        "peak_gib": prediction.peak_bytes / GIB,
        "upper_gib": prediction.upper_bytes / GIB,
        "needs_gib": prediction.required_bytes / GIB,
        "step_s": prediction.step_time_s,
        "low_s": prediction.low_s,
        "high_s": prediction.high_s,
        "tokens_per_s_per_gpu": candidate.tokens_per_s_per_gpu,
        "mfu": prediction.mfu,
        "days_per_trillion_tokens": candidate.days_per_trillion_tokens,
        "dollars_per_trillion_tokens": candidate.dollars_per_trillion_tokens,
        "limited_by": prediction.limited_by,
    }


def describe(plan: Plan) -> str:
    """The plan in one line."""
    parts = [mesh(plan), f"mbs{int(plan.micro_batch_size)}", schedule(plan), recompute(plan)]
    return " ".join([*parts, sharding(plan)])


def mesh(plan: Plan) -> str:
    """Degrees above one, as "tp8 pp2 dp4"; dp always; how context is exchanged if not in a ring."""
    names = ("tp", "pp", "cp", "ep", "etp")
    degrees = {n: f"{n}{int(getattr(plan, n))}" for n in names if getattr(plan, n) > 1}
    kind = ContextParallel(int(plan.context_parallel))
    if "cp" in degrees and kind != ContextParallel.RING:
        degrees["cp"] += f"-{kind.name.lower().replace('_', '-')}"
    return " ".join([*degrees.values(), f"dp{int(plan.dp)}"])


def schedule(plan: Plan) -> str:
    """The schedule's name with its virtual stages."""
    if int(plan.pp) == 1:
        return "-"
    kind = Schedule(int(plan.schedule))
    name = kind.name.lower().replace("one_f_one_b", "1f1b").replace("_", "-")
    vpp = int(plan.vpp)
    name = f"interleaved v{vpp}" if kind == Schedule.ONE_F_ONE_B and vpp > 1 else name
    return name + (" balanced" if plan.loss_in_split else "")


def recompute(plan: Plan) -> str:
    """What is recomputed."""
    kind = Recompute(int(plan.recompute))
    if kind == Recompute.NONE:
        return "none"
    if kind == Recompute.FULL:
        layers = int(plan.recompute_layers)
        return f"full {layers}/stage" if layers else "full"
    from meshwright.plan.plan import RecomputeModule

    modules = RecomputeModule(int(plan.recompute_modules))
    return "+".join((m.name or "").lower() for m in modules)


def sharding(plan: Plan) -> str:
    """ZeRO stage, replicas of the sharding group (HSDP), and what is offloaded to the host."""
    stage = int(plan.zero_stage)
    name = f"zero{stage}" if stage < 3 else "fsdp"
    if int(plan.dp_replicate) > 1:
        name = f"hsdp x{int(plan.dp_replicate)}" if stage == 3 else f"{name} x{plan.dp_replicate}"
    if stage == 3 and not plan.reshard_after_forward:
        name += " no-reshard"
    shares = {
        "optimizer": plan.offload_optimizer,
        "activations": plan.offload_activations,
        "weights": plan.offload_params,
    }
    hosted = [what for what, share in shares.items() if share]
    return f"{name} +offload {' '.join(hosted)}" if hosted else name


def assumed(job: Job) -> tuple[str, ...]:
    """What the user did not say and the prediction takes for granted."""
    plan = job.plan
    precision = Precision(int(plan.precision)).name.lower()
    state = "fp32 master" if plan.master_weights else "no master copy"
    return (
        f"{precision} products",
        f"{Optimizer(int(plan.optimizer)).name.lower()} with {state}",
        f"{8 * int(plan.grad_bytes)}-bit gradients",
        "flash attention" if plan.flash_attention else "unfused attention",
        f"software stack {job.stack!r}",
    )
