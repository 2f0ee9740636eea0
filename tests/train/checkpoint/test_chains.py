import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from chains import DENSE, ROUTED, chain, straight

from meshwright.train.local import run_ranks


@pytest.mark.parametrize(
    ("family", "plans"),
    [
        ("gemma2", DENSE),  # tied
        ("deepseek_v3", ROUTED),  # dense and routed layers, a buffer
        pytest.param("llama", DENSE, marks=pytest.mark.nightly),
        pytest.param("qwen3_moe", ROUTED, marks=pytest.mark.nightly),
        pytest.param("gpt_oss", ROUTED, marks=pytest.mark.nightly),
    ],
)
def test_a_run_goes_on_under_any_other_plan(tmp_path, family, plans):
    # each plan writes what the next one reads; the same data on one rank says what must come of it
    expected = run_ranks(lambda: straight(family, len(plans)), 1)[0]
    found = run_ranks(lambda: chain(family, plans, str(tmp_path)), 4)
    assert all(losses == found[0] for losses in found)
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert expected[-1] != pytest.approx(expected[0], rel=1e-3)  # steps do something


def test_fewer_ranks_go_on(tmp_path):
    def four():
        return chain("llama", ("fsdp4",), str(tmp_path))

    def one():
        from chains import resumed_alone

        return resumed_alone("llama", str(tmp_path), step=1)

    assert run_ranks(four, 4)
    expected = run_ranks(lambda: straight("llama", 2), 1)[0]
    assert run_ranks(one, 1)[0] == pytest.approx(expected[1], rel=1e-12)
