"""Models and jobs that the memory tests share."""

from __future__ import annotations

from typing import Any

from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.architecture import Model
from meshwright.model.generic import decoder
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan

GIB = 2.0**30
GPU = Gpu(name="x", generation="any", memory_bytes=8e10, memory_bytes_per_s=1e12, peak_flops={})
LINK = Link(name="l", kind="nvlink", domain=8, bytes_per_s=1e11, latency_s=1e-6)


def job(
    model: Model, plan: Plan, *, seq_len: int = 2048, batch: int = 64, stack: str = "default"
) -> Job:
    cluster = Cluster(gpu=GPU, num_gpus=8, gpus_per_node=8, links=(LINK,))
    workload = Workload(seq_len=seq_len, global_batch_size=batch)
    return Job(model=model, cluster=cluster, workload=workload, plan=plan, stack=stack)


def gpt(
    layers: int, hidden: int, heads: int, *, vocab: int = 51200, positions: int = 2048
) -> Model:
    """A GPT-3 style model: plain MLP of 4 * hidden, biases, learned positions, tied head."""
    return decoder(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        vocab_size=vocab,
        intermediate_size=4 * hidden,
        gated=False,
        bias=True,
        tied=True,
        position_embeddings=positions,
    )


def llama(layers: int = 32, **changes: Any) -> Model:
    """Llama-3-8B's dimensions at some depth."""
    options: dict[str, Any] = {
        "hidden_size": 4096,
        "heads": 32,
        "kv_heads": 8,
        "vocab_size": 128256,
        "intermediate_size": 14336,
    }
    return decoder(layers=layers, **(options | changes))


def routed(layers: int = 8, **changes: Any) -> Model:
    """A small mixture with a dense first layer, latent attention and a shared expert."""
    options: dict[str, Any] = {
        "hidden_size": 1024,
        "heads": 16,
        "vocab_size": 32000,
        "intermediate_size": 4096,
        "head_dim": 96,
        "v_head_dim": 64,
        "q_lora_rank": 384,
        "kv_lora_rank": 128,
        "qk_rope_head_dim": 32,
        "experts": 16,
        "top_k": 4,
        "expert_intermediate_size": 512,
        "shared_intermediate_size": 512,
        "moe_layers": layers - 1,
    }
    return decoder(layers=layers, **(options | changes))
