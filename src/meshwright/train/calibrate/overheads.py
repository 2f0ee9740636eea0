"""What of the small steps is the host's: measured less what the curves say of kernels and links."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.cost.calibration import default_calibration
from meshwright.cost.layers import layer_times
from meshwright.model.config import model_from_config
from meshwright.plan.job import Job, Workload
from meshwright.train.calibrate.hosts import DEEP, SEQ_LEN, SHALLOW, TINY, plans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.cost.layers import LayerTimes
    from meshwright.hardware.cluster import Cluster
    from meshwright.hardware.measured import Overheads
    from meshwright.train.calibrate.hosts import Step

LEAST_S = 1e-7  # an overhead is never nothing
FSDP_CALLS = 3.0  # a block's parameters are gathered in either pass, its gradients reduced once


def overheads(
    found: Mapping[str, Sequence[Step]], cluster: Cluster, *, known: Overheads
) -> Overheads:
    """Host times from the small steps of each axis; `cluster` has the curves, `known` the rest."""
    result = _of_one(found["one"], cluster, known)
    plain_s = _slope(found["one"], "passes_s")
    if "fsdp" in found:
        calls_s = _slope(found["fsdp"], "passes_s") - plain_s
        after_s = _after_s(found["fsdp"]) - result.host_step_layer_s
        result = replace(
            result,
            host_fsdp_s=max(calls_s / FSDP_CALLS, LEAST_S) + _latency_s(cluster, result),
            host_step_sharded_s=max(after_s, LEAST_S),
        )
    if "tp" in found:
        extra_s = _slope(found["tp"], "passes_s") - _block_s("tp", cluster, result)
        result = replace(result, host_tp_s=_share(extra_s, result))
    if "cp" in found:
        gathered_s = _slope(found["fsdp"], "passes_s") - plain_s  # parameters lie over cp too
        extra_s = _slope(found["cp"], "passes_s") - _block_s("cp", cluster, result) - gathered_s
        result = replace(result, host_cp_s=_share(extra_s, result))
    if "pp" in found:
        extra_s = _per_microbatch_s(found["pp"]) - _first_stage_s(cluster, result)
        result = replace(result, host_p2p_s=max(extra_s / 2.0, LEAST_S))
    return result


def _latency_s(cluster: Cluster, host: Overheads) -> float:
    """What a collective waits for beyond what its thread does; a GPU's steps contain it."""
    curves = cluster.links[0].curves
    return curves["all_gather"].launch_s if host.host_serial and curves else 0.0


def _of_one(found: Sequence[Step], cluster: Cluster, known: Overheads) -> Overheads:
    """A block's, a micro-batch's and a step's host time on one rank."""
    times = _times("one", cluster, known)
    block, ends = times.kinds[0], (times.embedding, times.head)
    forward_s = _slope(found, "forward_s")
    passes_s = _slope(found, "passes_s")
    host_s = max(forward_s - float(block.forward_s), LEAST_S)
    host_backward_s = passes_s - forward_s - float(block.backward_s + block.weight_s)
    shallow = next(step for step in found if step.layers == SHALLOW)
    outside_s = shallow.passes_s - SHALLOW * passes_s
    outside_s -= sum(float(end.forward_s + end.backward_s + end.weight_s) for end in ends)
    after_s = _after_s(found)
    fixed_s = shallow.step_s - shallow.passes_s - SHALLOW * after_s
    return replace(
        known,
        host_layer_s=host_s,
        host_backward=max(host_backward_s / host_s, 0.1),
        host_microbatch_s=max(outside_s, LEAST_S),
        host_step_layer_s=max(after_s, LEAST_S),
        step_s=max(fixed_s, LEAST_S),
    )


def _slope(found: Sequence[Step], name: str) -> float:
    """Seconds of one more block, with the fewest micro-batches."""
    few = min(step.micro_batches for step in found)
    by_depth = {s.layers: getattr(s, name) for s in found if s.micro_batches == few}
    return float(by_depth[DEEP] - by_depth[SHALLOW]) / (DEEP - SHALLOW) / few


def _after_s(found: Sequence[Step]) -> float:
    """Seconds of one more block after the passes: norm, clipping, optimizer."""
    few = min(step.micro_batches for step in found)
    by_depth = {s.layers: s.step_s - s.passes_s for s in found if s.micro_batches == few}
    return (by_depth[DEEP] - by_depth[SHALLOW]) / (DEEP - SHALLOW)


def _per_microbatch_s(found: Sequence[Step]) -> float:
    """Seconds of one more micro-batch at the lower depth."""
    by_count = {s.micro_batches: s.passes_s for s in found if s.layers == SHALLOW}
    few, many = min(by_count), max(by_count)
    return (by_count[many] - by_count[few]) / (many - few)


def _share(extra_s: float, host: Overheads) -> float:
    """The forward part of what an axis adds to both passes of a block."""
    return max(extra_s / (1.0 + host.host_backward), LEAST_S)


def _block_s(axis: str, cluster: Cluster, host: Overheads) -> float:
    """Seconds of both passes of a block under an axis, as predicted so far.

    Without its transfers where steps were timed by what their thread did.
    """
    block = _times(axis, cluster, host).kinds[0]
    waits = block.tp_s + block.cp_s if host.host_serial else 0.0
    return float(block.forward_s + block.backward_s + block.weight_s - waits)


def _first_stage_s(cluster: Cluster, host: Overheads) -> float:
    """Seconds of one micro-batch on the first of two stages, as predicted so far."""
    times = _times("pp", cluster, host)
    layers_s = SHALLOW / 2 * _block_s("pp", cluster, host)
    return layers_s + float(times.embedding.forward_s + times.embedding.weight_s)


def _times(axis: str, cluster: Cluster, host: Overheads) -> LayerTimes:
    return layer_times(_job(axis, cluster, host, rows=1), default_calibration())


def _job(axis: str, cluster: Cluster, host: Overheads, *, rows: int) -> Job:
    plan = plans()[axis]
    ranks = int(plan.tp * plan.cp * plan.pp * plan.dp)
    return Job(
        model=model_from_config(TINY | {"num_hidden_layers": SHALLOW}),
        cluster=replace(cluster, overheads=host, num_gpus=ranks, gpus_per_node=ranks),
        workload=Workload(seq_len=SEQ_LEN, global_batch_size=rows),
        plan=plan,
    )
