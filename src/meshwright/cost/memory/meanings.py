"""What each memory term is: formula, source, evidence, and the operands of the formula.

Keys are what follows `memory.<stage>.` in a term's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.cost.memory.fsdp2 import rates_under
from meshwright.cost.memory.layer import layer_bytes
from meshwright.cost.memory.shape import shape_of
from meshwright.cost.memory.stack import memory_stack
from meshwright.cost.memory.stage import rank_parameters
from meshwright.cost.memory.states import optimizer_state_bytes
from meshwright.cost.terms import Meaning
from meshwright.plan.job import expert_shard_group, num_microbatches, shard_group
from meshwright.plan.stages import stage_layers

if TYPE_CHECKING:
    from meshwright.plan.job import Job

KORTHIKANTI = "arXiv 2205.05198 (Korthikanti et al.), section 4"
ZERO = "arXiv 1910.02054 (ZeRO), section 5"
FSDP = "arXiv 2304.11277 (FSDP), section 4; torch 2.13 FSDP2 under fake tensors"
HANDED = "torch 2.13, torch/distributed/pipelining/stage.py and _backward.py"
STACK = "cost/data/memory.toml, entry of the job's stack"
SCHEDULES = "docs/concepts/schedules.md: activations held by schedule and rank"


def _exact(formula: str, source: str) -> Meaning:
    return Meaning(formula=formula, source=source, evidence="exact")


def _stack(formula: str, source: str = STACK) -> Meaning:
    return Meaning(formula=formula, source=source, evidence="assumed")


MEMORY: dict[str, Meaning] = {
    "peak": _exact("largest of the moments", "docs/concepts/memory.md"),
    "upper": _stack("(peak + gathered_more) * (1 + upper_share) + upper_gib"),
    "weights": _exact(
        "parameters * param_bytes / (shards under ZeRO-3); where a stack's sharded parameters are "
        "the master weights, parameters * their bytes / (shards under ZeRO-1 to 3)",
        ZERO,
    ),
    "weights.fp8_copies": _stack(
        "matrix weights * 2 copies (one less beside 8-bit weights, and in FP8 on Blackwell) of the "
        "products' width / (shards under ZeRO-3)",
        "Transformer Engine, fp8 weight caching, is_non_tn_fp8_gemm_supported",
    ),
    "gradients": _exact(
        "trained parameters * grad_bytes / (shards under ZeRO-2 and 3); whole under every stage "
        "where they wait for a reduction at the end of the step (FSDP2 in a pipeline)",
        ZERO,
    ),
    "optimizer": _exact(
        "trained parameters * (master 4 B + moments * optimizer_state_bytes) / (shards under "
        "ZeRO-1 to 3) * (1 - offload_optimizer)",
        ZERO,
    ),
    "workspace": _stack("a constant of the software stack: cuBLAS workspaces, tables, buckets"),
    "activations": _exact(
        "micro-batches in flight * sum over blocks of what one keeps + final norm and head input",
        KORTHIKANTI,
    ),
    "activations.in_flight": _exact("micro-batches whose activations the rank holds", SCHEDULES),
    "activations.gathered_more": _stack(
        "bytes that versions of the stack keep which do not gather inputs again; bound only"
    ),
    "activations.saved": _exact(
        "full recompute keeps the input, 2 B * tokens * hidden / cut; torchtitan's operator "
        "policy the input, attention's output and every second matrix product",
        KORTHIKANTI + ".3",
    ),
    "activations.norm": _stack(
        "norms * tokens * hidden / cut * bytes of a norm's saved input", KORTHIKANTI + "; " + STACK
    ),
    "activations.dropout": _exact("2 masks * tokens * hidden / cut * 1 B", KORTHIKANTI),
    "activations.attention.input": _exact("tokens * hidden / cut * input_bytes", KORTHIKANTI),
    "activations.attention.qkv": _exact(
        "tokens * (heads * head_dim + kv_heads * (head_dim + v_head_dim)) / tp * element_bytes",
        KORTHIKANTI + "; kv_heads / tp at least 1",
    ),
    "activations.attention.latents": _exact(
        "tokens * (2 * q_lora_rank + 2 * kv_lora_rank + qk_rope_head_dim) / cut * element_bytes",
        "arXiv 2405.04434 (DeepSeek-V2), section 2.1",
    ),
    "activations.attention.qk_norm": _exact(
        "tokens * (heads + kv_heads) * head_dim / tp * bytes of a norm's saved input", KORTHIKANTI
    ),
    "activations.attention.output": _exact(
        "tokens * heads * v_head_dim / tp * element_bytes (and an 8-bit copy under fp8)",
        KORTHIKANTI,
    ),
    "activations.attention.context": _stack(
        "keys and values gathered of other ranks, or the output before its exchange: tokens * "
        "width * element_bytes"
    ),
    "activations.attention.scores": _exact(
        "5 B * heads / tp * tokens * seq_len with dropout, 0 with a fused kernel",
        KORTHIKANTI + ", equation 1",
    ),
    "activations.attention.statistics": _exact(
        "4 B * tokens * heads / tp: log-sum-exp of a fused kernel", "arXiv 2205.14135, section 3"
    ),
    "activations.mlp.input": _exact("tokens * hidden / cut * input_bytes", KORTHIKANTI),
    "activations.mlp.inner": _stack(
        "(copies - 1) * tokens * intermediate / tp * element_bytes: gate, up, their activation",
        KORTHIKANTI + "; copies from " + STACK,
    ),
    "activations.mlp.product": _exact(
        "tokens * intermediate / tp * input_bytes: what the down projection reads", KORTHIKANTI
    ),
    "activations.moe.router": _stack(
        "tokens / cut * (bytes * experts + bytes * top_k): logits and probabilities (8 B, or 4 B "
        "where the logits are not kept), routes"
    ),
    "activations.moe.tokens": _exact(
        "tokens / cut * top_k * etp * hidden * input_bytes: tokens at the experts, balanced",
        "arXiv 2006.16668 (GShard), section 3",
    ),
    "activations.moe.inner": _stack(
        "(copies - 1) * tokens / cut * top_k * expert width * element_bytes"
    ),
    "activations.moe.product": _exact(
        "tokens / cut * top_k * expert width * input_bytes", "arXiv 2006.16668, section 3"
    ),
    "activations.moe.output": _stack(
        "tokens / cut * top_k * hidden * element_bytes: expert outputs awaiting their weights"
    ),
    "activations.moe.shared": _stack("copies * tokens * shared width / tp * element_bytes"),
    "logits": _stack(
        "tokens * vocabulary / (tp where the loss is parallel) / chunks * bytes per logit"
    ),
    "transient.gathered_layer": _exact(
        "compute bytes * (1 + prefetched) * parameters of the largest layer, under ZeRO-3", FSDP
    ),
    "transient.gathered_model": _exact(
        "compute bytes * parameters of all layers, without resharding after the forward pass", FSDP
    ),
    "transient.gathered_head": _exact("compute bytes * parameters of norm and head", FSDP),
    "transient.head_backward": _exact(
        "logit gradients and the head's weight gradient", "torch autograd, order of the backward"
    ),
    "transient.recomputed": _exact(
        "what the largest block makes again at once in the backward pass", KORTHIKANTI + ".3"
    ),
    "transient.gradients": _exact(
        "activation gradients alive at once in one block: inner widths and the residual",
        "torch autograd, order of the backward",
    ),
    "transient.optimizer": _stack(
        "temporaries of a moment's size and copies of gradients in the optimizer step"
    ),
    "buffers.gather": _exact(
        "flat buffer that a gathered layer (or head) is copied out of, under ZeRO-3", FSDP
    ),
    "buffers.reduce": _exact(
        "(compute + reduce bytes) * trained parameters of the largest unit, under ZeRO-2 and 3",
        FSDP,
    ),
    "buffers.reduce_last": _exact(
        "the same for the last layer with what is gathered then, or for the embedding", FSDP
    ),
    "buffers.gradient_copies": _stack("16-bit gradients beside a wider accumulation buffer"),
    "buffers.buckets": _stack("buckets of replicated data parallelism"),
    "buffers.weight_gradients": _stack(
        "one placeholder gradient for each weight shape of a block (fused accumulation)"
    ),
    "buffers.sequence": _stack(
        "buffers * tokens * hidden * element_bytes under sequence parallelism: gathered inputs"
    ),
    "buffers.pipeline": _stack(
        "micro_batches * hidden state * (stages that receive it + stages that receive gradients; "
        "the first twice where the backward pass is split)",
        HANDED,
    ),
    "buffers.waiting_weights": _stack(
        "micro-batches whose weight gradients wait * outputs of products and norms", HANDED
    ),
    "host": _exact(
        "offloaded optimizer states with 4 B of gradients, weights and activations of the rank",
        "arXiv 2101.06840 (ZeRO-Offload), section 4",
    ),
    "moment.load": _exact("weights + optimizer + copies + workspace", "sum of its parts"),
    "moment.forward": _exact(
        "load + gradients + activations + gathered layers + gather buffer", "sum of its parts"
    ),
    "moment.loss": _exact(
        "load + gradients + activations + larger of loss and head backward + gathered head",
        "sum of its parts",
    ),
    "moment.backward": _exact(
        "load + gradients + activations - head + gathered layer + larger of (recomputed + "
        "activation gradients) and reduction",
        "sum of its parts",
    ),
    "moment.accumulated": _exact(
        "load + gradients + activations of all micro-batches but one + last reduction",
        "sum of its parts",
    ),
    "moment.step": _exact("load + gradients + optimizer temporaries", "sum of its parts"),
}


def meaning_of(name: str) -> Meaning | None:
    """What a term `memory.<stage>.<part>` is; None for a name that is no such term."""
    return MEMORY.get(_part(name))


def unit_of(name: str) -> str:
    """The unit of a memory term."""
    return "micro-batches" if name.endswith(".in_flight") else "bytes"


def _part(name: str) -> str:
    """What follows `memory.<stage>.`."""
    return name.split(".", 2)[-1] if name.startswith("memory.") else name


def operands_of(job: Job, rank: int) -> dict[str, float]:
    """The quantities that the formulas name, for pipeline rank `rank` of one plan."""
    return operands_by_rank(job)[rank]


def operands_by_rank(job: Job) -> tuple[dict[str, float], ...]:
    """The quantities that the formulas name, for every pipeline rank of one plan."""
    count = int(job.plan.pp)
    plan, stack = job.plan, memory_stack(job.stack)
    shape, layers = shape_of(job, stack), layer_bytes(job, stack)
    held = stage_layers(job, np.arange(count))
    parameters, per_parameter = rank_parameters(job, layers, held), rates_under(job, stack)
    values = {
        "parameters": sum(parameters.all),
        "trained_parameters": sum(parameters.trained),
        "shards": shard_group(plan),
        "expert_shards": expert_shard_group(plan),
        "param_bytes": plan.param_bytes,
        "grad_bytes": plan.grad_bytes,
        "optimizer_bytes": optimizer_state_bytes(job),
        "optimizer_bytes_per_parameter": per_parameter.optimizer[0],
        "layers": held.layers,
        "tokens": shape.tokens,
        "hidden": job.model.hidden_size,
        "tp": plan.tp,
        "cut": shape.sequence_cut,
        "element_bytes": shape.element,
        "input_bytes": shape.linear_input,
        "micro_batches": num_microbatches(job),
    }
    columns = {name: np.broadcast_to(value, count).tolist() for name, value in values.items()}
    return tuple({n: float(c[rank]) for n, c in columns.items()} for rank in range(count))
