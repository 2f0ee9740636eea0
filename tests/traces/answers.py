"""What `diagnose` says of a folder of traces, as its record has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from meshwright.api.diagnosing import diagnose
from meshwright.report.diagnosis.record import diagnosis_record
from meshwright.report.machine import to_json

if TYPE_CHECKING:
    from pathlib import Path


def answer_of(folder: Path) -> dict[str, Any]:
    """The record of `diagnose FOLDER`, read back from its JSON."""
    record: dict[str, Any] = json.loads(to_json(diagnosis_record(diagnose(folder, workers=1))))
    return record
