"""What differs by software stack in memory: which copies a framework really keeps.

One data file, `cost/data/memory.toml`, one table per stack; an entry inherits from its `kin`, then
from `default`. A job's stack name finds the entry with the longest matching prefix
("megatron-deepspeed-2022" finds "megatron-deepspeed"). Nothing here depends on model, GPU or run.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.base.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStack:
    """Copies and buffers of one software stack; every field has a physical meaning.

    Saved for the backward pass. `norm_input_bytes`: width of the norm's saved input (4 when it
    upcasts). `norm_inner_bytes`: width of the normalised values saved before the scale (0 when
    recomputed). `gated_copies`: tensors of the MLP's width that a gated MLP saves (gate, up,
    product; one more when act(gate) is kept). `plain_copies`: the same without a gate.
    `rope_copies`: further copies of queries and keys. `gathered_inputs`: with sequence parallelism,
    the share of the inputs of column-parallel products that is kept for the whole sequence (the
    rest is gathered again in the backward pass). `dropout`: masks of
    residual dropout. `score_bytes`: bytes per attention score without a fused kernel.
    `moe_output_saved`: expert outputs are kept for the weighted sum.

    Logits, in bytes per logit: `loss_bytes` alive at the fullest moment of the loss,
    `parallel_loss_bytes` the same where the loss is split over tp, `loss_saved_bytes` kept between
    its forward and backward, `fused_loss_bytes` the first with a fused loss.

    Gradients: `persistent_grads` when the buffer exists for the whole run; `grad_copy_bytes` per
    parameter, 16-bit gradients beside a wider accumulation buffer; `ddp_bucket_bytes` per
    parameter, buckets of a replicated data-parallel wrapper (ZeRO-0); `shard_gradient_bytes` per
    parameter of the rank's optimizer shard, its gradients in the optimizer's width;
    `weight_gradient_bytes` per parameter, one tensor for each weight shape of a block that fused
    accumulation hands to autograd.
    `whole_embedding_gradient`: the gradient of an embedding split over tp is whole on every rank.
    `optimizer_temp_copies`: temporaries of a moment's size that the optimizer step makes.
    `step_gradient_bytes`: per parameter of the rank's optimizer shard, copies of its gradients that
    the optimizer step makes. `shards_masters`: the sharded parameters are the master weights, and
    copies in the products' format exist only gathered (FSDP2; `cost.memory.fsdp2`).

    `pipeline_buffers`: pipeline stages keep buffers for what they receive of every micro-batch,
    outputs until their backward pass, and what waiting weight gradients read
    (torch.distributed.pipelining; `cost.memory.handed`). `context_copies`: context parallelism
    keeps gathered keys and values, and outputs on both sides of an exchange. `router_bytes` per
    token and expert of logits and probabilities, `route_bytes` per token and chosen expert of
    their numbers, weights and order.

    `sequence_buffers`: hidden states of the whole sequence that sequence parallelism holds beside
    the activations (gather buffers). `prefetch_layers`: layers gathered beside the current one
    under ZeRO-3. `workspace_gib`: cuBLAS workspaces, rotary tables, small buffers. `context_gib`:
    device memory outside the framework's allocator (context, NCCL). `fragmentation`: reserved over
    allocated, less 1. `upper_share` and `upper_gib` make the upper bound of the estimate;
    `upper_gathered_inputs` is the share of gathered inputs that the bound allows for, where
    versions of the stack differ.
    """

    norm_input_bytes: float = 2.0
    norm_inner_bytes: float = 0.0
    gated_copies: float = 3.0
    plain_copies: float = 2.0
    rope_copies: float = 0.0
    gathered_inputs: float = 0.0
    dropout: bool = False
    score_bytes: float = 5.0
    moe_output_saved: bool = True
    loss_bytes: float = 8.0
    parallel_loss_bytes: float = 8.0
    loss_saved_bytes: float = 4.0
    fused_loss_bytes: float = 6.0
    persistent_grads: bool = True
    grad_copy_bytes: float = 0.0
    ddp_bucket_bytes: float = 0.0
    shard_gradient_bytes: float = 0.0
    weight_gradient_bytes: float = 0.0
    whole_embedding_gradient: bool = False
    optimizer_temp_copies: float = 0.0
    step_gradient_bytes: float = 0.0
    shards_masters: bool = False
    pipeline_buffers: bool = False
    context_copies: bool = False
    router_bytes: float = 8.0
    route_bytes: float = 0.0
    sequence_buffers: float = 1.0
    prefetch_layers: float = 1.0
    workspace_gib: float = 0.2
    context_gib: float = 1.2
    fragmentation: float = 0.05
    upper_share: float = 0.08
    upper_gib: float = 0.5
    upper_gathered_inputs: float = 0.0
    source: str = ""
    kin: str = ""

    def upper_bytes(self, peak_bytes: Any) -> Any:
        """The stated upper bound of an estimate."""
        return peak_bytes * (1 + self.upper_share) + self.upper_gib * GIB


@cache
def packaged_stacks() -> Mapping[str, MemoryStack]:
    """The stacks of the packaged data file by name."""
    text = shipped("meshwright.cost").joinpath("data/memory.toml").read_text(encoding="utf-8")
    return stacks_from_table(tomllib.loads(text))


def stacks_from_table(table: Mapping[str, Any]) -> dict[str, MemoryStack]:
    """Stacks from the parsed TOML, each completed from its kin and the default.

    Raises MeshwrightError for an unknown parameter or kin.
    """
    tables: Mapping[str, Mapping[str, Any]] = table.get("stack", {})
    return {name: MemoryStack(**_completed(name, tables)) for name in tables}


def memory_stack(name: str, stacks: Mapping[str, MemoryStack] | None = None) -> MemoryStack:
    """The entry whose name is the longest prefix of `name`, else `default`."""
    known = packaged_stacks() if stacks is None else stacks
    prefixes = [key for key in known if name.startswith(key)]
    return known[max(prefixes, key=len)] if prefixes else known.get("default", MemoryStack())


def _completed(name: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An entry's values with those it inherits."""
    if name not in tables:
        raise MeshwrightError(f"memory.toml: no stack named {name!r}")
    own = dict(tables[name])
    unknown = set(own) - {f.name for f in fields(MemoryStack)}
    if unknown:
        raise MeshwrightError(f"memory.toml: [stack.{name}] has unknown {', '.join(unknown)}")
    kin = own.get("kin") or ("" if name == "default" else "default")
    return (_completed(kin, tables) | own) if kin and kin in tables else own
