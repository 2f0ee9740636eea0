"""verify tells a plan that is exact from one that is not, and names the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from meshwright.plan.plan import Plan

if TYPE_CHECKING:
    from meshwright.train.verify import Verdict

pytest.importorskip("torch")
pytest.importorskip("transformers")


def _verdict(plan: Plan, **changes: Any) -> Verdict:
    from meshwright.train.model.tiny import tiny_config
    from meshwright.train.verify import judge
    from meshwright.train.verify.shrinking import Trial

    trial = Trial(plan=plan, layers=2, heads_multiple=1, experts_multiple=1, microbatches=2)
    return judge(trial, tiny_config("llama", layers=2), steps=2, **changes)


def test_a_sound_plan_is_exact() -> None:
    verdict = _verdict(Plan(dp=2, zero_stage=3))
    assert verdict.exact
    assert verdict.tensors == 21  # 9 a layer, embedding, final norm, head


def test_a_gradient_that_is_summed_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.train.engine import Engine
    from meshwright.train.model.share import part_of

    finish = Engine._finish_gradients

    def twice(engine: Engine) -> None:
        finish(engine)
        parameters = dict(engine.named_parameters())
        part_of(parameters["model.layers.1.mlp.up_proj.weight"].grad).mul_(2)

    monkeypatch.setattr(Engine, "_finish_gradients", twice)
    verdict = _verdict(Plan(dp=2, zero_stage=3))
    assert not verdict.exact
    assert verdict.differing[0][0] == "model.layers.1.mlp.up_proj.weight"
    assert verdict.gradient == pytest.approx(1.0)
    assert verdict.norm > 1e-3


def test_a_loss_that_forgets_the_count_of_tokens_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.train.engine import Engine

    mean = Engine.forward_backward

    def by_rows(engine: Engine, batches: Any, *, tokens: Any, loss_scale: float = 1.0) -> Any:
        rows = sum(batch["labels"].numel() for batch in batches) * engine.mesh.size("batch")
        return mean(engine, batches, tokens=rows, loss_scale=loss_scale)

    monkeypatch.setattr(Engine, "forward_backward", by_rows)
    assert not _verdict(Plan(dp=2, zero_stage=3)).exact


def test_a_rank_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.train.engine import Engine

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Engine, "forward_backward", broken)
    verdict = _verdict(Plan(dp=2))
    assert not verdict.exact
    assert "RuntimeError: out of order" in verdict.error
