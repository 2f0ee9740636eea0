"""Tensor, sequence and vocabulary parallelism of one stage over the "tp" dim.

Products are cut by outputs and inputs in turns, with torch's own styles, so that a layer needs two
exchanges in each direction (arXiv 1909.08053); under sequence parallelism what lies between them is
cut along the sequence (arXiv 2205.05198). How a family's modules are cut is said in
train/families/.

Contract, for whoever works on a stage after this:

- Between layers, and between stages, hidden states are plain tensors: [b, s, hidden] equal on all
  tp ranks, or this rank's slice [b, s / tp, hidden] of the sequence where it is cut.
- Attention functions get this rank's heads of the whole sequence [b, heads / tp, s, head_dim].
- A routed mlp gets and returns hidden states as they are between layers. Where the sequence is cut
  its router and experts see this rank's tokens, and experts have `holds_own_tokens = True`; where
  it is not, all tp ranks hold the same tokens. Expert weights are left alone; router and shared
  experts are seen to.
- Parameters are DTensors over tp where they are cut, or where ranks hold summands of their
  gradient; the others are plain, with equal gradients on every rank. `reduce_gradients` must run
  once a step, after the last micro-batch (FSDP2 does the same by itself).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from meshwright.base.errors import MeshwrightError
from meshwright.train.families import layouts
from meshwright.train.families.layout import Cut
from meshwright.train.loss import Split
from meshwright.train.parallel.styles import (
    LatentParallel,
    LocalWeights,
    OwnTokens,
    PartsParallel,
    VocabularyParallel,
    WideNorm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

    from meshwright.train.families.layout import Layout
    from meshwright.train.stage import Stage

    Styled = tuple[str, ParallelStyle]


def apply(
    stage: Stage,
    mesh: DeviceMesh,
    *,
    sequence_parallel: bool,
    vocab_parallel: bool,
    loss_parallel: bool,
) -> None:
    """Cuts a stage's layers, embedding, final norm and head over `mesh`, which has one dim.

    Weights may be on meta or the same on all ranks; nothing is sent. Sets `stage.split`, by which
    the loss knows what is cut. MeshwrightError for a family without a layout and for modules that
    a layout does not name.
    """
    layout = layout_of(stage.lm.config.model_type)
    along = Shard(1) if sequence_parallel else Replicate()
    _check_heads(stage.lm.config, layout, mesh.size())
    for layer in stage.layers:
        _check_named(layer, layout)
    for layer in stage.layers:
        _cut_layer(layer, mesh, layout, along=along)
    _cut_ends(stage.lm, mesh, along=along, vocab_parallel=vocab_parallel)
    stage.split = Split(
        mesh=mesh,
        sequence=sequence_parallel,
        vocabulary=vocab_parallel,
        loss=loss_parallel and vocab_parallel,
    )


def layout_of(model_type: str) -> Layout:
    """How layers of a model_type are cut."""
    if model_type not in layouts():
        known = ", ".join(sorted(layouts()))
        raise MeshwrightError(
            f"tensor parallelism of model_type {model_type!r} is not known",
            hint=f"set plan.tp = 1, or train one of {known}",
        )
    return layouts()[model_type]


def _cut_layer(layer: Any, mesh: DeviceMesh, layout: Layout, *, along: Placement) -> None:
    """One decoder layer: attention, feed-forward, and the norms between them."""
    styles = [*_attention_styles(layer.self_attn, layout, along)]
    styles += _mlp_styles(layer.mlp, layout, along)
    if along.is_shard():
        styles += [(name, LocalWeights()) for name in layout.norms]
    for path, style in styles:
        parallelize_module(layer.get_submodule(path), mesh, style, src_data_rank=None)
    if Cut.PARTS in layout.attention.values():
        _count_own_heads(layer.self_attn, mesh.size())
    if hasattr(layer.mlp, "experts"):
        layer.mlp.experts.holds_own_tokens = along.is_shard()


def _attention_styles(attention: Any, layout: Layout, along: Placement) -> Iterator[Styled]:
    """Styles of what is in an attention module, then of the module itself."""
    inside = along if layout.latent else Replicate()  # latents are gathered in place of its input
    for name, cut in layout.attention.items():
        if getattr(attention, name, None) is not None:
            parts = _head_parts(attention) if cut is Cut.PARTS else ()
            yield f"self_attn.{name}", _style(cut, along, within=inside, parts=parts)
    if layout.per_head:
        yield "self_attn", LocalWeights(Shard(0))
    yield (
        "self_attn",
        PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": along},
            desired_input_kwarg_layouts={"hidden_states": inside},
        ),
    )


def _mlp_styles(mlp: Any, layout: Layout, along: Placement) -> Iterator[Styled]:
    """Styles of a dense feed-forward network, or of a routed one's router and shared experts."""
    if not hasattr(mlp, "experts"):
        yield from _dense_styles("mlp", mlp, layout, along)
        return
    if along.is_shard():
        yield f"mlp.{layout.router}", LocalWeights()
    if layout.shared_experts:
        shared = getattr(mlp, layout.shared_experts)
        yield from _dense_styles(f"mlp.{layout.shared_experts}", shared, layout, along)


