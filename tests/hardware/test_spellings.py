"""Names of devices that carry their memory."""

import pytest

from meshwright.base.errors import UnknownName
from meshwright.hardware.catalogue import gpu


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("H200-141G", "H200"),
        ("mi300x 192GB", "MI300X"),
        ("H20-96G", "H20"),
        ("H100-80GB-SXM5", "H100"),
        ("A100-40G", "A100-40GB"),
        ("L40S-48G", "L40S"),
    ],
)
def test_a_name_with_its_memory_is_that_device(spelling, name):
    assert gpu(spelling) == gpu(name)


def test_a_name_with_another_memory_is_not():
    with pytest.raises(UnknownName):
        gpu("H200-999G")
