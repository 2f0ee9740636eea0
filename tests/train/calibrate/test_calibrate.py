"""`meshwright calibrate` on grids so small that it takes seconds, and what it refuses."""

import importlib.util
import subprocess
import sys
import tomllib

import pytest

from meshwright.cli.main import run


def test_without_torch_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    known = importlib.util.find_spec
    missing = lambda name, *rest: None if name == "torch" else known(name, *rest)  # noqa: E731
    monkeypatch.setattr("meshwright.data.needs.find_spec", missing)
    assert run(["calibrate", "-o", str(tmp_path / "here.toml")]) == 2
    assert "pip install 'meshwright[train]'" in capsys.readouterr().err


def test_an_unwritable_file_is_refused_before_anything_is_measured(tmp_path, capsys):
    assert run(["calibrate", "-o", str(tmp_path / "no" / "here.toml")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err


def test_more_ranks_than_cores_are_refused(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert run(["calibrate", "-o", str(tmp_path / "here.toml"), "--ranks", "64"]) == 2
    shown = capsys.readouterr().err
    assert "64 ranks on" in shown
    assert "hint: type --ranks" in shown


def test_help_needs_no_torch():
    code = "import sys; from meshwright.cli.main import run; run(['calibrate', '--help']); "
    code += "sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--ranks" in done.stdout


@pytest.fixture(name="small")
def _small(monkeypatch):
    """Grids of two or three small points each; forked ranks inherit them."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from meshwright.train.calibrate import kernels, links, measure, pieces

    monkeypatch.setattr(kernels, "QUICK_SHAPES", ((8, 64, 64), (64, 64, 128), (128, 128, 64)))
    monkeypatch.setattr(kernels, "QUICK_ATTENTIONS", ((1, 2, 2, 32, 32), (2, 2, 1, 64, 32)))
    monkeypatch.setattr(kernels, "WALKED", 2**14)
    monkeypatch.setattr(pieces, "QUICK_SIZES", (2**13, 2**14))
    monkeypatch.setattr(pieces, "COPIED", 2**16)
    monkeypatch.setattr(links, "QUICK_SIZES", (4096, 65536))
    monkeypatch.setattr(links, "QUICK_UNITS", (2**10, 2**14))
    monkeypatch.setattr(measure, "machine_of", _two_ranks)


def _two_ranks(device, ranks):
    from meshwright.train.calibrate.machine import Machine

    return Machine(
        device=device,
        name="this CPU",
        ranks=ranks,
        threads=1,
        cores=2,
        host_bytes=2.0**33,
        memory_bytes=2.0**32,
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_written_is_what_was_measured(tmp_path, small, ranks):
    from meshwright.hardware.file import read_cluster
    from meshwright.train.calibrate.file import text_of
    from meshwright.train.calibrate.measure import calibrate

    said = []
    done = calibrate(device="cpu", ranks=ranks, quick=True, progress=said.append)
    path = tmp_path / "here.toml"
    path.write_text(text_of(done), encoding="utf-8")
    cluster = read_cluster(path)
    assert cluster.num_gpus == ranks
    assert cluster.gpu.curves.threads == 1
    assert cluster.overheads.host_serial
    assert 0 < cluster.overheads.host_layer_s < 1.0
    assert (cluster.links[0].curves is not None) == (ranks > 1)
    assert len(said) >= 3
    written = tomllib.loads(path.read_text(encoding="utf-8"))["measured"]
    rate = done.cluster.gpu.curves.matmul["fp32"].rate
    assert written["matmul"]["fp32"]["rate"] == pytest.approx(rate, rel=1e-3)
