"""What follows from a configuration, in numbers: the figures that a check prints beside findings.

Names carry their unit. A figure is left out where what it hangs on is neither stated nor given, so
that every figure printed is one of the configuration itself. Costs are in `rules.costed`.
"""

from __future__ import annotations

from math import lcm, prod
from typing import TYPE_CHECKING

from meshwright.model.architecture import Experts
from meshwright.plan.job import num_microbatches
from meshwright.rules.costed import cost_figures
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.plan.job import Job

Figure = float | int | str
MOST_RANKS = 10**7
QUANTIZED_BLOCK = {"mxfp8": 32, "blockwise": 128, "delayed": 16, "tensorwise": 16, "nvfp4": 16}


def figures(reading: Reading, drafted: Drafted, *, costs: bool = True) -> Mapping[str, Figure]:
    """Figures by name; without `costs`, those of memory and time are left out: they take longer."""
    found: dict[str, Figure | None] = {
        **_mesh(reading, drafted),
        **_batch(reading, drafted),
        **_prompts(reading, drafted),
        **_sequence(reading, drafted),
        **_vocabulary(reading, drafted),
        **_layers(reading, drafted),
        **_saved(reading),
        **_logits(reading, drafted),
    }
    if costs:
        found |= cost_figures(reading, drafted)
    return {name: value for name, value in found.items() if value is not None}


