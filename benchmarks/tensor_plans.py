"""Tensor-parallel plans and activation checkpointing of transformers models, for measurements."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


def loss_context(parallel: bool) -> Any:
    """The context in which cross-entropy works on split logits, or one that does nothing."""
    return loss_parallel if parallel else contextlib.nullcontext


def tensor_parallel(model: Any, mesh: Any, *, sequence_parallel: bool, loss_parallel: bool) -> None:
    """Split attention, MLP, embedding and head of a Llama-like model over `mesh`, in place."""
    shard = Shard(1) if sequence_parallel else None
    scattered = {"output_layouts": shard} if shard else {}
    parallelize_module(
        model,
        mesh,
        {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), **scattered)},
    )
    for layer in model.model.layers:
        parallelize_module(layer, mesh, _layer_plan(scattered, sequence_parallel))
    head = ColwiseParallel(
        **({"input_layouts": shard} if shard else {}),
        output_layouts=Shard(-1) if loss_parallel else Replicate(),
        use_local_output=not loss_parallel,
    )
    ends: dict[str, Any] = {"lm_head": head}
    if sequence_parallel:
        ends["model.norm"] = SequenceParallel()
    parallelize_module(model, mesh, ends)


def _layer_plan(scattered: dict[str, Any], sequence_parallel: bool) -> dict[str, Any]:
    """Styles of the modules of one layer."""
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in (*columns, "mlp.up_proj")}
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        plan[name] = RowwiseParallel(**scattered)
    if not sequence_parallel:
        return plan
    gather = {"hidden_states": Shard(1)}
    return plan | {
        "input_layernorm": SequenceParallel(),
        "post_attention_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts=gather, desired_input_kwarg_layouts={"hidden_states": Replicate()}
        ),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    }


KEPT = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def checkpointed(layer: Any, kind: str) -> Any:
    """The layer with full recompute, or with torchtitan's operator-level policy ("selective")."""
    if kind == "full":
        return checkpoint_wrapper(layer, preserve_rng_state=False)
    return checkpoint_wrapper(layer, context_fn=_alternate_products, preserve_rng_state=False)


def _alternate_products() -> Any:
    """Contexts that keep attention and every second matrix product, and recompute the rest."""
    counts = {False: 0, True: 0}

    def policy(context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        if op in PRODUCTS:
            counts[context.is_recompute] += 1
            keep = counts[context.is_recompute] % 2 == 1
        else:
            keep = op in KEPT
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
