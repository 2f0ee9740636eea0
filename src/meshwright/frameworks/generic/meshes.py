"""Meshes of trainers that have no table of their own: MaxText, OLMo-core, FlagScale.

MaxText's degrees (MaxText/configs/base.yml) multiply inside a slice (ici) and between slices (dcn);
one of either may be -1 and takes what is left. Its batch counts samples a device. OLMo-core counts
batches in tokens (OLMo-core src/olmo_core/train). FlagScale's meshes of unequal devices are lists
of tp, cp, ep, dp and pp (FlagScale flagscale/train/hetero).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.frameworks.meanings import Meanings

_AXES = {  # our degree by the words of theirs, beside data and fsdp
    "tp": ("tensor", "tensor_transpose", "tensor_sequence"),
    "cp": ("context", "sequence"),
    "pp": ("pipeline",),
    "ep": ("expert",),
}
_SHARDS = ("fsdp", "fsdp_transpose")
_COPIES = ("data",)
_MESH = 5  # numbers of one FlagScale mesh


def meshes(m: Meanings) -> None:
    """The degrees, and batches in other units."""
    _jax(m)
    _tokens(m)
    _unequal(m)


def _degrees(m: Meanings, axes: Sequence[str]) -> list[int]:
    """The stated degrees of some axes, inside slices and between them."""
    names = [f"{kind}_{axis}" for kind in ("ici", "dcn") for axis in axes]
    values = (m.value(f"{name}_parallelism") for name in names)
    return [value for value in values if isinstance(value, int)]


def _jax(m: Meanings) -> None:
    names = (*_SHARDS, *_COPIES, *(axis for axes in _AXES.values() for axis in axes))
    stating = tuple(f"{kind}_{axis}_parallelism" for kind in ("ici", "dcn") for axis in names)
    each = m.value("samples_per_device")
    if not any(m.stating(name) for name in stating):
        if isinstance(each, int) and not m.stating("micro_batch_size"):
            m.follow("micro_batch_size", each, "samples_per_device")
        return
    for degree, axes in _AXES.items():
        found = [n for n in _degrees(m, axes) if n > 0]
        if found:
            sources = [f"{kind}_{axis}_parallelism" for kind in ("ici", "dcn") for axis in axes]
            m.follow(degree, prod(found), *sources)
    shards, copies = _degrees(m, _SHARDS), _degrees(m, _COPIES)
    if shards and all(n > 0 for n in (*shards, *copies)):
        m.follow("dp_shard", prod(shards) * m.count("ep"), *stating)
        m.follow("dp_replicate", max(prod(copies), 1), *stating)
    if any(n != 1 for n in shards):
        m.follow("zero_stage", 3, *stating)
    if isinstance(each, int) and each > 0:
        ranks = m.count("tp") * m.count("cp") * m.count("pp")
        m.follow("micro_batch_size", each * ranks, "samples_per_device")


def _tokens(m: Meanings) -> None:
    """Batches that count tokens, known by the name of the micro-batch."""
    tokens, length = m.value("micro_batch_tokens"), m.value("seq_len")
    if not isinstance(tokens, int) or not isinstance(length, int) or length < 1:
        return
    m.follow("micro_batch_size", max(tokens // length, 1), "micro_batch_tokens", "seq_len")
    batch = m.value("global_batch_size")
    if isinstance(batch, int) and batch >= length:
        m.follow("global_batch_size", batch // length, "global_batch_size", "seq_len")


def _unequal(m: Meanings) -> None:
    """No one mesh describes devices of several kinds; their number follows from all."""
    listed = m.value("hetero_process_meshes")
    if not isinstance(listed, list) or not listed or len(listed) % _MESH:
        return
    if not all(isinstance(n, int) and n > 0 for n in listed):
        return
    own = [listed[i : i + _MESH] for i in range(0, len(listed), _MESH)]
    m.follow("hetero_tp", [tp for tp, *_ in own], "hetero_process_meshes")
    m.follow(
        "num_gpus", sum(tp * cp * dp * pp for tp, cp, _, dp, pp in own), "hetero_process_meshes"
    )
    for degree in ("tp", "pp", "cp", "ep", "dp"):
        m.follow(degree, UNKNOWN, "hetero_process_meshes")
