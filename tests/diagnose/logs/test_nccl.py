"""NCCL's logs in the formats of its versions and launchers."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.diagnose.logs.nccl import read_nccl_log

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.logs.noun import NcclLog


def lines_of_rank(rank: int, *, nodes: int = 2, per_node: int = 2, net: str = "IB") -> list[str]:
    """What NCCL 2.21 to 2.27 write for one rank of a job, line by line."""
    node, local = divmod(rank, per_node)
    world = nodes * per_node
    head = f"node{node}:{1000 + rank}:{2000 + rank} [{local}]"
    comm = f"0x55d0c{rank:03x}"
    info = [
        f"Bootstrap: Using eth0:10.0.0.{node}<0>",
        "NCCL version 2.27.5+cuda12.9",
        "NCCL_SOCKET_IFNAME set by environment to eth0",
        "NCCL_IB_HCA set by environment to mlx5",
        "NET/Plugin: Could not find: libnccl-net.so. ",
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
        if net == "IB"
        else "NET/IB : No device found.",
        "NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>",
        f"Using network {net}",
        f"ncclCommInitRankConfig comm {comm} rank {rank} nranks {world} cudaDev {local} nvmlDev "
        f"{local} busId {9 + local}b000 commId 0x7b6dcb8062e2781c - Init START",
        f"comm {comm} rank {rank} nRanks {world} nNodes {nodes} localRanks {per_node} "
        f"localRank {local} MNNVL 0",
        "Channel 00/02 : 0 1 2 3",
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        f"Channel 00/0 : {rank}[{local}] -> {(rank + 1) % world}[{1 - local}] via P2P/CUMEM",
        f"Channel 01/0 : {rank}[{local}] -> {(rank + 1) % world}[{1 - local}] via P2P/CUMEM",
        f"Channel 00/0 : {rank}[{local}] -> {(rank + 2) % world}[{local}] [send] via "
        f"NET/{net}/{local}{'/GDRDMA' if net == 'IB' else ''}",
        f"Connected all rings, use ring PXN 0 GDR {int(net == 'IB')}",
        "threadThresholds 8/8/64 | 32/8/64 | 512 | 512",
        "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels "
        "per peer",
        f"ncclCommInitRankConfig comm {comm} rank {rank} nranks {world} cudaDev {local} nvmlDev "
        f"{local} busId {9 + local}b000 commId 0x7b6dcb8062e2781c - Init COMPLETE",
        f"Init timings - ncclCommInitRankConfig: rank {rank} nranks {world} total 2.46 (kernels "
        "0.32, alloc 0.1)",
        "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}",
        "AllReduce: 8388608 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}",
        "AllReduce: 8388608 Bytes -> Algo 1 proto 1 time 12.300000",
    ]
    return [f"{head} NCCL INFO {text}" for text in info]


def read(folder: Path, text: str | bytes, name: str = "nccl.log") -> NcclLog:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_nccl_log(path)


def mixed(seed: int = 1, **given: str) -> str:
    """The lines of four ranks as they come into one file."""
    waiting = [lines_of_rank(rank, **given) for rank in range(4)]  # type: ignore[arg-type]
    chance, out = random.Random(seed), []
    while any(waiting):
        lines = chance.choice([w for w in waiting if w])
        out.append(lines.pop(0))
    return "\n".join(out) + "\n"


def test_a_job_of_two_nodes(tmp_path: Path) -> None:
    log = read(tmp_path, mixed())
    assert (log.version, log.library, log.network) == ("2.27.5", "NCCL", "IB")
    assert set(log.hosts) == {"node0", "node1"}
    assert log.ranks == (0, 1, 2, 3)
    assert log.interfaces == ("mlx5_0:1/IB", "mlx5_1:1/IB")
    assert log.bootstrap == ("eth0",)
    assert log.settings == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5"}
    assert log.networks == {"IB": 4}
    assert not log.warnings
    assert not log.ib_missing
    comm = next(c for c in log.communicators if c.rank == 3)
    assert (comm.host, comm.pid, comm.nranks, comm.cuda_device) == ("node1", 1003, 4, 1)
    assert (comm.bus, comm.group) == ("10b000", "0x7b6dcb8062e2781c")
    assert (comm.nodes, comm.local_ranks, comm.channels, comm.gdr) == (2, 2, 24, True)
    assert comm.transports == {"P2P/CUMEM": 2, "NET/IB/1/GDRDMA": 1}
    assert comm.algorithms == {"Ring LL128": 2, "Tree LL": 1}
    assert (comm.init_s, comm.complete) == (2.46, True)


def test_a_fall_back_to_sockets_shows(tmp_path: Path) -> None:
    log = read(tmp_path, mixed(net="Socket"))
    assert (log.network, log.ib_missing) == ("Socket", True)
    assert log.interfaces == ("eth0", "eth1")
    assert all(c.gdr is False for c in log.communicators)


@pytest.mark.parametrize(
    "before",
    [
        "[rank3]: ",
        "[1,0]<stdout>:",
        "(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=927) ",
        "[2025-12-28 16:04:25] ",
        " 2025-02-18 12:54 ",
        "worker-0: ",
        "3: ",
        "\x1b[36m(train pid=9)\x1b[0m ",
        "2024-05-01T10:00:00.123Z stderr F ",
    ],
)
def test_what_launchers_put_before_a_line_changes_nothing(tmp_path: Path, before: str) -> None:
    plain = read(tmp_path, mixed())
    told = read(tmp_path, "".join(f"{before}{line}\n" for line in mixed().splitlines()))
    assert told == plain


OLDER = """\
A03:5:8077 [0] NCCL INFO Bootstrap : Using [0]eno1:172.18.40.41<0>
A03:5:8077 [0] NCCL INFO NET/Plugin : No plugin found
A03:5:8077 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
A03:5:8077 [0] NCCL INFO NET/Socket : Using [0]eno1:172.18.40.41<0>
NCCL version 2.10.3+cuda11.1
A03:5:8135 [0] NCCL INFO Channel 00 : 0[18000] -> 1[18000] [receive] via NET/Socket/1
A03:5:8135 [0] NCCL INFO Channel 00 : 0[18000] -> 2[1a000] via direct shared memory
A03:5:8135 [0] NCCL INFO Call to connect returned Connection timed out, retrying
A03:5:8135 [0] NCCL INFO 8 coll channels, 8 p2p channels, 1 p2p channels per peer
A03:5:8135 [0] NCCL INFO comm 0x7fdf08000d00 rank 0 nranks 16 cudaDev 0 busId 18000 - Init COMPLETE
A03:5:8135 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 7.200057

