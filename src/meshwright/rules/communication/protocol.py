"""COM1xx: which algorithm and protocol carry a collective.

Section 7.1 of the guidelines. Almost all of it is "do not force": the tuner of the library knows
topology, size and function, and a forced choice holds for every collective of every communicator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes
from meshwright.rules.environment import (
    algorithms,
    integer,
    is_rail_optimized,
    network,
    network_kind,
    protocols,
    variable,
)
from meshwright.rules.predicted import EVERY_FIELD, peak_bytes
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

RING_LATENCY_NODES = 32
RING_LATENCY_BYTES = 16e6
SWITCH_REDUCTION_BYTES = 2e9
_NVLINK_SWITCHES = ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE")
_ENV = "NCCL docs/userguide/source/env.rst (2.30.7)"
_TUNING = "NCCL src/graph/tuning.cc ncclTopoTuneModel (2.30.7)"


# Forced choices


@rule(
    "COM101",
    "NCCL algorithm forced",
    severity=Severity.WARNING,
    section="7.1",
    source="NCCL docs/userguide/source/troubleshooting/performance_and_tuning.rst (2.30.7)",
    confidence="doc",
)
def algorithm_is_free(job: Job) -> Mask:
    """A forced algorithm holds for all sizes and functions; what helps one axis hurts another.

    It is meant for debugging, and for bit-exact repetition, where a fixed order of sums is the aim.

    Fails: plan(nccl_algo="Ring")
    Fails: plan(environment=(("NCCL_ALGO", "Tree"),))
    Passes: plan(nccl_algo="Ring", deterministic=True)
    """
    return bool(algorithms(job)) and not job.workload.recipe.deterministic


@algorithm_is_free.message
def _(job: Job) -> str:
    return f"NCCL_ALGO = {', '.join(algorithms(job))} for every collective"


algorithm_is_free.fix(always(nccl_algo=(None,)))


@rule(
    "COM102",
    "LL128 forced where it is not safe",
    severity=Severity.ERROR,
    section="7.1",
    source=f"{_ENV}, NCCL_PROTO",
    confidence="doc",
)
def protocol_is_safe(job: Job) -> Mask:
    """LL128 trusts that 128-byte stores are not split; where they are, data is corrupted silently.

    NCCL uses it by itself over NVLink, where it is safe. Unless the machine is said to be safe,
    anything else is not.

    Fails: plan(nccl_proto="LL128", link_kind="pcie")
    Fails: plan(nccl_proto="LL128", ll128_safe=False)
    Passes: plan(nccl_proto="LL128", link_kind="nvlink")
    Passes: plan(nccl_proto="^LL128", link_kind="pcie")
    """
    stated = job.workload.runtime.ll128_safe
    safe = job.cluster.links[0].kind == "nvlink" if stated is None else stated
    return "ll128" in protocols(job) and not safe


@protocol_is_safe.message
def _(job: Job) -> str:
    link = job.cluster.links[0].kind
    return f"NCCL_PROTO = {', '.join(protocols(job))}, not known to be safe on this {link} machine"


protocol_is_safe.fix(always(nccl_proto=(None,)))


@rule(
    "COM106",
    "Forced algorithm not available on this topology",
    severity=Severity.ERROR,
    section="7.1",
    source=f"{_TUNING}, ncclPatEnable",
    confidence="read",
)
def algorithm_is_available(job: Job) -> Mask:
    """With every forced algorithm disabled, none is left and the communicator fails.

    NVLSTree spans nodes, CollNet needs switches that reduce, and PAT is off with several GPUs a
    node unless NCCL_PAT_ENABLE is 1.

    Fails: plan(nodes=1, nccl_algo="NVLSTree")
    Fails: plan(nccl_algo="CollnetDirect")
    Fails: plan(nccl_algo="PAT")
    Passes: plan(nccl_algo="NVLSTree,Ring", nodes=1)
    Passes: plan(nccl_algo="CollnetDirect", net_in_network_reduction=True)
    """
    forced = algorithms(job)
    return bool(forced) and all(name in _unavailable(job) for name in forced)


def _unavailable(job: Job) -> dict[str, str]:
    """Algorithms that cannot run here, with the reason."""
    cluster, link = job.cluster, network(job.cluster)
    missing: dict[str, str] = {}
    if cluster.num_nodes == 1:
        missing["nvlstree"] = "there is one node"
    if not (link and link.in_network_reduction) and not job.workload.runtime.use_sharp:
        missing |= dict.fromkeys(("collnetdirect", "collnetchain"), "no switch reduces")
    if cluster.gpus_per_node > 1 and integer(job, "NCCL_PAT_ENABLE") != 1:
        missing["pat"] = f"{cluster.gpus_per_node} GPUs a node and NCCL_PAT_ENABLE is not 1"
    return missing


@algorithm_is_available.message
def _(job: Job) -> str:
    missing = _unavailable(job)
    return "; ".join(f"NCCL_ALGO = {name}: {missing[name]}" for name in algorithms(job))


algorithm_is_available.fix(always(nccl_algo=(None,)))


@rule(
    "COM110",
    "Ring forced for short messages over many nodes",
    severity=Severity.WARNING,
    section="7.1",
    source=_TUNING,
    reads=("reduce_bytes",),
    confidence="read",
)
def ring_carries_long_messages(job: Job) -> Mask:
    """A ring takes 2(n-1) steps of latency, a tree 2 log2(n).

    Fails: plan(nodes=64, nccl_algo="Ring", bucket_elements=1000000)
    Passes: plan(nodes=64, nccl_algo="Ring", bucket_elements=40000000)
    """
    many = job.cluster.num_nodes >= RING_LATENCY_NODES
    if algorithms(job) != ("ring",) or job.workload.runtime.bucket_elements is None or not many:
        return False
    return _bucket_bytes(job) < RING_LATENCY_BYTES


def _bucket_bytes(job: Job) -> Any:
    """Bytes of one gradient bucket."""
    return (job.workload.runtime.bucket_elements or 0) * job.plan.reduce_bytes


@ring_carries_long_messages.message
def _(job: Job) -> str:
    return (
        f"NCCL_ALGO = ring over {job.cluster.num_nodes} nodes with buckets of "
        f"{format_bytes(float(_bucket_bytes(job)))}"
    )


ring_carries_long_messages.fix(always(nccl_algo=(None,)))


# Reduction in the switches


@rule(
    "COM108",
    "SHARP expected by several communicators",
    severity=Severity.ERROR,
    section="7.1",
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    confidence="read",
)
def one_communicator_uses_sharp(job: Job) -> Mask:
    """InfiniBand SHARP serves one communicator, the first that is created; give it to dp.

    Fails: plan(use_sharp=True, sharp_groups=2)
    Passes: plan(use_sharp=True, sharp_groups=1)
    """
    runtime = job.workload.runtime
    return bool(runtime.use_sharp) and (runtime.sharp_groups or 1) > 1


@one_communicator_uses_sharp.message
def _(job: Job) -> str:
    return f"{job.workload.runtime.sharp_groups} communicators expect SHARP, one gets it"


one_communicator_uses_sharp.fix(always(sharp_groups=(1,)))


@rule(
    "COM109",
    "SHARP without a NIC for each GPU",
    severity=Severity.WARNING,
    section="7.1",
    source=_TUNING,
    confidence="read",
)
def sharp_has_enough_nics(job: Job) -> Mask:
    """All-gather and reduce-scatter in the network need as many NICs as GPUs in a node.

    With fewer they are disabled, and a sharded optimizer falls back to rings.

    Fails: plan(use_sharp=True, net_nics_per_node=4)
    Passes: plan(use_sharp=True, net_nics_per_node=8)
    """
    nics = _nics(job)
    scarce = 0 < nics < job.cluster.gpus_per_node
    return bool(job.workload.runtime.use_sharp) and job.cluster.num_nodes > 1 and scarce


def _nics(job: Job) -> int:
    """Network ports of a node, 0 when unknown."""
    link = network(job.cluster)
    return link.nics_per_node if link else 0


@sharp_has_enough_nics.message
def _(job: Job) -> str:
    return f"{_nics(job)} NICs for {job.cluster.gpus_per_node} GPUs a node"


@rule(
    "COM113",
    "In-switch NVLink reduction where memory is short",
    severity=Severity.INFO,
    section="7.1",
    source=f"{_ENV}, NCCL_NVLS_ENABLE; Megatron-LM megatron/core/transformer/moe/README.md",
    reads=EVERY_FIELD,
    confidence="doc",
    predictive=True,
)
def switch_reduction_has_memory(job: Job) -> Mask:
    """NVLink SHARP allocates buffers beside NCCL's, and initialization fails when it cannot.

    It is on by itself where NVSwitch can reduce. Off, it frees about 2 GB; user buffers and SHARP
    need it on.

    Fails: plan(num_hidden_layers=1, hidden_size=256, vocab_size=1000, seq_len=128,
        gpu_memory_bytes=1.9e9)
    Passes: plan(num_hidden_layers=1, hidden_size=256, vocab_size=1000, seq_len=128)
    Passes: plan(num_hidden_layers=1, hidden_size=256, vocab_size=1000, seq_len=128,
        gpu_memory_bytes=1.9e9, environment=(("NCCL_NVLS_ENABLE", "0"),))
    """
    switched = job.cluster.gpu.generation in ("hopper", "blackwell")
    wanted = bool(job.workload.runtime.use_sharp) or integer(job, "NCCL_NVLS_ENABLE") == 0
    if wanted or not switched or job.cluster.links[0].kind != "nvlink":
        return False
    free = job.cluster.gpu.memory_bytes - peak_bytes(job)
    return (free >= 0) & (free < SWITCH_REDUCTION_BYTES)


@switch_reduction_has_memory.message
def _(job: Job) -> str:
    peak, device = format_bytes(float(peak_bytes(job))), job.cluster.gpu.memory_bytes
    return f"a peak of {peak} of {format_bytes(device)}, and NCCL_NVLS_ENABLE is not 0"


switch_reduction_has_memory.fix(always(NCCL_NVLS_ENABLE=(0,)))


# Paths


@rule(
    "COM111",
    "GPUDirect RDMA off",
    severity=Severity.WARNING,
    section="7.1",
    source=f"{_ENV}, NCCL_NET_GDR_LEVEL",
    confidence="doc",
)
def network_reads_gpu_memory(job: Job) -> Mask:
    """Without it all traffic between nodes is copied through host memory.

    Fails: plan(gpu_direct_rdma=False)
    Fails: plan(environment=(("NCCL_NET_GDR_LEVEL", "LOC"),))
    Passes: plan(gpu_direct_rdma=False, nodes=1)
    """
    level = (variable(job, "NCCL_NET_GDR_LEVEL") or "").upper()
    off = job.workload.runtime.gpu_direct_rdma is False or level in ("LOC", "0")
    return off and job.cluster.num_nodes > 1


@network_reads_gpu_memory.message
def _(job: Job) -> str:
    level = variable(job, "NCCL_NET_GDR_LEVEL")
    cause = f"NCCL_NET_GDR_LEVEL = {level}" if level else "gpu_direct_rdma = False"
    return f"{cause}: {job.cluster.num_nodes} nodes exchange through host memory"


network_reads_gpu_memory.fix(always(gpu_direct_rdma=(True,)))


@rule(
    "COM112",
    "Multi-node NVLink not used",
    severity=Severity.ERROR,
    section="7.1",
    source=f"{_ENV}, NCCL_MNNVL_ENABLE; performance_and_tuning.rst",
    confidence="doc",
)
def nvlink_spans_nodes(job: Job) -> Mask:
    """NVLink across nodes needs the IMEX service and cuMem; without, traffic takes the network.

    That is an order of magnitude slower, and with NCCL_MNNVL_ENABLE=1 it fails instead.

    Fails: plan(gpus_per_node=4, nodes=18, link_domain=72, imex=False)
    Fails: plan(gpus_per_node=4, link_domain=72, environment=(("NCCL_CUMEM_ENABLE", "0"),))
    Passes: plan(gpus_per_node=4, nodes=18, link_domain=72, imex=True)
    Passes: plan(imex=False)
    """
    wide = job.cluster.links[0].domain > job.cluster.gpus_per_node and job.cluster.num_nodes > 1
    return wide and bool(_nvlink_obstacles(job))


def _nvlink_obstacles(job: Job) -> list[str]:
    """What keeps NVLink from being used between nodes."""
    off = [f"{name} = 0" for name in _NVLINK_SWITCHES if integer(job, name) == 0]
    return [*off, "no IMEX service"] if job.workload.runtime.imex is False else off


@nvlink_spans_nodes.message
def _(job: Job) -> str:
    return (
        f"{', '.join(_nvlink_obstacles(job))}: an NVLink domain of {job.cluster.links[0].domain} "
        f"GPUs falls apart into nodes of {job.cluster.gpus_per_node}"
    )


@nvlink_spans_nodes.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    service = {"imex": (True,)} if job.workload.runtime.imex is False else {}
    return {**service, **{n: (1,) for n in _NVLINK_SWITCHES if integer(job, n) == 0}}


@rule(
    "COM116",
    "One queue pair on a fabric with many paths",
    severity=Severity.WARNING,
    section="7.1",
    source="NCCL docs/userguide/source/troubleshooting/performance_and_tuning.rst (2.30.7), RoCE",
    confidence="doc",
)
def flows_spread_over_paths(job: Job) -> Mask:
    """Ethernet picks a path by hashing the flow; with one queue pair a connection has one path.

    Fails: plan(net_kind="roce", environment=(("NCCL_IB_QPS_PER_CONNECTION", "1"),))
    Passes: plan(net_kind="roce", environment=(("NCCL_IB_QPS_PER_CONNECTION", "4"),))
    Passes: plan(net_kind="infiniband", environment=(("NCCL_IB_QPS_PER_CONNECTION", "1"),))
    """
    many_paths = network_kind(job.cluster) == "roce" and job.cluster.num_nodes > 2
    return many_paths and integer(job, "NCCL_IB_QPS_PER_CONNECTION") == 1


@flows_spread_over_paths.message
def _(job: Job) -> str:
    return (
        f"NCCL_IB_QPS_PER_CONNECTION = {integer(job, 'NCCL_IB_QPS_PER_CONNECTION')} on "
        f"{network_kind(job.cluster)} over {job.cluster.num_nodes} nodes"
    )


flows_spread_over_paths.fix(always(NCCL_IB_QPS_PER_CONNECTION=(2, 4, 8)))


@rule(
    "COM117",
    "Crossing NICs forced on a rail fabric",
    severity=Severity.WARNING,
    section="7.1",
    source=f"{_ENV}, NCCL_CROSS_NIC",
    confidence="doc",
)
def rings_stay_on_rails(job: Job) -> Mask:
    """Where NIC i of all nodes shares a leaf switch, rings that change NICs cross the spine.

    Fails: plan(net_rail_optimized=True, environment=(("NCCL_CROSS_NIC", "1"),))
    Passes: plan(net_rail_optimized=True, environment=(("NCCL_CROSS_NIC", "0"),))
    """
    return is_rail_optimized(job.cluster) and integer(job, "NCCL_CROSS_NIC") == 1


@rings_stay_on_rails.message
def _(job: Job) -> str:
    return f"NCCL_CROSS_NIC = {integer(job, 'NCCL_CROSS_NIC')} on a rail-optimized fabric"


rings_stay_on_rails.fix(always(NCCL_CROSS_NIC=(0, 2)))


@rule(
    "COM118",
    "Wide all-to-all on a rail fabric without PXN",
    severity=Severity.WARNING,
    section="7.1",
    source=f"{_ENV}, NCCL_PXN_DISABLE",
    reads=("ep",),
    confidence="doc",
)
def all_to_all_joins_rails(job: Job) -> Mask:
    """PXN hands data over NVLink to the GPU on the destination's rail, and sends it together.

    Without it each pair of GPUs sends its own message through the spine.

    Fails: plan(ep=32, net_rail_optimized=True, environment=(("NCCL_PXN_DISABLE", "1"),))
    Passes: plan(ep=32, net_rail_optimized=True, environment=(("NCCL_PXN_DISABLE", "0"),))
    Passes: plan(ep=8, net_rail_optimized=True, environment=(("NCCL_PXN_DISABLE", "1"),))
    """
    if not is_rail_optimized(job.cluster) or integer(job, "NCCL_PXN_DISABLE") != 1:
        return False
    return job.plan.ep > job.cluster.gpus_per_node


@all_to_all_joins_rails.message
def _(job: Job) -> str:
    return (
        f"NCCL_PXN_DISABLE = 1 with ep {job.plan.ep} over nodes of {job.cluster.gpus_per_node} GPUs"
    )


all_to_all_joins_rails.fix(always(NCCL_PXN_DISABLE=(0,)))
