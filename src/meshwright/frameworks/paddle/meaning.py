"""What PaddleNLP's training arguments mean beyond their table.

Data-parallel and sharding ranks are separate axes: both read different data, and state is shared
among the ranks of one sharding group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value

STAGES = {"stage1": 1, "stage2": 2, "stage3": 3}
GRANULARITIES = {"full_attn": "core-attention", "core_attn": "core-attention"}


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give, or gives in Paddle's words."""
    m = Meanings(config, values)
    _mesh(m)
    _batch(m)
    _precision(m)
    recompute(m, "recompute", "recompute_granularity")
    _switches(m)
    return m.given


def _mesh(m: Meanings) -> None:
    """Degrees; -1 means none, and for sharding what the others leave of the GPUs."""
    for variable in ("tp", "pp"):
        if (m.value(variable) or 0) < 1:
            m.follow(variable, 1, variable)
    sep, ring = (_degree(m, n) for n in ("sep_parallel_degree", "context_parallel_degree"))
    m.give("cp", sep * ring, "sep_parallel_degree", "context_parallel_degree")
    m.give("ulysses", sep, "sep_parallel_degree")
    kind = "ulysses" if ring == 1 and sep > 1 else "hierarchical" if sep > 1 else "ring"
    m.give("context_parallel", kind, "sep_parallel_degree", "context_parallel_degree")
    m.give("cp_inner", sep if kind == "hierarchical" else 1, "sep_parallel_degree")
    _sharding(m)
    chunks = m.field("virtual_pp_degree")
    vpp = chunks if isinstance(chunks, int) and chunks > 1 and m.count("pp") > 1 else 1
    m.give("vpp", vpp, "virtual_pp_degree")
    m.give("schedule", "interleaved" if vpp > 1 else "1f1b", "virtual_pp_degree")
    sequence = bool(m.value("sequence_parallel", False)) and m.count("tp") > 1
    m.follow("sequence_parallel", sequence, "sequence_parallel")
    order = m.field("hybrid_parallel_topo_order")
    if order == "sharding_first":
        m.give("rank_order", "tp-cp-pp-dp", "hybrid_parallel_topo_order")


def _degree(m: Meanings, name: str) -> int:
    value = m.field(name)
    return value if isinstance(value, int) and value > 0 else 1


def _sharding(m: Meanings) -> None:
    """The stage, and the sizes of the sharding and the data-parallel axis."""
    names = ("sharding", "sharding_parallel_degree", "data_parallel_degree")
    text = str(m.field("sharding") or "")
    stage = next((number for word, number in STAGES.items() if word in text), 0)
    world = _world(m)
    others = m.count("tp") * m.count("pp") * m.count("cp")
    degree = m.field("sharding_parallel_degree")
    if isinstance(degree, int) and degree > 0:
        sharded: int | None = degree
    elif stage:
        sharded = max(world // others, 1) if world else None
    else:
        sharded = 1
    m.give("zero_stage", stage if sharded != 1 else 0, *names)
    replicas = m.field("data_parallel_degree")
    if not isinstance(replicas, int) or replicas < 1:
        replicas = max(world // others // sharded, 1) if world and sharded else None
    if sharded:
        m.give("sharding_degree", sharded, *names)
    if replicas and sharded:
        m.give("paddle_dp", replicas, *names)
        m.give("dp", replicas * sharded, *names)
        m.give("dp_replicate", replicas if stage else 1, *names)
    m.give("offload_optimizer", 1.0 if "offload" in text else 0.0, "sharding")
    if m.field("use_expert_parallel") and m.value("dp"):
        m.give("ep", m.value("dp"), "use_expert_parallel")


def _world(m: Meanings) -> int | None:
    gpus, per_node = m.value("num_gpus"), m.value("gpus_per_node")
    if not isinstance(gpus, int) and isinstance(per_node, int):
        gpus = per_node * m.count("num_nodes")
    return gpus if isinstance(gpus, int) and gpus > 0 else None


def _batch(m: Meanings) -> None:
    micro, passes, dp = (
        m.value(v) for v in ("micro_batch_size", "gradient_accumulation_steps", "dp")
    )
    if isinstance(passes, int) and m.count("pp") > 1:
        m.follow("num_microbatches", passes, "gradient_accumulation_steps")
    if all(isinstance(n, int) and n > 0 for n in (micro, passes, dp)):
        batch = micro * passes * dp
        m.follow("global_batch_size", batch, "micro_batch_size", "gradient_accumulation_steps")
    steps = m.field("max_steps")
    if isinstance(steps, int) and steps > 0:
        m.give("train_iters", steps, "max_steps")
    if m.field("save_strategy") == "steps" and m.is_stated("save_steps"):
        m.give("checkpoint_interval_steps", m.field("save_steps"), "save_steps")


def _precision(m: Meanings) -> None:
    """O1 casts fp32 weights; O2 holds 16-bit weights and fp32 copies."""
    word = "bf16" if m.value("bf16") else "fp16" if m.value("fp16") else "fp32"
    names = ("bf16", "fp16", "fp16_opt_level", "amp_master_grad")
    narrow = word != "fp32" and str(m.field("fp16_opt_level")).upper() == "O2"
    summed = 4 if not narrow or m.field("amp_master_grad") else 2
    m.give("precision", word, "bf16", "fp16")
    m.give("param_bytes", 2 if narrow else 4, *names)
    m.give("grad_bytes", summed, *names)
    m.give("reduce_bytes", summed, *names)
    m.give("master_weights", narrow, *names)
    m.give("optimizer", "adam", "optim")
    m.give("pads_vocab", False)


def recompute(m: Meanings, switch: str, granularity: str) -> None:
    """Whole layers, or attention alone."""
    if not m.field(switch):
        m.give("recompute", "none", switch)
        return
    part = GRANULARITIES.get(str(m.field(granularity)))
    m.give("recompute", "selective" if part else "full", switch, granularity)
    if part:
        m.give("recompute_modules", [part], granularity)


def _switches(m: Meanings) -> None:
    """Switches that one text lists by name."""
    pipeline = str(m.field("pipeline_parallel_config") or "")
    sharding = str(m.field("sharding_parallel_config") or "")
    tensor = str(m.field("tensor_parallel_config") or "")
    name = "pipeline_parallel_config"
    for variable in ("enable_dp_comm_overlap", "enable_sharding_comm_overlap"):
        m.give(variable, variable in pipeline, name)
    m.give("overlap_pp", "enable_overlap_p2p_comm" in pipeline, name)
    overlapped = "overlap" in pipeline.replace("enable_overlap_p2p_comm", "")
    staged = "enable_stage1_overlap" in sharding or "enable_stage2_overlap" in sharding
    m.give("overlap_grad_reduce", overlapped or staged, name, "sharding_parallel_config")
    m.give("overlap_param_gather", "overlap" in sharding, "sharding_parallel_config")
    m.give("overlap_tp", "mp_async_allreduce" in tensor, "tensor_parallel_config")
