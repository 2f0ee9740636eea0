"""Memory, time and money of a job: columns for a search, a tree of terms for one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.calibration import default_calibration, is_measured
from meshwright.cost.memory import meanings, memory, memory_stack, stage_memory
from meshwright.cost.step import combine, step_time
from meshwright.cost.terms import FIT, TIME, Meaning, Term
from meshwright.hardware import efficiency
from meshwright.model.flops import flops_per_token
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import PEAK_NAME, Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.memory import Memory
    from meshwright.cost.step import StepTime
    from meshwright.cost.tables import Tables
    from meshwright.plan.job import Job

NINETY_PERCENT = 1.645  # half-width of a 90% normal interval in standard deviations
TEAMS_SIGMA = 0.14  # two teams on one plan: 23% apart at the 90th percentile of 282 such groups
MFU_CONVENTION = "model_causal"
WHOLE = Meaning(
    formula="the fullest moment of the step", source="maximum of its moments", evidence="exact"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Costs of a column of plans: seconds a step, peak and required bytes on the fullest rank.

    `upper_bytes` is what a device must have for the plan to fit: the upper bound of the allocated
    peak, with context and communication buffers. `host_bytes` is per node.
    """

    step_s: Any
    peak_bytes: Any
    upper_bytes: Any
    host_bytes: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one plan costs.

    `low_s` and `high_s` bound the step time with 90% confidence. `peak_bytes` is the allocated
    peak of the fullest rank, `upper_bytes` its upper bound, `required_bytes` the memory a device
    needs for it. `mfu` uses the convention named beside it. `terms` holds every part by its dotted
    name; `limited_by` names the largest loss.
    """

    step_time_s: float
    low_s: float
    high_s: float
    peak_bytes: float
    upper_bytes: float
    required_bytes: float
    host_bytes: float
    fullest_stage: int
    mfu: float
    mfu_convention: str
    limited_by: str
    terms: Mapping[str, Term]

    def __repr__(self) -> str:
        """The heads; `terms` has the rest."""
        return (
            f"Prediction({self.step_time_s:.4g} s a step, {self.peak_bytes / 2**30:.1f} GiB, "
            f"MFU {100 * self.mfu:.1f}%, limited by {self.limited_by})"
        )


def evaluate(
    job: Job,
    calibration: Calibration | None = None,
    *,
    shared: Tables | None = None,
) -> Evaluation:
    """Step time and memory of the job's plans, broadcast over their columns.

    `shared` are the tables of these plans, computed for many blocks of a search at once.
    """
    calibration = calibration or default_calibration()
    stack = memory_stack(job.stack)
    if shared is None:
        used = memory(job, stack)
        time = step_time(job, calibration, peak_bytes=used.peak_bytes)
    else:
        used = stage_memory(job, shared.kept, stack, stages=shared.stages, detail=False)
        time = combine(
            job, shared.times, calibration, peak_bytes=used.peak_bytes, stages=shared.stages
        )
    return Evaluation(
        step_s=time.step_s,
        peak_bytes=used.peak_bytes,
        upper_bytes=used.required_bytes,
        host_bytes=used.host_bytes,
    )


def predict(job: Job, calibration: Calibration | None = None) -> Prediction:
    """The full prediction of one plan (scalars)."""
    calibration = calibration or default_calibration()
    used = memory(job, memory_stack(job.stack))
    time = step_time(job, calibration, peak_bytes=used.peak_bytes, detail=True)
    step = float(time.step_s)
    width = float(np.exp(NINETY_PERCENT * sigma(job, calibration)))
    parts = time_terms(job, time)
    return Prediction(
        step_time_s=step,
        low_s=step / width,
        high_s=step * width,
        peak_bytes=float(used.peak_bytes),
        upper_bytes=float(used.upper_bytes),
        required_bytes=float(used.required_bytes),
        host_bytes=float(used.host_bytes),
        fullest_stage=int(used.stage),
        mfu=model_flops_utilization(job, step, mfu_convention(job)),
        mfu_convention=mfu_convention(job),
        limited_by=_limit(parts, step),
        terms={**parts, **_memory_terms(job, used)},
    )


def _memory_terms(job: Job, used: Memory) -> dict[str, Term]:
    """Memory's terms by name: the fullest rank's peak, each rank's peak, then every part."""
    peaks = {n.removesuffix(".peak"): v for n, v in used.terms.items() if n.endswith(".peak")}
    heads = {"memory": used.peak_bytes, **peaks}
    terms = {name: _memory_term(name, value, WHOLE, {}) for name, value in heads.items()}
    by_rank = meanings.operands_by_rank(job)
    operands = {name: by_rank[_rank(name)] for name in peaks}
    for name, value in used.terms.items():
        meaning = meanings.meaning_of(name) or WHOLE
        terms[name] = _memory_term(name, value, meaning, operands[".".join(name.split(".")[:2])])
    return terms


def _memory_term(name: str, value: Any, meaning: Meaning, operands: Mapping[str, float]) -> Term:
    """One term with what its name means."""
    return Term(
        value=float(value),
        unit=meanings.unit_of(name),
        formula=meaning.formula,
        source=meaning.source,
        evidence=meaning.evidence,
        operands=operands,
    )


def _rank(name: str) -> int:
    """The pipeline rank of `memory.stage<rank>`."""
    return int(name.removeprefix("memory.stage"))


def sigma(job: Job, calibration: Calibration) -> float:
    """Standard deviation of log(measured/predicted) on this stack and hardware.

    Never below what two teams differ by on the same plan, however well a stack was fitted.
    """
    stack = calibration.stack(job.stack)
    hardware = calibration.hardware_fit(job.cluster.gpu.generation)
    return float(max(stack.sigma, hardware.sigma, TEAMS_SIGMA))