A03:5:8135 [0] include/socket.h:403 NCCL WARN Connect to 10.0.0.2<45763> failed : Connection refused
A03:5:8135 [0] include/socket.h:403 NCCL WARN Connect to 10.0.0.3<45111> failed : Connection refused
"""


def test_older_versions(tmp_path: Path) -> None:
    log = read(tmp_path, OLDER)
    assert (log.version, log.network, log.interfaces) == ("2.10.3", "Socket", ("eno1",))
    assert log.settings == {"NCCL_IB_DISABLE": "1"}
    assert log.connect_retries == 1
    assert log.transports == {"NET/Socket/1": 1, "direct shared memory": 1}
    (comm,) = [c for c in log.communicators if c.nranks]
    assert (comm.rank, comm.nranks, comm.bus, comm.complete) == (0, 16, "18000", True)
    assert comm.algorithms == {"Tree LL": 1}
    (warning,) = log.warnings
    assert warning == "Connect to 10.0.0.2<45763> failed : Connection refused"
    assert log.warning_counts == {warning: 2}


RCCL = """\
corona:9:27 [0] /src/init.cc:140 NCCL WARN NUMA auto balancing enabled which can lead to
corona:9:27 [0] NCCL INFO Kernel version: 6.14.0-35-generic
corona:9:27 [0] NCCL INFO RCCL version : 2.26.6-HEAD:f224e2c
HIP version  : 7.0.51831-a3e329ad8
corona:9:27 [0] NCCL INFO NET/Socket : Using [0]enp165s0f1np1:10.20.1.126<0>
corona:9:27 [0] NCCL INFO Using network Socket
corona:9:30 [0] NCCL INFO comm 0x2bc1f840 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0
corona:9:30 [0] NCCL INFO Channel 00/0 : 0[3000] -> 1[d000] via P2P/IPC comm 0x2bc1f840 nRanks 02
corona:9:30 [0] NCCL INFO Channel 00/0 : 1[d000] -> 0[3000] [receive] \
via NET/AWS Libfabric/2/GDRDMA comm 0x2bc1f840 nRanks 02
corona:9:30 [0] NCCL INFO comm 0x2bc1f840 rank 0 nranks 2 cudaDev 0 busId 3000 \
localSize 224 used 0 bytes - Init COMPLETE
"""


def test_rccl(tmp_path: Path) -> None:
    log = read(tmp_path, RCCL)
    assert (log.version, log.library) == ("2.26.6", "RCCL")
    assert log.warnings[0].startswith("NUMA auto balancing")
    (comm,) = log.communicators
    assert comm.transports == {"P2P/IPC": 1, "NET/AWS Libfabric/2/GDRDMA": 1}
    assert (comm.bus, comm.nodes) == ("3000", 1)


TABLE = """\
lab:1:1 [0] NCCL INFO   Algorithm   |            Tree           |            Ring            |
lab:1:1 [0] NCCL INFO   Protocol    |     LL |  LL128 | Simple |     LL |  LL128 |  Simple |
lab:1:1 [0] NCCL INFO  Max NThreads |    512 |    640 |    512 |    512 |    640 |     256 |
lab:1:1 [0] NCCL INFO     AllReduce |    25.2/  11.3 |    48.5/ 225.0 |    92.4/ 220.8 | \
   36.2/  12.0 |    75.2/ 235.5 |   131.6/ 256.0 |
