"""What came of a unit, in a form that passes between processes."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.data.stages.layout import Job
    from meshwright.data.work.engines import Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Done, in `cpu_s`, or why not: an error's message and hint, findings, or an OSError."""

    cpu_s: float = 0.0
    failed: bool = False
    message: str = ""
    hint: str = ""
    findings: tuple[Finding, ...] = ()
    os_error: tuple[int, str, str] | None = None  # number, what it means, file
    trace: str = ""  # of an error that is ours


class WorkerError(RuntimeError):
    """A defect of ours in another process; its text holds the traceback from there."""


def answer(make: Make, job: Job, number: int) -> Answer:
    """Makes a unit; whatever it raises becomes part of the answer."""
    started = time.process_time()
    try:
        make(job, number)
    except Exception as error:
        return failure(error)
    return Answer(cpu_s=time.process_time() - started)


def failure(error: Exception) -> Answer:
    """An error as an answer."""
    if isinstance(error, InvalidInput):
        return Answer(failed=True, findings=error.findings, hint=error.hint)
    if isinstance(error, MeshwrightError):
        return Answer(failed=True, message=error.message, hint=error.hint)
    if isinstance(error, OSError) and error.errno is not None:
        meaning = (error.errno, error.strerror or str(error), str(error.filename or ""))
        return Answer(failed=True, os_error=meaning)
    return Answer(failed=True, message=repr(error), trace=traceback.format_exc())


def raise_answer(answer: Answer) -> None:
    """Raises here what went wrong there; nothing when nothing did."""
    if not answer.failed:
        return
    if answer.findings:
        raise InvalidInput(answer.findings, hint=answer.hint)
    if answer.os_error is not None:
        number, meaning, file = answer.os_error
        raise OSError(number, meaning, file or None)
    if answer.trace:
        raise WorkerError(f"{answer.message}\n{answer.trace}")
    raise MeshwrightError(answer.message, hint=answer.hint)
