"""Fit the kernel curves of hardware/data/efficiency.toml to measured tables.

    python benchmarks/fit_kernels.py [--data SYSTEMS/data] [--json] [--quick] [--write PATH]

The tables are those of the PyPI package aiconfigurator-core (Apache-2.0, extra `fit`): latencies in
ms of GEMM, context attention, fused MoE, FP8 casts and NCCL collectives on ten devices. Collective
sizes count elements (an int8 row of 2N takes as long as a half row of N). Errors are relative,
|predicted / measured - 1|, on large shapes only (m, n, k >= 1024; sequences >= 1024; transfers of
1 MB and more); parameters are found with a robust loss on all shapes that training could meet.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from meshwright.hardware import catalogue, curves

HEADER = """\
# Kernel curves, written by benchmarks/fit_kernels.py: do not edit; devices without tables are in
# kin.toml. Measured by aiconfigurator-core 0.12.0 (PyPI, Apache-2.0), systems/data. Parameters as
# in hardware/curves.py; errors are relative, on `points` large shapes (see the script).
"""

DEVICES = {
    "a100_sxm": "a100-80g",
    "h100_sxm": "h100",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "gb200": "gb200",
    "b300_sxm": "b300",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
# precision -> (dtype in the tables, framework or None for the median of all, operand bytes)
PRECISIONS = {
    "bf16": ("bfloat16", None, 2.0),
    "fp8": ("fp8", "trtllm", 1.0),
    "mxfp8": ("fp8_block", "trtllm", 1.0),
    "nvfp4": ("nvfp4", None, 0.5625),
}
FLASH = (
    "flash_attention",
    "vllm_flash_attn",
    "fa3",
    "vllm_flash_attn_fa3",
    "trtllm_mha",
    "vllm_flashinfer_trtllmprefill",
    "vllm_flash_attn_fa2",
)
BACKWARD_SHARE = 0.85  # arXiv 2307.08691 figures 4 to 6, arXiv 2407.08608 figures 5 and 6
COLLECTIVES = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "all_reduce",
    "alltoall": "all_to_all",
}
LINKS = {
    "a100_sxm": ("nvlink", 300e9),
    "h100_sxm": ("nvlink", 450e9),
    "b200_sxm": ("nvlink", 900e9),
    "rtx_pro_6000_server": ("pcie", 52e9),
}
SWITCH_REDUCES = 450e9  # NVLink 4 switches and later add up on the way
BOUNDS = {
    "launch_s": (1e-7, 3e-5),
    "rate": (0.03, 1.3),
    "memory": (0.1, 1.2),
    "m0": (1e-3, 300.0),
    "n0": (1e-3, 300.0),
    "k0": (1e-3, 3e3),
    "cast_bytes": (1e-3, 30.0),
    "cache_bytes": (1e-3, 100.0),
    "rows0": (1e-2, 1e6),
    "keys0": (1e-3, 3e3),
    "head_dim0": (1e-3, 3e2),
    "step_s": (1e-8, 1e-4),
    "ramp_s": (1e-9, 1e-3),
    "expert_rate": (0.05, 1.0),
    "routing_s": (1e-6, 3e-4),
    "traffic": (0.2, 6.0),
    "expert_rows0": (1e-2, 1e3),
}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters found, and how well they do on large shapes."""

    section: str
    parameters: dict[str, float]
    points: int
    median_error: float
    p90_error: float
    bias: float


def fit(section: str, start: dict[str, float], predict: Any, measured: Any, large: Any) -> Fit:
    """Least squares on log(predicted / measured), all parameters positive and bounded."""
    names = list(start)
    low, high = (np.log([BOUNDS[n][i] for n in names]) for i in (0, 1))
    target = np.log(measured)
    weight = np.where(large, 2.0, 1.0)

    def residual(x: Any) -> Any:
        return (np.log(predict(dict(zip(names, np.exp(x), strict=True)))) - target) * weight

    x0 = np.clip(np.log(list(start.values())), low + 1e-6, high - 1e-6)
    found = least_squares(residual, x0, loss="soft_l1", f_scale=0.1, bounds=(low, high)).x
    parameters = dict(zip(names, np.exp(found).tolist(), strict=True))
    error = (predict(parameters) / measured - 1.0)[large]
    return Fit(
        section=section,
        parameters=parameters,
        points=int(large.sum()),
        median_error=float(np.median(np.abs(error))),
        p90_error=float(np.quantile(np.abs(error), 0.9)),
        bias=float(np.median(error)),
    )


def read(data: Path, pattern: str) -> pd.DataFrame:
    """Every table that matches, with the framework in a column; latency in seconds."""
    parts = []
    for path in sorted(data.glob(pattern)):
        framework = path.parts[-3]
        parts.append(pd.read_parquet(path).assign(framework=framework))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts)
    table["seconds"] = table["latency"] * 1e-3
    return table[table["seconds"] > 0]


def thin(table: pd.DataFrame, quick: bool) -> pd.DataFrame:
    """At most 2,000 rows when in a hurry."""
    limit = 2000 if quick else 8000
    return table.sample(limit, random_state=0) if len(table) > limit else table


