from __future__ import annotations

import pytest

from meshwright.evidence.clusters import scale_out_bytes_per_s


@pytest.mark.parametrize(
    ("text", "gpus_per_node", "gbit_per_s_per_gpu"),
    [
        ("NVLink4 in-node + InfiniBand NDR 400Gb/s per GPU (DGX H100)", 8, 400),
        ("NVLink in-node; AWS EFA 3200 Gb/s per node (p5)", 8, 400),
        ("Jean Zay: NVLink3 in-node, 4x Omni-Path 100 Gb/s per node", 8, 50),
        ("NVLink2 in-node; 4x100 Gb/s Omni-Path per node (Jean Zay)", 4, 100),
        ("Selene: NVLink3 in-node, 8x HDR InfiniBand 200 Gb/s per node", 8, 200),
        ("1600 Gb/s RoCE per node", 8, 200),
        ("Atlas 900 A2 PODc (HCCS in-node, 200 Gb/s RoCE per NPU)", 8, 200),
        (
            "NVLINK Gen4 900 GB/s + NVSWITCH Gen3 in-node; Storage: 2x ConnectX-7 IB NDR 400Gb/s, "
            "Compute: 8x ConnectX-7 IB NDR 400Gb/s, Management: 100Gb/s Ethernet NIC",
            8,
            400,
        ),
        ("NVLINK 4.0 in-node; 1x Ethernet 100Gb/Sec, 8x CX7 InfiniBand (400Gb/s)", 8, 400),
        ("NVLINK Gen5 1800 GB/s in-node; 4x ConnectX-8 IB XDR 800 Gb/s", 4, 800),
        ("PCIe Gen4 in-node; BF3 200Gbps for NS and 2xBF3 400Gbps for EW", 4, 200),
        ("NVLink 400 GB/s in-node; 8x400 Gb/s InfiniBand per node", 8, 400),
        ("NVL72 domain (NVLink5 900 GB/s/dir) + InfiniBand/RoCE", 4, None),
        ("NVLink3 in-node; RoCE RDMA between nodes (rate not stated)", 8, None),
        ("ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", 8, None),
        ("NVLink in-node; 100GbE InfiniBand", 8, None),
        ("", 8, None),
    ],
)
def test_rates_between_nodes(text, gpus_per_node, gbit_per_s_per_gpu) -> None:
    found = scale_out_bytes_per_s(text, gpus_per_node=gpus_per_node)
    wanted = None if gbit_per_s_per_gpu is None else gbit_per_s_per_gpu * 1e9 / 8
    assert found == wanted
