"""Folders of shipped data."""

from __future__ import annotations

from importlib.resources import files

import pytest

from meshwright.base.shipped import shipped


@pytest.mark.parametrize("package", ["meshwright.hardware", "meshwright.frameworks.verl"])
def test_the_folder_is_the_one_of_importlib(package: str) -> None:
    assert str(shipped(package)) == str(files(package))
    assert any(path.suffix in (".csv", ".py") for path in shipped(package).iterdir())
