"""From a reading to a job: what the configuration states, what is given, what stands in.

A configuration seldom says everything a job needs. The model may be known by name only, the GPUs
by nothing. What is missing is stood in for twice (see `shape.stand_ins`): by ordinary values and
by accommodating ones. The two jobs are equal where nothing is missing.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.frameworks.setting import UNKNOWN
from meshwright.frameworks.shape import ESSENTIAL, is_whole, shaped, stand_ins
from meshwright.frameworks.workloads import SHORT_SEQ_LEN, workloads
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan, Recompute
from meshwright.plan.words import FIELDS, read_word

if TYPE_CHECKING:
    from meshwright.base.problem import Problem
    from meshwright.frameworks.reading import Reading
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model

SHAPE = (
    *ESSENTIAL,
    *("num_key_value_heads", "head_dim", "v_head_dim", "intermediate_size", "vocab_size"),
    *("max_position_embeddings", "position_embedding_type", "tie_word_embeddings"),
    *("gated_mlp", "hidden_act", "add_bias_linear", "qk_norm", "sliding_window"),
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_layer_freq"),
    *("shared_expert_intermediate_size", "n_shared_experts", "first_k_dense_replace"),
    *("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "mtp_num_layers"),
)
USUAL_GPU = "H100"
OTHER_GPU = "A100-80GB"
_MOST_GPUS = 10**6  # as many nodes as a cluster may have
_LARGEST_DIMENSION = 10**7


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """The job of a configuration, with what was missing.

    `job` has ordinary values in place of what is missing, `other` accommodating ones; a finding
    that holds for both is certain. `missing` names what stands in ("model", "gpu", "num_gpus",
    "seq_len", "micro_batch_size", "global_batch_size", "precision", "recompute", "zero_stage"),
    `problems` stated values that no plan can hold.
    `by_default` names what takes memory and is as the framework has it where nobody says so
    ("micro_batch_size", "seq_len").
    """

    job: Job
    other: Job
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    by_default: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, so that memory and time can be predicted."""
        return not {"model", "gpu", "num_gpus"} & {*self.missing}

    @property
    def is_sized(self) -> bool:
        """Whether what a step computes is known: sequence length, micro-batch, global batch."""
        return not {"seq_len", "micro_batch_size", "global_batch_size"} & {*self.missing}


def draft(
    reading: Reading, *, model: Model | None = None, cluster: Cluster | None = None
) -> Drafted:
    """The job that a configuration states, with `model` and `cluster` where they are given."""
    plan, problems = _plan(reading)
    missing: list[str] = []
    stack = _stack(reading)
    if (whole := _whole(reading)) is not None:
        model, cluster, stack = model or whole.model, cluster or whole.cluster, whole.stack
    models = _models(reading, model, plan, missing)
    if not models[0].is_moe and plan.ep == 1 and reading.value("etp_explicit") is None:
        plan = plan.replace(etp=1)  # frameworks let it default to tp, and do not use it
    plan = _of_model(reading, plan, models[0])
    clusters = _clusters(reading, cluster, plan, missing)
    first, second = (
        _with_kernels(reading, _with_replicas(reading, plan, c.num_gpus), c) for c in clusters
    )
    if _program_decides(reading) and reading.value("recompute") is None:
        missing.append("recompute")
        second = second.replace(recompute=int(Recompute.FULL))
    if (stage := reading.values.get("zero_stage")) is not None and stage.value is UNKNOWN:
        missing.append("zero_stage")
        first = first.replace(zero_stage=2)
        second = second.replace(zero_stage=3, offload_optimizer=1.0, offload_params=True)
    if _leaves_precision(reading):
        missing.append("precision")
    if reading.value("micro_batch_size") is None:
        missing.append("micro_batch_size")
    works = workloads(reading, (first, second), models, missing)
    jobs = [
        Job(model=m, cluster=c, workload=w, plan=p, stack=stack)
        for m, c, w, p in zip(models, clusters, works, (first, second), strict=True)
    ]
    return Drafted(
        job=jobs[0],
        other=jobs[1] if missing else jobs[0],
        missing=tuple(missing),
        problems=tuple(problems),
        by_default=tuple(name for name in _SIZES if _is_default(reading, name)),
    )


_SIZES = ("micro_batch_size", "seq_len")


def _is_default(reading: Reading, name: str) -> bool:
    found = reading.values.get(name)
    return found is not None and not found.settings and found.value is not None


def lean(drafted: Drafted) -> Job:
    """The job with the least that a sequence and a micro-batch may be where defaults stand."""
    job = drafted.other
    if "micro_batch_size" in drafted.by_default:
        job = job.with_plan(job.plan.replace(micro_batch_size=1))
    if "seq_len" in drafted.by_default:
        short = min(job.workload.seq_len, SHORT_SEQ_LEN)
        job = replace(job, workload=replace(job.workload, seq_len=short))
    return job