def roof(device: str, precision: str) -> curves.Roof:
    gpu = catalogue.gpu(DEVICES[device])
    return curves.Roof(flops_per_s=gpu.peak_flops[precision], bytes_per_s=gpu.memory_bytes_per_s)


def fit_matmul(data: Path, device: str, precision: str, quick: bool) -> Fit | None:
    dtype, framework, width = PRECISIONS[precision]
    if precision not in catalogue.gpu(DEVICES[device]).peak_flops:
        return None
    table = read(data, f"{device}/gemm/{framework or '*'}/*/gemm_perf.parquet")
    table = table[(table.gemm_dtype == dtype) & (table.m >= 64)]
    table = table[(table.n >= 128) & (table.k >= 128)]
    if table.empty:
        return None
    table = table.groupby(["m", "n", "k"]).seconds.median().reset_index()
    table = thin(table, quick)
    m, n, k = (table[c].to_numpy(float) for c in "mnk")
    top = roof(device, precision)

    def predict(p: dict[str, float]) -> Any:
        curve = curves.MatmulCurve(**p)
        product_s = curves.matmul_s(curve, top, m, n, k, operand_bytes=width)
        return product_s + curves.cast_s(curve, top, m * k)

    start = {"launch_s": 3e-6, "rate": 0.75, "m0": 30.0, "n0": 30.0, "k0": 100.0, "memory": 0.8}
    if width < 2.0:
        start["cast_bytes"] = 3.0
    large = (m >= 1024) & (n >= 1024) & (k >= 1024)
    name = catalogue.gpu(DEVICES[device]).name
    return fit(f"matmul.{name}.{precision}", start, predict, table.seconds.to_numpy(), large)


def fit_attention(data: Path, device: str, quick: bool) -> Fit | None:
    table = read(data, f"{device}/attention/*/*/context_attention_perf.parquet")
    window = table["window_size"].fillna(0) if "window_size" in table else 0
    table = table[(window == 0) & table.kernel_source.isin(FLASH)]
    table = table[(table.attn_dtype == "bfloat16") & (table.kv_cache_dtype == "bfloat16")]
    table = table[(table.isl >= 256) & table.head_dim.isin([64, 128, 192, 256])]
    shape = ["batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"]
    table = thin(table.groupby(shape).seconds.median().reset_index(), quick)
    b, s, h, g, d = (table[c].to_numpy(float) for c in shape)
    top = roof(device, "bf16")

    def predict(p: dict[str, float]) -> Any:
        curve = curves.AttentionCurve(**p, backward=BACKWARD_SHARE)
        kernel_s = curves.attention_forward_s(
            curve, top, rows=b * h * s, keys=s, head_dim=d, kv_rows=b * g * s, causal=True
        )
        return kernel_s + b * g * s * d * (curve.cache_bytes / top.bytes_per_s)

    start = {
        "launch_s": 5e-6,
        "rate": 0.7,
        "rows0": 1e4,
        "keys0": 500.0,
        "head_dim0": 10.0,
        "cache_bytes": 8.0,
    }
    large = (s >= 1024) & (b * h >= 4)
    name = catalogue.gpu(DEVICES[device]).name
    found = fit(f"attention.{name}", start, predict, table.seconds.to_numpy(), large)
    found.parameters["backward"] = BACKWARD_SHARE
    return found


def fit_experts(data: Path, device: str, dense: Fit, quick: bool) -> Fit | None:
    """Grouped products against the dense curve, from CUTLASS MoE kernels with balanced routing.

    The kernel routes, gathers, runs both products of a gated expert and sums; rows that every rank
    routes for experts it does not hold are left out (one expert-parallel rank only).
    """
    table = read(data, f"{device}/moe/trtllm/*/moe_perf.parquet")
    if table.empty:
        return None
    table = table[(table.moe_dtype == "bfloat16") & (table.distribution == "balanced")]
    table = table[(table.kernel_source == "moe_torch_flow_cutlass") & (table.moe_ep_size == 1)]
    shape = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts"]
    table = table.groupby([*shape, "moe_tp_size", "moe_ep_size"]).seconds.median().reset_index()
    table = table[table.num_tokens * table.topk >= 64 * table.num_experts]
    if table.empty:
        return None
    table = thin(table, quick)
    tokens, h, f, topk, experts = (table[c].to_numpy(float) for c in shape)
    local = experts / table.moe_ep_size.to_numpy(float)
    f = f / table.moe_tp_size.to_numpy(float)
    rows = tokens * topk / experts
    top = roof(device, "bf16")
    base = curves.MatmulCurve(**dense.parameters)
    moved = local * rows * (4 * h + 4 * f) * 2.0  # gather, activation and weighted sum, 16 bits

    def predict(p: dict[str, float]) -> Any:
        curve = curves.ExpertsCurve(**p)
        up, down = (
            curves.grouped_matmul_s(base, curve, top, rows, n, k, experts=local, operand_bytes=2.0)
            for n, k in ((2 * f, h), (h, f))
        )
        traffic_s = curve.traffic * moved / (top.bytes_per_s * base.memory)
        return up + down + traffic_s + curve.routing_s

    start = {"routing_s": 3e-5, "expert_rate": 0.8, "expert_rows0": 32.0, "traffic": 1.0}
    large = (rows >= 256) & (h >= 1024) & (f >= 512)
    name = catalogue.gpu(DEVICES[device]).name
    return fit(f"experts.{name}", start, predict, table.seconds.to_numpy(), large)


