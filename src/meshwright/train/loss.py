"""Summed cross-entropy of tokens from hidden states and a model's own head.

Logits are the largest tensor of a step (tokens x vocabulary in fp32). So they can be made a chunk
of tokens at a time, once more in the backward pass, and can stay cut over the vocabulary: the
softmax of a cut row needs three numbers a token from the other ranks, never the row (arXiv
1909.08053, section 3). Loss and gradients are exact in every case, up to the order of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from meshwright.base.noun import dataclass
from meshwright.data.loader.batch import IGNORED

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

_NARROW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, kw_only=True)
class Split:
    """What of the head and its input is cut over the tp mesh.

    `sequence`: hidden states are this rank's slice of the sequence. `vocabulary`: the head's rows
    are cut. `loss`: logits stay cut in the loss; else they are gathered on every rank.
    """

    mesh: DeviceMesh
    sequence: bool
    vocabulary: bool
    loss: bool


def token_loss(
    lm: nn.Module, hidden: Tensor, labels: Tensor, *, chunks: int = 1, split: Split | None = None
) -> Tensor:
    """Sum of the tokens' cross-entropy, shape [1], the same on every rank of `split.mesh`.

    `hidden` [b, s, hidden_size] (b, s / tp where the sequence is cut), `labels` [b, s] whole, with
    -100 for tokens that do not count. In fp32 where logits are narrower, else in their own format.
    """
    if split is not None and split.vocabulary:
        hidden = _whole(hidden, split)
    elif split is not None and split.sequence:
        labels = labels.chunk(split.mesh.size(), dim=1)[split.mesh.get_local_rank()]
    loss = _chunked(lm, hidden.flatten(0, 1), labels.flatten(), chunks=chunks, split=split)
    if split is not None and split.sequence and not split.vocabulary:
        return _summed(loss, split.mesh)
    return loss


def head(lm: nn.Module, hidden: Tensor) -> Tensor:
    """Logits [..., vocabulary] as the model's own forward makes them, caps and scales included.

    Caps and scales are element by element, so they hold for a cut vocabulary as well. Source:
    transformers 5.24, the `ForCausalLM.forward` of gemma2, gemma3, granite and cohere.
    """
    logits: Tensor = lm.lm_head(hidden)
    config = lm.config
    cap = getattr(config, "final_logit_softcapping", None)
    if cap is not None:
        logits = torch.tanh(logits / cap) * cap
    if (divisor := getattr(config, "logits_scaling", None)) is not None:
        logits = logits / divisor
    if (factor := getattr(config, "logit_scale", None)) is not None:
        logits = logits * factor
    return logits


def _chunked(
    lm: nn.Module, hidden: Tensor, labels: Tensor, *, chunks: int, split: Split | None
) -> Tensor:
    """The loss of tokens [n, hidden_size], whose logits are made in `chunks` parts."""

    def part(hidden: Tensor, labels: Tensor) -> Tensor:
        return _loss(lm, hidden, labels, split=split)

    if chunks == 1:
        return part(hidden, labels)
    losses = [
        checkpoint(part, h, y, use_reentrant=False, preserve_rng_state=False)
        for h, y in zip(hidden.chunk(chunks), labels.chunk(chunks), strict=True)
    ]
    return torch.stack(losses).sum(dim=0)


def _loss(lm: nn.Module, hidden: Tensor, labels: Tensor, *, split: Split | None) -> Tensor:
    """The loss of one chunk, shape [1]."""
    logits = head(lm, hidden)
    if split is not None and split.vocabulary and not split.loss:
        logits = _gathered(logits, lm.config.vocab_size, split.mesh)
    if logits.dtype in _NARROW:
        logits = logits.float()
    if split is not None and split.vocabulary and split.loss:
        return cut_cross_entropy(logits, labels, lm.config.vocab_size, mesh=split.mesh)
    return functional.cross_entropy(
        logits, labels, ignore_index=IGNORED, reduction="sum"
    ).unsqueeze(0)


# Over the tp mesh


def _whole(hidden: Tensor, split: Split) -> Tensor:
    """Hidden states of the whole sequence, each rank's gradient of which is one summand."""
    place = Shard(1) if split.sequence else Replicate()
    cut = DTensor.from_local(hidden, split.mesh, [place], run_check=False)
    whole: Tensor = cut.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    return whole


def _gathered(logits: Tensor, vocab_size: int, mesh: DeviceMesh) -> Tensor:
    """Logits of the whole vocabulary, on every rank."""
    shape = torch.Size((*logits.shape[:-1], vocab_size))
    cut = DTensor.from_local(
        logits, mesh, [Shard(logits.ndim - 1)], shape=shape, stride=(vocab_size, 1)
    )
    whole: Tensor = cut.redistribute(placements=[Replicate()]).to_local()
    return whole


def _summed(loss: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum over ranks that had other tokens."""
    parts = DTensor.from_local(loss, mesh, [Partial()], run_check=False)
    total: Tensor = parts.redistribute(placements=[Replicate()]).to_local()
    return total


def cut_cross_entropy(
    logits: Tensor, labels: Tensor, vocab_size: int, *, mesh: DeviceMesh
) -> Tensor:
    """Summed cross-entropy, shape [1], of logits [n, v] cut over the vocabulary as Shard cuts it.

    Every rank of `mesh` has the same `labels` [n] and gets the same sum; v may differ by rank.
    """
    rows = -(-vocab_size // mesh.size())  # as torch.chunk cuts
    first = min(rows * mesh.get_local_rank(), vocab_size)
    loss: Tensor = _CutCrossEntropy.apply(logits, labels, first, mesh.get_group())
    return loss


class _CutCrossEntropy(torch.autograd.Function):
    """log(sum(exp(logits))) - logit of the label, from parts of every row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, first: int, group: Any) -> Tensor:
        counts = labels != IGNORED
        here = counts & (labels >= first) & (labels < first + logits.shape[1])
        places = torch.where(here, labels - first, 0).unsqueeze(1)
        largest = logits.amax(dim=1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(1)
        chosen = torch.where(here, shifted.gather(1, places).squeeze(1), 0)
        weights = shifted.exp_()
        sums = torch.stack([weights.sum(dim=1), chosen])
        dist.all_reduce(sums, group=group)
        ctx.save_for_backward(weights.div_(sums[0].unsqueeze(1)), places, here, counts)
        losses = torch.where(counts, sums[0].log() - sums[1], 0)
        return losses.sum().unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Probability less one at the label, where the token counts."""
        probabilities, places, here, counts = ctx.saved_tensors
        gradient = probabilities * counts.unsqueeze(1)
        gradient.scatter_add_(1, places, -here.unsqueeze(1).to(gradient.dtype))
        return gradient.mul_(gradients[0]), None, None, None