def stated(reading: Reading, name: str) -> int | None:
    """The value of a variable, if it is a whole number above 0."""
    value = reading.value(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def sharing(drafted: Drafted) -> int:
    """Ranks that hold one copy of the model, tp*pp*cp."""
    plan = drafted.job.plan
    return max(int(plan.tp) * int(plan.pp) * int(plan.cp), 1)


# Mesh


def _mesh(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Degrees, what they multiply to, and what the GPUs leave to the rest."""
    plan, ranks = drafted.job.plan, sharing(drafted)
    gpus = None if "num_gpus" in drafted.missing else int(drafted.job.cluster.num_gpus)
    degrees = {name: int(getattr(plan, name)) for name in ("tp", "pp", "vpp", "cp", "ep", "etp")}
    replicas = _replicas(reading, gpus, ranks)
    expert_ranks = degrees["etp"] * degrees["ep"] * degrees["pp"]
    shown: dict[str, Figure | None] = {
        n: v for n, v in degrees.items() if v > 1 or n in ("tp", "pp")
    }
    return {
        **shown,
        "num_gpus": gpus,
        "dp": replicas,
        "model_parallel_gpus": ranks,
        "least_gpus": lcm(ranks, expert_ranks),
        "mesh_product": _product(reading, ranks),
        **_expert_mesh(drafted, gpus, expert_ranks),
    }


def _replicas(reading: Reading, gpus: int | None, ranks: int) -> int | None:
    """Data-parallel degree: what the GPUs leave, or where they are not known, what is stated."""
    if gpus is not None:
        return gpus // ranks if gpus >= ranks else None
    return stated(reading, "dp")


def _product(reading: Reading, ranks: int) -> int | None:
    """GPUs that the degrees ask for, where data parallelism is among them."""
    replicate, shard = stated(reading, "dp_replicate"), stated(reading, "dp_shard")
    if shard is not None and not reading.value("dp_shard_auto") and reading.is_stated("dp_shard"):
        return ranks * shard * (replicate or 1)
    dp = stated(reading, "dp")
    return ranks * dp if dp is not None and reading.is_stated("dp") else None


def _expert_mesh(drafted: Drafted, gpus: int | None, expert_ranks: int) -> dict[str, Figure | None]:
    """Expert data parallelism, experts of a rank, and the largest expert parallelism."""
    plan = drafted.job.plan
    if int(plan.ep) == 1 and not drafted.job.model.is_moe:
        return {}
    experts = _num_experts(drafted)
    outer = max(int(plan.etp) * int(plan.pp), 1)
    return {
        "expert_model_gpus": expert_ranks,
        "expert_dp": gpus // expert_ranks if gpus and gpus % expert_ranks == 0 else None,
        "max_ep": gpus // outer if gpus and gpus >= outer else None,
        "experts_per_rank": experts // int(plan.ep)
        if experts and experts % int(plan.ep) == 0
        else None,
    }


def _num_experts(drafted: Drafted) -> int | None:
    """Routed experts of a layer, None for a dense or an unknown model."""
    if "model" in drafted.missing and not drafted.job.model.is_moe:
        return None
    layers = (block.feed_forward for block in drafted.job.model.layers)
    return next((f.num_experts for f in layers if isinstance(f, Experts)), None)


# Batch


def _batch(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Sequences of a step, and of what micro-batches they are made."""
    job = drafted.job
    if "num_gpus" in drafted.missing and stated(reading, "dp") is None:
        return {"global_batch_size": stated(reading, "global_batch_size")}
    known = "global_batch_size" not in drafted.missing
    steps = int(num_microbatches(job)) if known else None
    samples = int(job.workload.global_batch_size) if known else None
    tokens = samples and "seq_len" not in drafted.missing and samples * job.workload.seq_len
    return {
        "micro_batch_size": int(job.plan.micro_batch_size),
        "accumulation_steps": steps,
        "num_microbatches": steps,
        "global_batch_size": samples,
        "samples_per_iteration": samples,
        "tokens_per_step": tokens or None,
    }


def _prompts(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Batches of reinforcement learning: prompts a step, answers a prompt, updates a step."""
    prompts, answers = stated(reading, "rollout_batch_size"), stated(reading, "rollout_n")
    if prompts is None:
        return {}
    mini, micro = stated(reading, "mini_batch_size"), stated(reading, "micro_batch_size")
    answers = answers or 1
    replicas = _replicas(
        reading,
        None if "num_gpus" in drafted.missing else int(drafted.job.cluster.num_gpus),
        sharing(drafted),
    )
    own = mini * answers // replicas if mini and replicas else None
    return {
        "samples_per_step": prompts * answers,
        "updates_per_step": prompts // mini if mini and prompts % mini == 0 else None,
        "samples_per_gpu_and_update": own,
        "accumulation_steps": own // micro if own and micro and own % micro == 0 else None,
    }


# Sequence, vocabulary, layers


def sequence_divisor(job: Job, block: int = 1) -> int:
    """What every padded sequence must divide by.

    Context parallelism cuts it into 2*cp balanced chunks, sequence parallelism cuts the rank's part
    by tp, and 8-bit products take `block` tokens of that.
    """
    cp, tp = int(job.plan.cp), int(job.plan.tp)
    cut = cp * tp if job.plan.sequence_parallel and tp > 1 else cp
    return lcm(2 * cp if cp > 1 else 1, cut * block)


def _sequence(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    recipe = reading.value("fp8_recipe")
    block = QUANTIZED_BLOCK.get(str(recipe).lower(), 1) if recipe else 1
    length = None if "seq_len" in drafted.missing else int(drafted.job.workload.seq_len)
    return {
        "seq_len": length,
        "sequence_divisor": sequence_divisor(drafted.job, block),
    }


def padded_vocabulary(rows: int, multiple: int, tp: int) -> int:
    """Rows of the embedding after padding to a multiple of multiple*tp."""
    step = max(multiple, 1) * max(tp, 1)
    return -(-rows // step) * step


def vocabulary(reading: Reading, drafted: Drafted) -> int | None:
    """Rows of the embedding: the model's, or what is stated where no model is known."""
    if "model" not in drafted.missing:
        return int(drafted.job.model.vocab_size)
    return stated(reading, "vocab_size")


def _vocabulary(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Vocabulary as padded, also without tensor parallelism: the two should be equal."""
    rows = vocabulary(reading, drafted)
    multiple = stated(reading, "make_vocab_size_divisible_by")
    if rows is None or multiple is None:
        return {"vocab_size": rows}
    added = reading.value("extra_vocab_tokens")
    rows += added if isinstance(added, int) and not isinstance(added, bool) else 0
    tp = int(drafted.job.plan.tp)
    return {
        "vocab_size": rows,
        "padded_vocab_size": padded_vocabulary(rows, multiple, tp),
        "padded_vocab_size_tp1": padded_vocabulary(rows, multiple, 1) if tp > 1 else None,
    }


def _logits(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """One copy of a micro-batch's logits in 16 bits and in fp32, before any split."""
    rows = vocabulary(reading, drafted)
    if rows is None or "seq_len" in drafted.missing:
        return {}
    tokens = int(drafted.job.plan.micro_batch_size) * drafted.job.workload.seq_len
    return {"logits_bf16_bytes": 2.0 * tokens * rows, "logits_fp32_bytes": 4.0 * tokens * rows}


def _layers(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Layers of a stage and of all that are built, and degrees of tp that the heads allow."""
    found: dict[str, Figure | None] = {}
    plan, layers = drafted.job.plan, stated(reading, "num_hidden_layers")
    known = "model" not in drafted.missing
    if known:
        layers = int(drafted.job.model.num_hidden_layers)
        found["valid_tp"] = " ".join(map(str, valid_tp(drafted.job)))
    if layers is None:
        return found
    found |= {"num_layers": layers, "layers_per_stage": layers / max(int(plan.pp), 1)}
    return {**found, "layers_built": _layers_built(reading, drafted, layers)}


_WHOLE_DIVISIONS = ("megatron", "mindspeed")  # stacks that cut what does not divide


def _layers_built(reading: Reading, drafted: Drafted, layers: int) -> int | None:
    """Layers that whole divisions leave, which is what Megatron builds where it does not refuse.

    None where all are built, unless they are counted in chunks.
    """
    plan, pp = drafted.job.plan, max(int(drafted.job.plan.pp), 1)
    chunk = stated(reading, "num_layers_per_virtual_stage")
    if chunk is not None:
        return layers // pp // chunk * chunk * pp
    slots = bool(plan.embedding_in_split) or bool(plan.loss_in_split)
    if plan.layout is not None or slots or reading.config.framework.stack not in _WHOLE_DIVISIONS:
        return None
    ends = [n for n in (int(plan.first_stage_layers), int(plan.last_stage_layers)) if n]
    if ends and pp == 1:
        return ends[0] if ends[0] != layers else None
    between = max(pp - len(ends), 1)
    unit = between * max(int(plan.vpp), 1)
    built = sum(ends) + max(layers - sum(ends), 0) // unit * unit
    return built if built != layers else None


def valid_tp(job: Job) -> tuple[int, ...]:
    """Degrees of tp that divide heads, KV heads, MLP width and hidden size of every layer."""
    model = job.model
    first = model.layers[0].attention
    heads = getattr(first, "num_attention_heads", 0), getattr(first, "num_key_value_heads", 0)
    sizes = [*(h for h in heads if h), model.hidden_size]
    common = divisors(min(sizes))
    return tuple(d for d in common if all(size % d == 0 for size in sizes))


def _saved(reading: Reading) -> dict[str, Figure | None]:
    """GPUs of the run that wrote the checkpoint, as far as its degrees are stated."""
    degrees = [stated(reading, name) for name in ("saved_dp", "saved_tp", "saved_pp")]
    if all(d is None for d in degrees):
        return {}
    return {"saved_gpus": min(prod(d or 1 for d in degrees), MOST_RANKS)}
