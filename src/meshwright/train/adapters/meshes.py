"""What torch remembers of meshes that are gone (2.13).

DTensor keeps how it placed an operator's output, mesh and all, for the next call on an equal mesh;
meshes are equal by shape and not by process group. A forked rank that inherits such memory would
send to groups of its parent, so it forgets first. Private: the two functions of tensor/debug and
the cache of `_redistribute`.
"""

from __future__ import annotations

import sys


def forget_meshes() -> None:
    """Empties those caches; does nothing where DTensor has not been imported."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import debug
    from torch.distributed.tensor._redistribute import _gen_transform_infos

    debug._clear_sharding_prop_cache()
    _gen_transform_infos.cache_clear()