def _of_model(reading: Reading, plan: Plan, model: Model) -> Plan:
    """The plan with a default number of layers, that of the framework's default model, rescaled."""
    own, covered = reading.values.get("num_hidden_layers"), reading.values.get("recompute_layers")
    if own is None or covered is None or covered.settings or not own.default:
        return plan
    if not isinstance(own.value, int) or own.value < 1 or not plan.recompute_layers:
        return plan
    layers = plan.recompute_layers * model.num_hidden_layers // own.value
    return plan.replace(recompute_layers=max(int(layers), 1))


def _whole(reading: Reading) -> Job | None:
    """The job of a configuration that states model and hardware as well."""
    read = reading.config.framework.whole
    return None if read is None else read(reading.config)


def _stack(reading: Reading) -> str:
    """The calibration's stack; what runs on torch runs DeepSpeed's engine or FSDP's wrappers.

    Unfused attention means models written out in torch, which keep what FSDP's models keep.
    """
    framework = reading.config.framework
    if reading.value("rl_backend") == "megatron":
        return "megatron"
    if framework.stack != "default":
        return framework.stack
    if "torch" not in framework.below and reading.value("flash_attention") is not False:
        return "default"
    return "deepspeed" if reading.value("use_deepspeed") else "fsdp"


def _program_decides(reading: Reading) -> bool:
    """Whether the program, rather than the configuration, says what is recomputed."""
    framework = reading.config.framework
    return "torch" in framework.below and _stack(reading) in ("deepspeed", "fsdp")


def _leaves_precision(reading: Reading) -> bool:
    """Whether a trainer that is not there would say what is computed in: bf16 stands in."""
    if reading.config.framework.name != "deepspeed" or reading.value("precision") != "bf16":
        return False
    stated = reading.settings_of("bf16")
    return any(s.name == "bf16.enabled" and s.value == "auto" for s in stated)


# The plan


def _plan(reading: Reading) -> tuple[Plan, list[Problem]]:
    """The plan's fields that the configuration gives; those it cannot hold keep their default."""
    changes: dict[str, Any] = {}
    problems: list[Problem] = []
    for name in FIELDS:
        stated = reading.value(name)
        if stated is None:
            continue
        value, problem = read_word(name, _wide(name, stated))
        if problem is None:
            changes[name] = value
        else:
            problems.append(problem)
    return Plan(**changes), problems


def _wide(name: str, value: Any) -> Any:
    """A whole number for a field that holds a share is one."""
    return float(value) if type(FIELDS[name]) is float and isinstance(value, int) else value


def _replicas(reading: Reading) -> int:
    """Copies of the sharded state, at least one."""
    stated = reading.value("dp_replicate")
    return max(stated, 1) if isinstance(stated, int) else 1


