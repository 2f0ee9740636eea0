"""Rows of several documents: gradients equal those of every document trained on by itself."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.plan.plan import ContextParallel, Plan, Recompute, Schedule
from meshwright.train.local import run_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

SEQ_LEN, ROWS = 16, 4
LENGTHS = (
    (5, 11),
    (16,),
    (1, 7, 6),
    (3, 3, 10),
)  # of the documents of each row; the rest is padding
PLANS: dict[str, dict[str, Any]] = {
    "one rank": {},
    "dp": {"dp": 2},
    "tp": {"tp": 2},
    "pp": {"pp": 2, "schedule": Schedule.ZB_V},
    "ring": {"cp": 2, "context_parallel": ContextParallel.RING},
    "all-gather": {"cp": 2, "context_parallel": ContextParallel.ALL_GATHER},
    "ulysses": {"cp": 2, "context_parallel": ContextParallel.ULYSSES},
    "pp cp": {"pp": 2, "cp": 2, "recompute": Recompute.FULL},
}


def _rows() -> dict[str, Any]:
    """Tokens, labels, positions in the document, and documents of every row."""
    source = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, 96, (ROWS, SEQ_LEN), generator=source)
    labels, places = torch.full_like(tokens, -100), torch.zeros_like(tokens)
    documents = torch.full_like(tokens, -1)
    for row, lengths in enumerate(LENGTHS):
        start = 0
        for number, length in enumerate(lengths):
            part = slice(start, start + length)
            places[row, part] = torch.arange(length)
            documents[row, part] = number
            labels[row, start : start + length - 1] = tokens[row, start + 1 : start + length]
            start += length
    return {"tokens": tokens, "labels": labels, "places": places, "documents": documents}


def _alone(config: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """Gradients of the mean loss, each document in a batch of its own, by transformers' model."""
    from meshwright.train.verify.islands import wide
    from meshwright.train.verify.reference import whole_model

    lm = whole_model(config, seed=0, plan=Plan())
    counted = int((rows["labels"] != -100).sum())
    with wide():
        for row in range(ROWS):
            for number in range(int(rows["documents"][row].max()) + 1):
                part = rows["documents"][row] == number
                _document_loss(lm, rows["tokens"][row, part], counted)
    return {name: p.grad for name, p in lm.named_parameters() if p.grad is not None}


def _document_loss(lm: Any, tokens: Any, counted: int) -> None:
    from meshwright.train.span import Span

    if len(tokens) < 2:
        return
    places = torch.arange(len(tokens) - 1)
    logits = lm(
        input_ids=tokens[None, :-1],
        position_ids=places[None],
        use_cache=False,
        span=Span(positions=places),
    ).logits
    loss = torch.nn.functional.cross_entropy(logits[0], tokens[1:], reduction="sum") / counted
    loss.backward()


def _worst(config: Any, plan: Plan, rows: dict[str, Any], expected: dict[str, Any]) -> float:
    """The worst relative gradient error of this rank."""
    from meshwright.train.assemble import cut
    from meshwright.train.verify.comparing import _distance, engine_of
    from meshwright.train.verify.islands import wide

    engine = engine_of(config, plan, seq_len=SEQ_LEN, seed=0)
    mesh = engine.mesh
    mine = cut(torch.arange(SEQ_LEN), cp=mesh.size("cp"), how=engine.blueprint.cp_slices)
    part = {
        n: t.chunk(mesh.dp_size)[mesh.dp_rank][:, mine[mesh.rank("cp")]] for n, t in rows.items()
    }
    batches = [
        {
            "tokens": part["tokens"][i : i + 1],
            "labels": part["labels"][i : i + 1],
            "position_ids": part["places"][i : i + 1],
            "documents": part["documents"][i : i + 1].to(torch.int32),
        }
        for i in range(len(part["tokens"]))
    ]
    with wide():
        engine.forward_backward(batches, tokens=int((rows["labels"] != -100).sum()))
    return max(_distance(p.grad, expected[name]) for name, p in engine.named_parameters())


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
@pytest.mark.parametrize("shape", PLANS)
def test_documents_of_a_row_do_not_see_each_other(family: str, shape: str) -> None:
    from meshwright.train.model.tiny import tiny_config

    config, rows = tiny_config(family, layers=4), _rows()
    plan = Plan(**{"zero_stage": 3, **PLANS[shape]})
    expected = _alone(config, rows)
    ranks = int(plan.dp) * int(plan.tp) * int(plan.pp) * int(plan.cp)
    found = run_ranks(_worst, ranks, config, plan, rows, expected)
    assert max(found) < 1e-9
