"""Collectives: what they say of themselves and how long their bytes take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from making import kernels
from making.machine import COMPUTE, Machine, Meeting
from making.mesh import ProcessGroup, host_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from making.spec import Spec

BYTES = {"BFloat16": 2, "Float": 4}


def collective(
    m: Machine,
    axis: str,
    word: str,
    *,
    elements: int,
    dtype: str = "BFloat16",
    blocks: bool = False,
) -> Generator[Meeting, None, Meeting | None]:
    """A collective of `elements` (the whole, not a shard) on the rank's group of an axis.

    With `blocks` compute waits for it; without, what comes back is to be waited for.
    """
    group = m.groups.get(axis)
    if group is None or len(group.ranks) == 1:
        return None
    m.graph = min(m.graph, 0)
    deep = word == "all_to_allv" and m.spec.moe_kernels == "deepep"
    symmetric = axis == "tp" and word == "allreduce" and m.spec.symmetric_memory
    shares = _shares(word, elements, len(group.ranks))
    took = transfer_us(m.spec, group, word, elements * BYTES[dtype])
    if deep or symmetric:
        name = kernels.MULTIMEM if symmetric else _deepep(m)
        with m.op("symm_mem::multimem_all_reduce_" if symmetric else "fused_dispatch_combine"):
            yield from m.enqueue(
                name,
                group=group,
                key=(group.name, word),
                members=len(group.ranks),
                transfer_us=took,
                stream=COMPUTE if symmetric else group.stream,
                args={},
            )
    else:
        yield from _nccl(m, group, word, shares, dtype, took)
    meeting = m.last[COMPUTE if symmetric else group.stream]
    if blocks or symmetric:
        yield from m.wait(meeting)
        return None
    return meeting


def _deepep(m: Machine) -> str:
    count = m.counts["deepep"] = m.counts.get("deepep", 0) + 1
    return kernels.DEEPEP["dispatch" if count % 2 else "combine"]


def _shares(word: str, elements: int, members: int) -> tuple[int, int]:
    if word == "_allgather_base":
        return elements // members, elements
    if word == "_reduce_scatter_base":
        return elements, elements // members
    return elements, elements


def _nccl(
    m: Machine, group: ProcessGroup, word: str, shares: tuple[int, int], dtype: str, took: float
) -> Generator[Meeting, None, None]:
    said = message(m, group, word, shares, dtype)
    with (
        m.op(kernels.C10D[word]),
        m.op("record_param_comms", **_of_operator(m, said, shares, dtype)),
        m.op(kernels.ANNOTATION[word], "user_annotation"),
    ):
        m.call("hipEventRecord" if m.spec.rocm else "cudaEventRecord", 0.7)
        m.call("hipStreamWaitEvent" if m.spec.rocm else "cudaStreamWaitEvent", 0.7)
        yield from m.enqueue(
            kernels.nccl(m.spec, word, dtype),
            group=group,
            key=(group.name, "nccl"),
            members=len(group.ranks),
            transfer_us=took,
            stream=group.stream,
            args=_of_kernel(m.spec, said),
        )


def pass_on(
    m: Machine, word: str, peer: int, *, elements: int, lane: int
) -> Generator[Meeting, None, Meeting]:
    """A send to or a receive from another stage; each `lane` is a stream of its own."""
    group = m.groups["pp"]
    m.graph = min(m.graph, 0)
    ends = (m.rank, peer) if word == "send" else (peer, m.rank)
    said = message(m, group, word, (elements, elements), "BFloat16")
    if m.spec.era >= "2024-07" and said:
        said = {**said, "Src Rank" if word == "recv" else "Dst Rank": peer}
    arrow = "->" if word == "send" else "<-"
    shown = f"nccl:{word} {m.rank}{arrow}{peer}"
    with (
        m.op(kernels.C10D[word] if m.spec.p2p_args else "nccl:coalesced"),
        m.op(
            "record_param_comms" if m.spec.p2p_args else "ncclGroupEnd",
            **(_of_operator(m, said, (elements,) * 2, "BFloat16") if m.spec.p2p_args else {}),
        ),
        m.op(shown, "user_annotation"),
    ):
        yield from m.enqueue(
            kernels.nccl(m.spec, word, "BFloat16"),
            group=group,
            key=("p2p", *ends),
            members=2,
            transfer_us=_rate_us(m.spec, ends, elements * 2, group),
            stream=group.stream + 40 + lane,
            args=_of_kernel(m.spec, said) if m.spec.p2p_args else {},
        )
    return m.last[group.stream + 40 + lane]


def message(
    m: Machine, group: ProcessGroup, word: str, shares: tuple[int, int], dtype: str
) -> dict[str, Any]:
    """What a collective says, in the words of the era; {} where it says nothing."""
    if m.spec.era < "2024" or not m.spec.message_args:
        return {}
    shown = [str(r) for r in group.ranks]
    ranks = ", ".join(shown) if len(shown) <= 30 else ", ".join([*shown[:30], "..."])
    step = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
    said: dict[str, Any] = {
        "Collective name": word,
        "dtype": dtype,
        "In msg nelems": shares[0],
        "Out msg nelems": shares[1],
        "Group size": len(group.ranks),
        "Global rank start": group.ranks[0],
        "Global rank stride": step,
        "Process Group Ranks": f"[{ranks}]",
    }
    if m.spec.era == "2024-04":
        return said | {"Process Group ID": int(group.name)}
    said |= {
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": group.name,
        "Process Group Description": group.description,
    }
    if m.spec.era >= "2026":
        number = m.counts["seq", group.name] = m.counts.get(("seq", group.name), -1) + 1
        said |= {"Seq": number, "Is asynchronized op": "true", "Comms Id": 7_000 + int(group.name)}
    return said


def _of_operator(
    m: Machine, said: dict[str, Any], shares: tuple[int, ...], dtype: str
) -> dict[str, Any]:
    args = dict(said)
    if said and m.spec.era >= "2024-07":
        args["Rank"] = m.rank
    if m.spec.record_shapes:
        kind = {"BFloat16": "c10::BFloat16", "Float": "float"}[dtype]
        args["dims"] = [[shares[0]], [], [], [], [], [], [], [], [], []]
        args["types"] = [kind, "", "", "Scalar", "", *["ScalarList"] * 2, *["Scalar"] * 3]
    return args


def _of_kernel(spec: Spec, said: dict[str, Any]) -> dict[str, Any]:
    """What Kineto copies onto the kernel, since 2024-05."""
    if spec.era < "2024-05":
        return {}
    left = ("Global rank start", "Global rank stride", "Is asynchronized op", "Comms Id")
    return {k: v for k, v in said.items() if k not in left}


def transfer_us(spec: Spec, group: ProcessGroup, word: str, size: int) -> float:
    """Latency and bytes over the bus: the usual factors of rings."""
    n = len(group.ranks)
    factor = 2 * (n - 1) / n if word == "allreduce" else (n - 1) / n
    return _rate_us(spec, group.ranks, int(size * factor), group)


def _rate_us(spec: Spec, ranks: tuple[int, ...], size: int, group: ProcessGroup) -> float:
    across = len({host_of(spec, r) for r in ranks}) > 1
    rate = spec.network_gbps if across else spec.node_gbps
    slow = group.axis == spec.slow_axis and (
        spec.slow_axis_rank is None or spec.slow_axis_rank in group.ranks
    )
    us = spec.latency_us * (2 if across else 1) + size / (rate * 1e3)
    return us * (spec.slow_axis_factor if slow else 1.0)