def _with_replicas(reading: Reading, plan: Plan, num_gpus: int) -> Plan:
    """The plan with the data-parallel degree that is stated, or that fills the GPUs."""
    if reading.value("dp") is not None:
        return plan
    shard = reading.value("dp_shard")
    if isinstance(shard, int) and shard > 0:
        return plan.replace(dp=shard * _replicas(reading))
    return plan.replace(dp=max(num_gpus // max(plan.tp * plan.pp * plan.cp, 1), 1))


_BEFORE_FLASH = ("pascal", "volta", "turing")  # generations


def _with_kernels(reading: Reading, plan: Plan, cluster: Cluster) -> Plan:
    """The plan with attention unfused where Megatron's fused kernels do not know the device.

    Source: TransformerEngine dot_product_attention/utils.py get_attention_backend (2.8): flash and
    fused attention want compute capability 8.0; torch's own attention has kernels for older ones.
    """
    chosen = reading.is_stated("flash_attention") or reading.config.framework.stack != "megatron"
    if chosen or cluster.gpu.generation not in _BEFORE_FLASH:
        return plan
    return plan.replace(flash_attention=False)


# The model


def _models(
    reading: Reading, given: Model | None, plan: Plan, missing: list[str]
) -> tuple[Model, Model]:
    """The model that is given, stated or named, else the two that stand in."""
    known = given or reading.model or stated_model(reading)
    if known is not None:
        return known, known
    missing.append("model")
    shape = _shape(reading)
    try:
        first, second = stand_ins(shape, experts=bool(plan.ep > 1))
        if shape["num_hidden_layers"] is None and (
            plan.first_stage_layers or plan.last_stage_layers
        ):
            fitting = {**shape, "num_hidden_layers": _layers_of_split(plan)}
            second = stand_ins(fitting, experts=bool(plan.ep > 1))[1]
        return first, second
    except (MeshwrightError, ValueError, TypeError, KeyError, ZeroDivisionError):
        return stand_ins({}, experts=bool(plan.ep > 1))


def _layers_of_split(plan: Plan) -> int:
    """Layers with which a split by its first and last stage comes out even."""
    ends = [n for n in (int(plan.first_stage_layers), int(plan.last_stage_layers)) if n]
    between = max(int(plan.pp) - len(ends), 0)
    return sum(ends) + between * int(plan.vpp) * max(ends)


def _shape(reading: Reading) -> dict[str, Any]:
    """The stated dimensions of the model, those that no model has left out."""
    values = ((name, reading.value(name)) for name in SHAPE)
    return {
        name: None if isinstance(value, int) and abs(value) > _LARGEST_DIMENSION else value
        for name, value in values
    }


def stated_model(reading: Reading) -> Model | None:
    """The model whose shape the configuration states, or that a name in it means."""
    shape = _shape(reading)
    if is_whole(shape) and reading.is_stated("num_hidden_layers"):
        name = reading.value("model_name")
        try:
            return shaped(shape, name=name if isinstance(name, str) and name else "model")
        except (MeshwrightError, ValueError, TypeError, ZeroDivisionError):
            return None
    return _named_model(reading)


def _named_model(reading: Reading) -> Model | None:
    from meshwright.model.catalogue import load, resolve

    for variable in ("model_name", "model_remark"):
        name = reading.value(variable)
        if isinstance(name, str) and name.strip():
            try:
                return load(resolve(name.rstrip("/")))
            except MeshwrightError:
                continue
    return None


# The cluster


def _clusters(
    reading: Reading, given: Cluster | None, plan: Plan, missing: list[str]
) -> tuple[Cluster, Cluster]:
    """The cluster that is given or stated, else the two that stand in."""
    if given is not None:
        return given, given
    counts = _counts(reading, plan, missing)
    gpu = _gpu_name(reading)
    if gpu is None:
        missing.append("gpu")
    per_node = stated_per_node(reading)
    names = (gpu or USUAL_GPU, gpu or OTHER_GPU)
    first, second = (_cluster(n, c, per_node) for n, c in zip(names, counts, strict=True))
    return first, second


def stated_per_node(reading: Reading) -> int | None:
    """GPUs of one node, where the configuration says so."""
    per_node = reading.value("gpus_per_node")
    if isinstance(per_node, int) and per_node > 0:
        return per_node
    gpus, nodes = reading.value("num_gpus"), reading.value("num_nodes")
    if isinstance(gpus, int) and isinstance(nodes, int) and nodes > 0 and gpus % nodes == 0:
        return max(gpus // nodes, 1)
    return None


def stated_gpus(reading: Reading) -> int | None:
    """The number of GPUs, where the configuration says so."""
    gpus = reading.value("num_gpus")
    if isinstance(gpus, int) and 0 < gpus <= _MOST_GPUS:
        return gpus
    nodes, per_node = reading.values.get("num_nodes"), reading.value("gpus_per_node")
    count = 1 if nodes is None or nodes.value is None else nodes.value
    if isinstance(per_node, int) and per_node > 0 and isinstance(count, int):
        return min(max(count, 1) * per_node, _MOST_GPUS)
    return None  # nodes that only the launcher's environment knows are not one node


def _counts(reading: Reading, plan: Plan, missing: list[str]) -> tuple[int, int]:
    """The stated number of GPUs, else the smallest that the plan fills and a multiple of it."""
    stated = stated_gpus(reading)
    if stated is not None:
        return stated, stated
    missing.append("num_gpus")
    dense = int(max(plan.tp * plan.pp * plan.cp, 1))
    experts = int(max(plan.etp * plan.ep * plan.pp, 1))
    if isinstance(dp := reading.value("dp"), int):
        return (min(dense * max(dp, 1), _MOST_GPUS),) * 2
    shard = reading.value("dp_shard")
    if isinstance(shard, int) and shard > 0:
        return (min(dense * shard * _replicas(reading), _MOST_GPUS),) * 2
    smallest = min(lcm(dense, experts), _MOST_GPUS)
    batch, micro = reading.value("global_batch_size"), int(max(plan.micro_batch_size, 1))
    replicas = smallest // dense
    times = next(
        (k for k in (8, 4, 2) if not isinstance(batch, int) or batch % (micro * replicas * k) == 0),
        1,
    )
    return min(smallest * times, _MOST_GPUS), smallest


def _gpu_name(reading: Reading) -> str | None:
    """The device that the configuration names, as the catalogue calls it."""
    from meshwright.hardware.catalogue import gpu

    name = reading.value("gpu_name")
    if not isinstance(name, str):
        return None
    try:
        return gpu(name).name
    except MeshwrightError:
        return None


def _cluster(gpu: str, num_gpus: int, per_node: int | None) -> Cluster:
    """`num_gpus` devices in nodes of `per_node`, the device's usual nodes if that is not stated."""
    from meshwright.hardware.catalogue import cluster

    size = min(per_node or 8, num_gpus)
    nodes = max(-(-num_gpus // size), 1)
    try:
        built = cluster(f"{gpu}:{size}", nodes=nodes)
    except MeshwrightError:
        built = cluster(f"{gpu}:1", nodes=num_gpus)
    return replace(built, num_gpus=num_gpus)