lab:1:1 [0] NCCL INFO     AllGather |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 | \
   17.6/   3.6 |     1.0/   0.0 |    22.4/   4.8 |
"""


def test_the_table_of_algorithms(tmp_path: Path) -> None:
    tuning = read(tmp_path, TABLE).tuning
    assert tuning["AllReduce Tree LL"] == (25.2, 11.3)
    assert tuning["AllReduce Ring Simple"] == (131.6, 256.0)
    assert tuning["AllGather Ring LL"] == (17.6, 3.6)
    assert "AllGather Tree LL" not in tuning  # not offered: no bandwidth


def test_time_outs_of_pytorch_stand_in_the_same_file(tmp_path: Path) -> None:
    watchdog = (
        "[rank9]:[E218 04:54:22.06 ProcessGroupNCCL.cpp:616] [Rank 9] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=66, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
    )
    log = read(tmp_path, mixed() + watchdog)
    (timeout,) = log.timeouts
    assert timeout.startswith("WorkNCCL(SeqNum=66, OpType=ALLREDUCE")


TORN = """\
ljm:803564:803564 [1] NCCL INFO Using network Socket
ljm:803564:803604 [1] NCCL INFO comm 0x94979 rank 1 nranks ljm:803563:8036 [0] NCCL INFO comm 0x8f
 p2p channels ljm:80356ljm:803564:803604 [1] NCCL INFO comm 0x94979 rank 1 nranks 2 cudaDev 1
ljm:803564:803604 [1] NCCL INFO Pattern 1, crossNic 0, nChannels 1, bw 4.0/4.0, type SYS/PHB
ljm:803564:803604 [1] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'
  8388608   2097152     float     sum      -1ljm:803564:803564 [1] NCCL INFO AllReduce: \