def fit_memory(data: Path, device: str) -> Fit | None:
    """Share of the memory rate that an elementwise kernel reaches (FP8 cast: 2 bytes in, 1 out)."""
    table = read(data, f"{device}/quantize/vllm/*/scale_matrix_perf.parquet")
    if table.empty:
        return None
    moved = 3.0 * table.m.to_numpy(float) * table.k.to_numpy(float)
    seconds = table.seconds.to_numpy()
    bytes_per_s = catalogue.gpu(DEVICES[device]).memory_bytes_per_s
    outside_cache = (moved > 4e8) | (moved < 1e4)

    def predict(p: dict[str, float]) -> Any:
        return p["launch_s"] + moved[outside_cache] / (bytes_per_s * p["memory"])

    start = {"launch_s": 2e-6, "memory": 0.85}
    large = moved[outside_cache] > 4e8
    name = catalogue.gpu(DEVICES[device]).name
    return fit(f"memory.{name}", start, predict, seconds[outside_cache], large)


def fit_collective(data: Path, device: str, operation: str) -> Fit | None:
    kind, rate = LINKS[device]
    tables = sorted(data.glob(f"{device}/comm/nccl/*/nccl_perf.parquet"))
    table = pd.read_parquet(tables[-1])
    table = table[(table.op_name == operation) & (table.num_gpus > 1)]
    if table.empty:
        return None
    width = np.where(table.nccl_dtype == "half", 2.0, 1.0)
    size = table.num_gpus.to_numpy(float)
    shares = curves.traffic(
        operation, size, in_network_reduction=kind == "nvlink" and rate >= SWITCH_REDUCES
    )
    moved = table.message_size.to_numpy(float) * width * shares

    def predict(p: dict[str, float]) -> Any:
        curve = curves.CollectiveCurve(**p)
        return curves.collective_s(curve, rate, moved_bytes=moved, size=size)

    start = {"launch_s": 8e-6, "step_s": 2e-6, "rate": 0.7, "ramp_s": 1e-5}
    section = f"collective.{kind}-{rate / 1e9:.0f}.{COLLECTIVES[operation]}"
    return fit(section, start, predict, table.latency.to_numpy(float) * 1e-3, moved >= 1e6)


def fit_all(data: Path, quick: bool) -> list[Fit]:
    found: list[Fit | None] = []
    for device in DEVICES:
        products = [fit_matmul(data, device, p, quick) for p in PRECISIONS]
        found += products
        found.append(fit_attention(data, device, quick))
        if products[0] is not None:
            found.append(fit_experts(data, device, products[0], quick))
        found.append(fit_memory(data, device))
    found += [fit_collective(data, d, op) for d in LINKS for op in COLLECTIVES]
    return [f for f in found if f is not None]


def as_toml(fits: list[Fit]) -> str:
    """The text of efficiency.toml."""
    lines = [HEADER]
    for f in fits:
        head, *rest = f.section.split(".")
        lines.append("[" + ".".join([head, *(f'"{part}"' for part in rest)]) + "]")
        lines += [f"{name} = {value:.4g}" for name, value in f.parameters.items()]
        lines.append('evidence = "measured"')
        lines.append(f"points = {f.points}")
        lines.append(f"median_error = {f.median_error:.3f}")
        lines.append(f"p90_error = {f.p90_error:.3f}")
        lines.append(f"bias = {f.bias:.3f}\n")
    return "\n".join(lines)


def tables_folder() -> Path:
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        sys.exit("aiconfigurator-core is not installed: pip install 'meshwright[fit]', or --data")
    return Path(spec.origin).parent / "systems" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with one folder a device")
    parser.add_argument("--json", action="store_true", help="print every fit as JSON")
    parser.add_argument("--quick", action="store_true", help="2,000 rows a table at most")
    parser.add_argument("--write", type=Path, help="write the fitted part of efficiency.toml here")
    options = parser.parse_args()
    fits = fit_all(options.data or tables_folder(), options.quick)
    if options.write:
        options.write.write_text(as_toml(fits), encoding="utf-8")
    if options.json:
        print(json.dumps([asdict(f) for f in fits], indent=1))
        return
    print(f"{'curve':44} {'points':>6} {'median':>7} {'p90':>7} {'bias':>7}")
    for f in fits:
        print(
            f"{f.section:44} {f.points:6} {f.median_error:7.1%} {f.p90_error:7.1%} {f.bias:+7.1%}"
        )


if __name__ == "__main__":
    main()
