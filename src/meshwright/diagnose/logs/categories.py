"""What an allocation is for, by the functions that asked for it.

The frames of an allocation run from the innermost outwards. The first frame that speaks of a
collective, an optimizer, a backward or a forward pass decides; a stack that has none of them but
builds, loads or moves modules made weights. A recomputed forward inside of the backward pass is an
activation, for "forward" comes first from inside. The backward pass on a GPU runs in a thread
without Python frames: a stack without frames, where others have some, is its: gradients.

So a category is told by where memory was asked for, not by what holds it: what the backward pass
uses for a moment counts to gradients, temporaries of the optimizer's step to the optimizer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer"
ACTIVATIONS, COMMUNICATION, DATA, OTHER = "activations", "communication", "data", "other"
BEFORE = "before the record"
NO_STACK = "backward pass (a thread without Python frames)"
BUILDING = 8  # innermost frames in which the building of modules must show
LONGEST = 200  # characters of a site


class Frame(NamedTuple):
    """A function on the stack of an allocation."""

    file: str
    line: int
    name: str


_MOVES = r"(?i)all_?gather|reduce|unshard|prefetch|bucket|alloc_storage|dispatch|combine"

# (category, what the file's name must have, what the function's name must have), first match wins
_DECIDING = tuple(
    (category, re.compile(file, re.IGNORECASE), re.compile(name))
    for category, file, name in (
        (COMMUNICATION, r"distributed_c10d|/nccl|c10d|_functional_collectives", r""),
        (COMMUNICATION, r"fsdp|fully_shard|param_and_grad_buffer|zero/|deep_?ep", _MOVES),
        (COMMUNICATION, r"", r"^(all_gather|all_reduce|reduce_scatter|all_to_all)|c10d::|nccl"),
        (OPTIMIZER, r"[/\\]optim[/\\]|optimizer", r"^(?!zero_grad)"),
        (OPTIMIZER, r"", r"^(_?(fused_|foreach_)?(adam|adamw|sgd|lion|muon)\w*|optimizer_step)$"),
        (GRADIENTS, r"torch[/\\]_tensor\.py|torch[/\\]autograd[/\\]", r"backward|grad"),
        (GRADIENTS, r"", r"^backward$|Backward\d*::apply|autograd::Engine|AccumulateGrad"),
        (DATA, r"dataloader|data[/\\]_utils|collate|pin_memory|dataset", r""),
        (ACTIVATIONS, r"", r"^_?forward\w*$|^_call_impl$|^_wrapped_call_impl$"),
        (ACTIVATIONS, r"", r"cross_entropy|log_softmax|^loss"),
    )
)
_BUILDING = re.compile(
    r"^(__init__|_apply|to|cuda|to_empty|convert|reset_parameters|load_state_dict|_load\w*|"
    r"load|from_pretrained|_init_weights|init_weights|materialize\w*|empty_like|half|bfloat16|"
    r"init_\w+|\w*build\w*|fully_shard|_init_\w+|\w*model_provider\w*)$"
)
_INTERNAL = re.compile(r"[/\\]torch[/\\]|^\?\?$|^$|\.(c|cc|cpp|cu|h|hpp)$")
_INTERNAL_NAME = re.compile(r"::|^_call_impl$|^_wrapped_call_impl$")


def category_of(frames: Sequence[Frame], *, others_have_frames: bool) -> str:
    """The category of an allocation with this stack, innermost frame first."""
    if not frames:
        return GRADIENTS if others_have_frames else OTHER
    for frame in frames:
        for category, file, name in _DECIDING:
            if file.search(frame.file) and name.search(frame.name):
                return category
    inner = frames[:BUILDING]
    return WEIGHTS if any(_BUILDING.search(frame.name) for frame in inner) else OTHER


def site_of(frames: Sequence[Frame]) -> str:
    """ "file:line function" of the innermost frame outside of PyTorch, else of the innermost."""
    if not frames:
        return NO_STACK
    own = [f for f in frames if not _INTERNAL.search(f.file) and not _INTERNAL_NAME.search(f.name)]
    frame = own[0] if own else frames[0]
    short = "/".join(re.split(r"[/\\]", frame.file)[-2:])
    return f"{short}:{frame.line} {frame.name}"[:LONGEST]
