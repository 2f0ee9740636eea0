"""What a plan of Paddle's tuner means beyond its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.paddle.meaning import recompute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give: replicas, stages, recompute."""
    m = Meanings(config, values)
    replicas, sharded = m.field("dp_degree"), m.value("sharding_degree")
    names = ("dp_degree", "sharding_degree")
    if isinstance(replicas, int) and replicas > 0:
        m.give("paddle_dp", replicas, "dp_degree")
        if isinstance(sharded, int | None):
            m.give("dp", replicas * max(sharded or 1, 1), *names)
            m.give("dp_replicate", replicas if (sharded or 1) > 1 else 1, *names)
    if (m.value("sharding_degree") or 1) == 1:
        m.give("zero_stage", 0, *names)
    vpp = m.count("vpp")
    m.follow("schedule", "interleaved" if vpp > 1 and m.count("pp") > 1 else "1f1b", "vpp")
    sequence = bool(m.value("sequence_parallel", False)) and m.count("tp") > 1
    m.follow("sequence_parallel", sequence, "sequence_parallel")
    recompute(m, "use_recompute", "recompute_granularity")
    m.give("pads_vocab", False)
    batch, micro, dp = (m.value(v) for v in ("global_batch_size", "micro_batch_size", "dp"))
    if all(isinstance(n, int) and n > 0 for n in (batch, micro, dp)) and m.count("pp") > 1:
        m.follow("num_microbatches", batch // (dp * micro), "global_batch_size")
    return m.given
