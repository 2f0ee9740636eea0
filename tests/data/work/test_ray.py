"""Ray, where it is installed, makes the same bytes as this process alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BUILD = """
import sys
from meshwright import data

if __name__ == "__main__":
    settings = data.read_build(sys.argv[1])
    data.build(settings, engine=sys.argv[2], workers=2)
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_ray_makes_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(BUILD)
    made = []
    for engine in ("inline", "ray"):
        config = tmp_path / f"{engine}.toml"
        config.write_text(
            f'[input]\nfiles = "{corpus}/*.jsonl"\n[dedup]\nnear = true\n'
            f'[output]\nfolder = "{engine}"\n'
        )
        command = [sys.executable, str(tmp_path / "run.py"), str(config), engine]
        subprocess.run(command, check=True, timeout=300)
        files = sorted((tmp_path / engine).glob("[a-z]*.*"))
        made.append({path.name: path.read_bytes() for path in files})
    assert set(made[0]) >= {"manifest.json", "documents.parquet"}
    assert made[0] == made[1]
