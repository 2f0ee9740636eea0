"""Notes that say the same of many settings are one finding; warnings stand for themselves."""

from __future__ import annotations

from meshwright.base.finding import Finding, Severity
from meshwright.frameworks.read import read_text
from meshwright.rules.lint import lint
from meshwright.rules.together import told_together


def note(code: str, key: str, line: int, *, reason: str = "") -> Finding:
    return Finding(
        code=code, key=key, line=line, reason=reason, file="a.sh", message=key, severity=Severity(0)
    )


def test_notes_of_one_kind_are_one_and_name_all() -> None:
    notes = [note("CFG101", f"--key-{i}", 9 - i) for i in range(7)]
    (merged,) = told_together(notes)
    assert merged.line == 3
    assert merged.message == (
        "--key-0, --key-1, --key-2, --key-3, --key-4 and 2 more are unknown, and not judged"
    )
    assert merged.notes == (f"all of them: {', '.join(f'--key-{i}' for i in range(7))}",)


def test_notes_of_two_reasons_are_two() -> None:
    outside = [note("CFG106", x, 1, reason="is set outside of this file") for x in ("$TP", "$PP")]
    unlike = note("CFG106", "$CP", 2, reason="of two branches differs")
    merged = told_together([*outside, unlike])
    assert [f.message for f in merged] == [
        "$TP, $PP are set outside of this file: what hangs on them is not known",
        "$CP",
    ]


def test_a_warning_and_a_lone_note_stay_as_they_are() -> None:
    slip = note("CFG101", "--tensor-model-parallel-sise", 1).replace(severity=Severity.WARNING)
    lone = note("CFG101", "--own", 2)
    assert told_together([slip, lone]) == [slip, lone]


def test_a_slip_is_an_error_and_names_of_the_program_are_one_note() -> None:
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
        "--num-attention-heads 8 --tensor-model-parallel-sise 2 --zebra-stripes 3 --quokka-ears 2 "
        "--seq-length 512 --max-position-embeddings 512 --micro-batch-size 1\n"
    )
    found = [f for f in lint(read_text(text, file="train.sh")).findings if f.code == "CFG101"]
    assert [(f.severity, f.key) for f in found] == [
        (Severity.ERROR, "--tensor-model-parallel-sise"),
        (Severity.INFO, ""),
    ]
    assert "--zebra-stripes, --quokka-ears" in found[1].message
