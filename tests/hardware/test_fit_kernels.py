"""The fitting command finds parameters that are known, and its file is the one in the package."""

import importlib.util
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from meshwright.hardware import curves

pytest.importorskip("scipy")
pytest.importorskip("pandas")

ROOT = Path(__file__).parents[2]
TRUTH = curves.MatmulCurve(launch_s=4e-6, rate=0.75, m0=60.0, n0=40.0, k0=120.0, memory=0.7)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fit_kernels", ROOT / "benchmarks/fit_kernels.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["fit_kernels"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shapes():
    return np.random.default_rng(0).integers(64, 16_384, (3, 1500)).astype(float)


def fitted(script, shapes, noise):
    m, n, k = shapes
    roof = curves.Roof(flops_per_s=1e15, bytes_per_s=3e12)
    exact = curves.matmul_s(TRUTH, roof, m, n, k, operand_bytes=2.0)
    measured = exact * np.exp(noise * np.random.default_rng(1).standard_normal(m.size))

    def predict(p):
        return curves.matmul_s(curves.MatmulCurve(**p), roof, m, n, k, operand_bytes=2.0)

    start = {"launch_s": 3e-6, "rate": 0.6, "m0": 10.0, "n0": 10.0, "k0": 50.0, "memory": 0.8}
    return script.fit("matmul.X.bf16", start, predict, measured, m >= 1024)


def test_exact_data_give_the_parameters_back(script, shapes):
    found = fitted(script, shapes, 0.0)
    for name in ("rate", "m0", "n0", "k0"):
        assert found.parameters[name] == pytest.approx(asdict(TRUTH)[name], rel=0.02)
    assert found.p90_error < 0.005


def test_noisy_data_state_their_noise(script, shapes):
    found = fitted(script, shapes, 0.05)
    assert found.parameters["rate"] == pytest.approx(TRUTH.rate, rel=0.03)
    assert found.median_error == pytest.approx(0.0337, rel=0.2)  # median of |N(0, 0.05)|


def test_written_file_reads_back(script, shapes):
    found = fitted(script, shapes, 0.0)
    section = tomllib.loads(script.as_toml([found]))["matmul"]["X"]["bf16"]
    assert section["evidence"] == "measured"
    assert section["rate"] == pytest.approx(TRUTH.rate, rel=0.02)


def test_the_file_in_the_package_is_the_command_s(script):
    path = ROOT / "src/meshwright/hardware/data/efficiency.toml"
    text = path.read_text(encoding="utf-8")
    assert text.startswith(script.HEADER)
    fitted_devices = set(tomllib.loads(text)["matmul"])
    assert len(fitted_devices) == len(script.DEVICES)
