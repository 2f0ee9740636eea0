"""What a file claims is compared with what is computed."""

from __future__ import annotations

from typing import Any

import plain_readings
import pytest

from meshwright import api
from meshwright.base.finding import Finding
from meshwright.frameworks.jobs import draft
from meshwright.rules.claims import (
    claim_figures,
    claim_findings,
    claims,
    product,
)
from meshwright.rules.figures import figures


def _judged(
    settings: dict[str, Any], *, model: str | None = None, **values: Any
) -> tuple[tuple[Finding, ...], dict[str, Any]]:
    reading = plain_readings.reading(settings, **values)
    drafted = draft(reading, model=model and api.load_model(model))
    found = claims(reading, drafted, figures(reading, drafted))
    return claim_findings(found), dict(claim_figures(found))


def test_bytes_a_parameter_are_added_up_and_compared() -> None:
    parts = {f"bytes_per_param.{n}": v for n, v in (("weights", 2), ("grads", 2), ("optimizer", 8))}
    (finding,), numbers = _judged(parts, dp=8, zero_stage=1)
    assert finding.code == "CFG211"
    assert "too low" in finding.message
    assert "7.5" in finding.reason
    assert numbers["stated_bytes_per_parameter"] == 12
    assert numbers["estimate_off_by"] == pytest.approx(1.5)


def test_a_right_statement_is_no_finding() -> None:
    found, numbers = _judged({"bytes_per_parameter": 18}, zero_stage=1)
    assert found == ()
    assert numbers["estimate_off_by"] == 1


def test_a_rule_for_activations_is_a_product() -> None:
    names = {"hidden": 4096, "batch": 8, "seq": 512, "layers": 32}
    rule = "12 * hidden * batch * seq * layers elements, 2 bytes each"
    assert product(rule, names) == pytest.approx(12 * 2**30)
    (finding,), _ = _judged(
        {"rule": rule, **names},
        model="llama-7b",
        num_gpus=1,
        seq_len=512,
        micro_batch_size=8,
        global_batch_size=8,
        flash_attention=False,
    )
    assert (finding.code, "too low" in finding.message) == ("CFG212", True)


@pytest.mark.parametrize(
    "rule",
    ["__import__('os')", "hidden", "1 * unknown", "2 ** 3", "*".join(["2"] * 500), "a * (b + c)"],
)
def test_no_other_rule_is_read(rule: str) -> None:
    assert product(rule, {"hidden": 4096, "a": 1, "b": 2, "c": 3}) is None


def test_tensor_parallelism_beyond_a_node_takes_the_network() -> None:
    stated = {"intra_node_bandwidth_gbps": 300, "inter_node_bandwidth_gbps": 25}
    (finding,), numbers = _judged(stated, tp=16, num_gpus=16, gpus_per_node=8)
    assert finding.code == "CFG213"
    assert "too high" in finding.message
    assert numbers["estimate_off_by"] == 12
    inside, _ = _judged(stated, tp=8, num_gpus=16, gpus_per_node=8)
    assert inside == ()


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ({"throughput_tflops_per_gpu": 420, "peak_tflops": 1979}, ["CFG215"]),
        ({"throughput_tflops_per_gpu": 420, "peak_tflops": 989}, []),
        ({"tflops": 420, "claimed_mfu": 0.212}, ["CFG216"]),
        ({"tflops": 420, "mfu_pct": 42.5}, []),
        ({"tflops": 420}, []),
    ],
)
def test_utilization_is_reckoned_with_the_dense_peak(
    settings: dict[str, Any], codes: list[str]
) -> None:
    found, numbers = _judged(settings, gpu_name="H100", precision="bf16")
    assert [f.code for f in found] == codes
    if codes == ["CFG216"]:
        assert numbers["mfu"] == pytest.approx(420 / 989, rel=0.01)
