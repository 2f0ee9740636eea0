"""Devices of the catalogue by the names that traces have for them."""

from __future__ import annotations

import pytest

from meshwright.diagnose.device import device_named


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80G-SXM"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("Tesla V100-SXM2-32GB", "V100-32G-SXM2"),
        ("Nonesuch 9000", None),
        ("", None),
    ],
)
def test_devices_by_what_traces_call_them(name, device):
    found = device_named(name)
    assert (found.name if found else None) == device
