"""torch.compile of layers: the same losses, or a plain answer why not."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")

from running import spec_of, trained  # noqa: E402

from meshwright.base.errors import InvalidInput  # noqa: E402
from meshwright.train.parallel import compiling  # noqa: E402


@pytest.mark.nightly  # a compilation takes a minute
@pytest.mark.parametrize("layout", ["dp = 2\nzero_stage = 3", 'tp = 2\nrecompute = "full"'])
def test_compiled_layers_compute_what_the_others_do(tmp_path, layout):
    plan = f'precision = "fp32"\n{layout}'
    plain = trained(spec_of(tmp_path / "a", plan, ranks=2, steps=3), ranks=2)
    compiled = trained(spec_of(tmp_path / "b", plan, ranks=2, steps=3, compile=True), ranks=2)
    losses = [[record["loss"] for record in run] for run in (plain, compiled)]
    norms = [[record["norm"] for record in run] for run in (plain, compiled)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_without_a_compiler_the_answer_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = compiling.missing("cpu")
    assert "C++ compiler" in found.message
    assert "g++" in found.hint
    with pytest.raises(InvalidInput, match="compiler"):
        compiling.apply(None, device_type="cpu")
    assert compiling.missing("cuda") == []