opCount 3 sendbuff 0xf2 recvbuff (nil) count 100 \
datatype 9 op 0 root 0 comm 0x94979 [nranks=2] stream 0x1
"""


def test_a_torn_head_and_what_verbose_logs_add(tmp_path: Path) -> None:
    log = read(tmp_path, TORN)
    (comm,) = log.communicators
    assert (comm.host, comm.rank, comm.nranks) == ("ljm", 1, 2)
    assert (comm.calls, comm.call_bytes) == ({"AllReduce": 1}, {"AllReduce": 200})
    assert log.hosts == ("ljm",)
    assert log.paths == {"SYS/PHB": 1}
    assert log.gdr_disabled == ("mlx5_1",)
    assert log.interfaces == ()


def test_torn_lines_are_taken_apart(tmp_path: Path) -> None:
    lines = mixed().splitlines()
    torn = lines[0] + lines[1] + "\n" + lines[2][:-3] + lines[3] + "\n" + "\n".join(lines[4:])
    log = read(tmp_path, torn)
    assert log.ranks == (0, 1, 2, 3)
    assert set(log.hosts) == {"node0", "node1"}


def test_settings_and_versions_that_differ_between_processes_show(tmp_path: Path) -> None:
    other = mixed(2).replace("2.27.5", "2.21.5").replace("to mlx5", "to mlx5_0")
    log = read(tmp_path, mixed() + other)
    assert set(log.versions) == {"2.27.5", "2.21.5"}
    assert log.mixed_settings == ("NCCL_IB_HCA",)


def test_gzip_long_lines_and_other_programs(tmp_path: Path) -> None:
    text = mixed() + "x" * 3_000_000 + "\nstep 1 loss 2.0\n" + lines_of_rank(0)[1] + "\n"
    log = read(tmp_path, gzip.compress(text.encode()), "nccl.log.gz")
    whats = {left.what: left.count for left in log.left}
    assert whats["long lines"] == 1
    assert whats["lines of other programs"] == 2
    assert whats["unknown lines"] > 0
    assert log.ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("text", ["hello\nworld\n", "{}", "step 1 loss 2\n" * 50, "NCCL\n", " "])
def test_what_is_no_log_is_refused_with_what_to_type(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="no line of NCCL's") as caught:
        read(tmp_path, text)
    assert "NCCL_DEBUG=INFO" in caught.value.findings[0].hint


def test_memory_is_bounded_whatever_the_log_says(tmp_path: Path) -> None:
    words = [
        f"h{n}:1:1 [0] a.cc:1 NCCL WARN {chr(97 + n % 26) * (n % 300)}{n}x" for n in range(9000)
    ]
    words += [
        f"h:1:1 [0] NCCL INFO NCCL_{chr(65 + n % 26) * (n % 90)} set by environment to {n}"
        for n in range(9000)
    ]
    log = read(tmp_path, "\n".join(words))
    assert len(log.hosts) <= 4096
    assert len(log.warnings) <= 256
    assert any(left.what.startswith("further") for left in log.left)


def test_numbers_that_are_none_are_passed_over(tmp_path: Path) -> None:
    many = "9" * 5000
    bad = [
        f"a:1:1 [0] NCCL INFO comm 0x1 rank {many} nranks 2 cudaDev \u00b2 busId 1 - Init COMPLETE",
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev \u00b2 busId 1 nNodes \u00b2",
        f"a:1:1 [0] NCCL INFO {many} coll channels",
        f"a:1:1 [0] NCCL INFO Init timings: rank 0 nranks 2 total {many}",
        "a:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo \u00b2 proto 77",
        *TABLE.replace("48.5", "4..8.5").replace("lab", "a").splitlines(),
    ]
    log = read(tmp_path, "\n".join(bad))
    (comm,) = log.communicators
    assert (comm.rank, comm.nodes, comm.channels) == (0, None, 0)
    assert "AllReduce Ring LL" not in log.tuning  # its row is damaged
    assert "AllGather Ring LL" in log.tuning


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(600, 6000), length=st.integers(0, 60), put=st.binary(max_size=20))
def test_any_damage_is_survived(tmp_path: Path, at: int, length: int, put: bytes) -> None:
    raw = mixed().encode()
    log = read(tmp_path, raw[:at] + put + raw[at + length :])
    assert log.version == "2.27.5"
    assert {0, 1, 2, 3} >= set(log.ranks)
