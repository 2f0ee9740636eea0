from __future__ import annotations

import pytest

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.plan.plan import Plan, Schedule
from meshwright.train.tables import read_table

PP2 = Plan(pp=2)
GOOD = "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1I1,1W1\n"


def read(tmp_path, text: str, plan: Plan = PP2, microbatches: int = 2):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return read_table(path, plan, microbatches=microbatches)


def test_a_table_is_read_by_rank(tmp_path):
    assert read(tmp_path, GOOD) == (
        ((0, "F", 0), (0, "F", 1), (0, "B", 0), (0, "B", 1)),
        ((1, "F", 0), (1, "B", 0), (1, "F", 1), (1, "I", 1), (1, "W", 1)),
    )


def test_our_own_tables_are_such(tmp_path):
    pytest.importorskip("torch")
    from meshwright.train.parallel.pipeline import table_of

    plan = Plan(pp=2, schedule=int(Schedule.ZB_H1))
    table = table_of(plan, microbatches=3)
    text = "\n".join(",".join(f"{s}{k}{m}" for s, k, m in row) for row in table)
    assert read(tmp_path, text, plan, 3) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("0F1", "0X1"), "table.csv:1: '0X1' is no operation"),
        (GOOD.splitlines()[0], "1 lines are not the 2 ranks"),
        (GOOD.replace("1F0", "2F0"), "rank 1 does not hold stage 2, but 1"),
        (GOOD.replace("0B1", "0B0"), "stage 0 does not pass micro-batch 0 once each way"),
        (GOOD.replace(",1W1", ""), "stage 1 does not pass micro-batch 1 once each way"),
        (GOOD.replace("0F1,", "0F1,0F7,"), "stage 0 has micro-batch 7 of 2"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, text, message):
    with pytest.raises(InvalidInput) as error:
        read(tmp_path, text)
    assert message in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MeshwrightError, match="cannot read"):
        read_table(tmp_path / "none.csv", PP2, microbatches=1)