def _dense_styles(path: str, mlp: Any, layout: Layout, along: Placement) -> Iterator[Styled]:
    """Styles of a feed-forward network whose input and output lie as `along` says."""
    for name, cut in layout.mlp.items():
        outputs = getattr(mlp, name).out_features
        parts = (outputs // 2, outputs // 2) if cut is Cut.PARTS else ()
        yield f"{path}.{name}", _style(cut, along, within=Replicate(), parts=parts)
    yield path, PrepareModuleInput(input_layouts=(along,), desired_input_layouts=(Replicate(),))


def _style(cut: Cut, along: Placement, *, within: Placement, parts: Sequence[int]) -> ParallelStyle:
    """The style of one module; `within` is how hidden states lie inside its parent."""
    styles: dict[Cut, Callable[[], ParallelStyle]] = {
        Cut.COLUMN: lambda: ColwiseParallel(input_layouts=within),
        Cut.ROW: lambda: RowwiseParallel(output_layouts=along),
        Cut.PARTS: lambda: PartsParallel(parts),
        Cut.HEAD: LocalWeights,
        Cut.NORM: LocalWeights,
        Cut.WIDE: WideNorm,
        Cut.DOWN: lambda: LatentParallel(sequence_parallel=along.is_shard()),
        Cut.UP: lambda: LocalWeights(Shard(0)),
    }
    return styles[cut]()


def _head_parts(attention: Any) -> tuple[int, int, int]:
    """Outputs that are queries, keys and values in a product that makes all of them."""
    config, width = attention.config, attention.head_dim
    kv = config.num_key_value_heads * width
    return config.num_attention_heads * width, kv, kv


def _count_own_heads(attention: Any, count: int) -> None:
    """Has a module that takes its outputs apart by the configuration's counts use its own."""
    attention.config = copy.copy(attention.config)
    attention.config.num_attention_heads //= count
    attention.config.num_key_value_heads //= count
    attention.num_key_value_heads //= count


def _check_heads(config: Any, layout: Layout, count: int) -> None:
    """MeshwrightError when ranks cannot have whole heads; train/refusals.py tells it earlier."""
    heads = {"attention heads": config.num_attention_heads}
    if not layout.latent:
        heads["key/value heads"] = config.num_key_value_heads
    for name, size in heads.items():
        if size % count:
            raise MeshwrightError(
                f"tp = {count} does not divide the model's {size} {name}",
                hint=f"set plan.tp to a divisor of {size}",
            )


def _check_named(layer: Any, layout: Layout) -> None:
    """MeshwrightError when a layer has weights that its layout does not name."""
    known = {f"self_attn.{name}" for name in (*layout.attention, *layout.per_head)}
    known |= {*layout.norms, *(f"mlp.{name}" for name in layout.mlp)}
    if hasattr(layer.mlp, "experts"):
        known |= {"mlp.experts", f"mlp.{layout.router}"}
        known |= {f"mlp.{layout.shared_experts}.{name}" for name in layout.mlp}
    for name, _ in layer.named_parameters():
        if not any(name == path or name.startswith(f"{path}.") for path in known):
            raise MeshwrightError(
                f"tensor parallelism does not know the weight {name!r} of {type(layer).__name__}",
                hint="set plan.tp = 1, or install the transformers version that the docs name",
            )


# Embedding, final norm and head


def _cut_ends(lm: Any, mesh: DeviceMesh, *, along: Placement, vocab_parallel: bool) -> None:
    """What stands before the first layer and after the last, as far as this stage has it."""
    embedding, norm, head = lm.model.embed_tokens, lm.model.norm, lm.lm_head
    is_cut = along.is_shard()
    if embedding is not None and vocab_parallel:
        _styled(embedding, mesh, VocabularyParallel(output=along))
    elif embedding is not None and is_cut:
        _styled(embedding, mesh, OwnTokens())
    if is_cut and next(norm.parameters(), None) is not None:
        _styled(norm, mesh, LocalWeights())
    if head is not None and (vocab_parallel or is_cut):
        _styled(head, mesh, LocalWeights(Shard(0) if vocab_parallel else None))
    if lm.config.tie_word_embeddings and embedding is not None and head is not None:
        head.weight = embedding.weight


def _styled(module: nn.Module, mesh: DeviceMesh, style: ParallelStyle) -> None:
    parallelize_module(module, mesh, style, src_data_rank=None)


# Gradients


def reduce_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sums gradients of which every rank holds a summand, all of a kind in one exchange.

    Call it after the last micro-batch of a step; gradients that are whole stay as they are.
    """
    kinds: dict[Any, list[nn.Parameter]] = {}
    for parameter in dict.fromkeys(parameters):
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(p.is_partial() for p in gradient.placements):
            kinds.setdefault((gradient.device_mesh, gradient.dtype), []).append(parameter)
    for (mesh, _), group in kinds.items():
        _reduce_together(group, mesh)


def _reduce_together(parameters: Sequence[nn.Parameter], mesh: DeviceMesh) -> None:
    """Sums the gradients of parameters that are whole on every rank of a one-dimensional mesh."""
    gradients = [parameter.grad.to_local() for parameter in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    summed = DTensor.from_local(flat, mesh, [Partial()], run_check=False)
    whole = summed.redistribute(placements=[Replicate()]).to_local()
    for parameter, part in zip(
        parameters, whole.split([g.numel() for g in gradients]), strict=True
    ):
        local = part.view(parameter.shape)
        parameter.grad = DTensor.from_local(local, mesh, parameter.placements, run_check=False)