def mfu_convention(job: Job) -> str:
    """How the model FLOPs of the job's MFU are counted; frozen weights have no weight gradients."""
    return "lora_causal" if int(job.plan.lora_rank) > 0 else MFU_CONVENTION


def model_flops_utilization(job: Job, step_s: float, convention: str = MFU_CONVENTION) -> float:
    """Model FLOPs over what the GPUs could do in the step at the precision's dense peak."""
    work, gpu = job.workload, job.cluster.gpu
    tokens = work.global_batch_size * work.seq_len
    name = PEAK_NAME[Precision(int(job.plan.precision))]
    peak = gpu.peak_flops.get(name) or max(gpu.peak_flops.values())
    flops = float(flops_per_token(job.model, work.seq_len, convention=convention)) * tokens
    return flops / (step_s * job.cluster.num_gpus * peak)


def time_terms(job: Job, time: StepTime) -> dict[str, Term]:
    """The step's seconds as a tree; the leaves below `time` add up to the step."""
    leaves = {name: float(seconds) for name, seconds in time_leaves(job, time).items()}
    totals = {
        "time": float(time.step_s),
        "time.compute": sum(v for n, v in leaves.items() if n.startswith("time.compute.")),
        "time.communication": sum(
            v for n, v in leaves.items() if n.startswith("time.communication.")
        ),
    }
    operands = _operands(job)
    terms = {}
    for name, value in {**totals, **leaves}.items():
        source, evidence = _time_basis(job, TIME[name], name)
        terms[name] = Term(
            value=float(value),
            unit="s",
            formula=TIME[name].formula,
            source=source,
            evidence=evidence,
            operands=operands,
        )
    return terms


def _time_basis(job: Job, meaning: Meaning, name: str) -> tuple[str, str]:
    """Source and evidence of a term: the machine's own measurements where it has them."""
    gpu = job.cluster.gpu
    own = f"{gpu.source}, {gpu.date}"
    if meaning.evidence == "fitted" and is_measured(job):
        paper = meaning.source.removesuffix(FIT).rstrip("; ")
        return (f"{paper}; {own}" if paper else own), "measured"
    if meaning.evidence != "measured":
        return meaning.source, meaning.evidence
    if gpu.curves is not None and not gpu.curves.partial:
        return own, "measured"
    of_attention = name == "time.compute.attention" and gpu.curves is not None
    evidence = efficiency.evidence(gpu, "attention" if of_attention else "matmul")
    return (own if _told(job, of_attention=of_attention) else meaning.source), evidence


def _told(job: Job, *, of_attention: bool) -> bool:
    """Whether traces of a run told the curve of the products, or of attention."""
    curves = job.cluster.gpu.curves
    return curves is not None and bool(curves.attention if of_attention else curves.matmul)


def time_leaves(job: Job, time: StepTime) -> dict[str, Any]:
    """Exclusive seconds by cause, for one plan or columns; together they are the step.

    The host takes what the slowest rank does besides; where the pipeline is shorter than that
    rank's busy time, hosts hide behind each other.
    """
    parts: Mapping[str, Any] = time.parts
    busy = num_microbatches(job) * time.slowest.total_s
    filled = time.pipeline_s - time.bubble_s
    on_device = sum(seconds for name, seconds in parts.items() if name != "host")
    return {
        "time.compute.matmul": parts["matmul"],
        "time.compute.attention": parts["attention"],
        "time.compute.elementwise": parts["elementwise"],
        "time.compute.recompute": parts["recompute"],
        "time.compute.host": np.minimum(busy, filled) - on_device,
        "time.communication.tp": parts["tp"],
        "time.communication.cp": parts["cp"],
        "time.communication.ep": parts["ep"],
        "time.communication.pp": np.maximum(filled - busy, 0.0),
        "time.communication.dp": time.dp_s,
        "time.communication.fsdp": parts["fsdp"],
        "time.communication.host": parts["offload"],
        "time.bubble": time.bubble_s,
        "time.optimizer": time.optimizer_s,
        "time.fixed": time.fixed_s,
        "time.stall": time.stall_s,
        "time.straggler": time.straggler_s,
    }


def _operands(job: Job) -> dict[str, float]:
    """The quantities that the formulas of the time terms name."""
    plan, work = job.plan, job.workload
    return {
        "micro_batches": float(num_microbatches(job)),
        "tokens": float(plan.micro_batch_size * work.seq_len / plan.cp),
        "hidden": float(job.model.hidden_size),
        "layers": float(job.model.num_hidden_layers),
        "tp": float(plan.tp),
        "pp": float(plan.pp),
        "cp": float(plan.cp),
        "ep": float(plan.ep),
        "dp": float(plan.dp),
    }


LIMITS = {
    "time.bubble": "pipeline bubble",
    "time.communication.tp": "tp communication",
    "time.communication.cp": "cp communication",
    "time.communication.ep": "expert all-to-all",
    "time.communication.pp": "pipeline hand-overs",
    "time.communication.dp": "gradient reduction",
    "time.communication.fsdp": "parameter gathering",
    "time.communication.host": "offload to the host",
    "time.compute.recompute": "recompute",
    "time.compute.host": "host launches",
    "time.compute.attention": "attention",
    "time.compute.elementwise": "memory-bound kernels",
    "time.optimizer": "optimizer step",
    "time.stall": "stalls",
}


def _limit(terms: Mapping[str, Term], step_s: float) -> str:
    """The largest cost besides the matrix products, with its share of the step."""
    name = max(LIMITS, key=lambda n: terms[n].value)
    return f"{LIMITS[name]} {100 * terms[name].value / step_s:.0f}%"
