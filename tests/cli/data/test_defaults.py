"""`data build --help` tells the default of every setting that has one."""

from __future__ import annotations

import pytest

from meshwright.cli.main import run


def test_help_tells_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    run(["data", "build", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    for option, default in {
        "--seq-len": "4096",
        "--pack": "concatenate",
        "--layout": "auto",
        "--shard-tokens": "256M",
        "--format": "auto",
        "--text-field": "text",
        "--documents": "file",
        "--validation": "0",
        "--seed": "0",
        "--bad-fraction": "0.01",
    }.items():
        of_option = words.split(f"{option} ", 1)[1].split(" --", 1)[0]
        assert f"[default: {default}]" in of_option, option
